"""The change feed: the changes of jobs, without asking for their lists again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.client.typed_requests import TypedRequests
from pilotage.core.errors import Conflict, CursorExpired
from pilotage.wire.limits import LONGEST_POLL

if TYPE_CHECKING:
    from pilotage.wire.changes import ChangesPage, ChangesQuery, FeedChange
    from pilotage.wire.jobs import Selection


LONGEST_SILENCE = 120.0
"""Seconds. A server that lives gives a sign sooner."""


class ChangeMethods(TypedRequests):
    """The part of the client for the change feed."""

    def read_changes(self, query: ChangesQuery) -> ChangesPage:
        """One page of changes. With `query.wait`, in seconds, it comes with the first change or when they are over.

        Raises CursorExpired if changes after the cursor may be gone.
        """
        # A number with few digits is read without FastAPI, in a tenth of the time.
        rounded = replace(query, wait=round(query.wait, 3))
        return self.call(wire.changes.READ_CHANGES, rounded, timeout=LONGEST_SILENCE)

    def changes(
        self,
        after: str = "",
        *,
        submission: int | None = None,
        owner: str | None = None,
        group: str | None = None,
    ) -> Iterator[ChangesPage]:
        """Iterate over pages of changes without an end: of all jobs that you may see, or of jobs that fit.

        Begins after a cursor, else with this call. Keep the `cursor` of the last page
        whose changes you have handled: nothing is missed or told twice if you go on from it later.
        """
        query = wire.changes.ChangesQuery(after, submission=submission, owner=owner, group=group)
        if not query.after:
            query.after = self.read_changes(query).cursor
        query.wait = LONGEST_POLL
        while True:
            page = self.read_changes(query)
            query.after = page.cursor
            if page.changes:
                yield page


WITHOUT_FEED = 1.0
"""Seconds between two looks at a server that tells no changes."""


class ChangeCursor:
    """Waits for changes of a selection of jobs or of one request, from its making on."""

    def __init__(
        self,
        read: Callable[[ChangesQuery], ChangesPage],
        selection: Selection | None = None,
        *,
        request: int | None = None,
    ) -> None:
        chosen = selection or wire.jobs.Selection()
        self._read = read
        self._request = request
        self._ids = frozenset(chosen.ids or ())
        self._query = wire.changes.ChangesQuery(
            submission=chosen.submission, owner=chosen.owner, group=chosen.group
        )
        self._begin()

    def _begin(self) -> None:
        self._query.after, self._query.wait = "", 0.0
        try:
            self._query.after = self._read(self._query).cursor
        except Conflict:
            self._query.after = ""  # this server has no feed

    def await_change(self, seconds: float) -> None:
        """Wait until a job of the selection or the request has changed, or until `seconds` are over."""
        if not self._query.after:
            time.sleep(min(seconds, WITHOUT_FEED))
            return
        end = time.monotonic() + seconds
        try:
            while True:
                self._query.wait = max(0.0, end - time.monotonic())
                page = self._read(self._query)
                self._query.after = page.cursor
                if any(map(self._concerns, page.changes)) or time.monotonic() >= end:
                    return
        except CursorExpired:
            self._begin()

    def _concerns(self, change: FeedChange) -> bool:
        if self._request is not None:
            return change.kind == "request" and change.id == self._request
        if self._ids:
            return change.kind == "job" and change.id in self._ids
        return change.kind != "request"
