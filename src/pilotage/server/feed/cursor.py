"""Cursors of the change feed, as clients keep them."""

from __future__ import annotations

import re
from typing import NamedTuple

from pilotage.core.errors import InvalidInput
from pilotage.store.tables.feed import LogPosition

_TEXT = re.compile(r"(\d{1,9})\.(\d{1,19})\.(\d{1,19})\.(\d{1,9})\.(\d{1,19})\.(\d{1,19})\.(\d{1,12})")


class StreamPosition(NamedTuple):
    """A change of one log, and everything before it."""

    log: LogPosition
    entry: int
    """Entries of that row of the log that were told."""


class FeedCursor(NamedTuple):
    """Everything told so far: a position in the log of jobs and one in that of requests."""

    incarnation: int
    """The database's: a restored one has other changes."""
    jobs: StreamPosition
    requests: StreamPosition
    at: int
    """Seconds since 1970: all changes of both logs before it were told."""

    def __str__(self) -> str:
        jobs, requests = self.jobs, self.requests
        numbers = (self.incarnation, *jobs.log, jobs.entry, *requests.log, self.at)
        return ".".join(map(str, numbers))


def parse_cursor(text: str) -> FeedCursor:
    """The cursor that was written as this text."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"{text[:60]!r} is no cursor", hint="use the `cursor` of a page, or none", field="after"
        )
    incarnation, xid, id_, entry, request_xid, request_id, at = map(int, match.groups())
    requests = StreamPosition(LogPosition(request_xid, request_id), 1)
    return FeedCursor(incarnation, StreamPosition(LogPosition(xid, id_), entry), requests, at)
