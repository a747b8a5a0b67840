"""Hears of the ends of jobs by the change feed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from pilotage.client import Client
from pilotage.client.polling import FINAL_STATES, PollInterval
from pilotage.core.errors import CursorExpired, Overloaded, PilotageError, Unreachable
from pilotage.wire.changes import ChangesPage, ChangesQuery
from pilotage.wire.limits import LONGEST_POLL


class OutageReports(Protocol):
    """Who is told when the server does not answer, and when it answers again."""

    def server_is_away(self, trouble: PilotageError) -> None: ...

    def server_is_back(self) -> None: ...


class JobEnds:
    """The states in which watched jobs have ended. One thread listens; the methods may be called in any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: set[int] = set()
        self._ended: dict[int, str] = {}
        self._is_submitting = False
        self._early: dict[int, str] = {}
        """Ends that were told before the answer to a submission."""
        self._failure: PilotageError | None = None
        self._is_closed = False

    def listen(self, client: Client, owner: str, reports: OutageReports) -> None:
        """Hear of the jobs of `owner` that end from now on. `client` must give up in seconds."""
        cursor = _read(client, owner, "").cursor
        arguments = (client, owner, cursor, reports)
        threading.Thread(target=self._listen, args=arguments, name="pilotage-changes", daemon=True).start()

    @contextmanager
    def submission(self) -> Iterator[None]:
        """Within it, ends of unknown jobs are kept: `watch` may come after the end of a job."""
        with self._changed:
            self._is_submitting = True
        try:
            yield
        finally:
            with self._changed:
                self._is_submitting = False
                self._early.clear()

    def watch(self, job: int, state: str = "") -> None:
        """Wait for the end of a job, which is in `state`."""
        with self._changed:
            known = self._early.pop(job, state)
            if known in FINAL_STATES:
                self._ended[job] = known
                self._changed.notify_all()
            else:
                self._watched.add(job)

    def check(self) -> None:
        """Raise the error that has ended the listening, if there is one."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def take(self, job: int) -> str:
        """The final state of a watched job, once; "": it has not ended."""
        with self._changed:
            return self._ended.pop(job, "")

    def wait(self) -> None:
        """Wait until there is an end to take, an error, or `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._failure or self._is_closed)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _listen(self, client: Client, owner: str, cursor: str, reports: OutageReports) -> None:
        pace, is_away = PollInterval(0.2, 5.0), False
        while not self._is_closed:
            try:
                cursor = self._listen_once(client, owner, cursor)
            except (Overloaded, Unreachable) as outage:
                if not is_away and not self._is_closed:
                    reports.server_is_away(outage)
                is_away = True
                pace.pause(False)
            except PilotageError as failure:
                with self._changed:
                    self._failure = failure
                    self._changed.notify_all()
                return
            else:
                pace.next(True)
                if is_away:
                    reports.server_is_back()
                is_away = False

    def _listen_once(self, client: Client, owner: str, cursor: str) -> str:
        """The cursor after the next changes, or after a list of the watched jobs if the feed has a gap."""
        try:
            page = _read(client, owner, cursor, LONGEST_POLL)
        except CursorExpired:
            cursor = _read(client, owner, "").cursor
            with self._changed:
                watched = sorted(self._watched)
            found = {job.id: job.state for job in client.jobs(watched)} if watched else {}
            self._apply((job, found.get(job, "Deleted")) for job in watched)
            return cursor
        self._apply((change.id, change.state) for change in page.changes if change.kind == "job")
        return page.cursor

    def _apply(self, states: Iterable[tuple[int, str]]) -> None:
        with self._changed:
            for job, state in states:
                if state not in FINAL_STATES:
                    continue
                if job in self._watched:
                    self._watched.discard(job)
                    self._ended[job] = state
                elif self._is_submitting:
                    self._early[job] = state
            self._changed.notify_all()


def _read(client: Client, owner: str, cursor: str, seconds: float = 0.0) -> ChangesPage:
    return client.read_changes(ChangesQuery(cursor, wait=seconds, owner=owner))
