"""Reads changes from the event logs in slices that hold up no event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from pilotage.server.feed.cursor import StreamPosition
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import feed
from pilotage.store.tables.feed import FeedRow, LogRow

Answer = TypeVar("Answer")

LOG_ROWS = 100
"""Rows of a log in one statement."""
ENTRIES = 500
"""Jobs whose facts are read in one statement."""
KNOWN_OWNERS = 20_000
"""Submissions whose owners are kept in memory."""


class Read(Protocol):
    """Runs a short query on a connection for reading."""

    def __call__(self, query: Callable[[Connection], Answer], /) -> Awaitable[Answer]: ...


class LogSlice(NamedTuple):
    """The changes of one part of a log."""

    rows: list[FeedRow]
    end: StreamPosition
    more: bool
    """Whether further changes may follow at once."""


@dataclass(slots=True)
class LogReader:
    """Reads one log. Several readers may share the owners."""

    of_requests: bool
    owners: dict[int, tuple[str, str]]
    """Owner and group by submission or request."""

    async def newest(self, read: Read) -> StreamPosition:
        """The position behind all committed changes."""
        log = await read(lambda connection: feed.newest(connection, of_requests=self.of_requests))
        return StreamPosition(log, feed.MAX_ENTRIES)

    async def after(self, read: Read, position: StreamPosition) -> LogSlice:
        """The next changes after a position; none of them where `rows` is empty and `more` is False."""
        rows = await read(
            lambda connection: feed.read_log(connection, position.log, LOG_ROWS, of_requests=self.of_requests)
        )
        changes: list[FeedRow] = []
        end = position
        for row in rows:
            done = position.entry if row.log == position.log else 0
            entries = list(enumerate(feed.entries_of(row), 1))
            end = max(end, StreamPosition(row.log, 0))
            for start in range(done, len(entries), ENTRIES):
                some = entries[start : start + ENTRIES]
                changes += await self._changes(read, row, some)
                await asyncio.sleep(0)  # queries may run in the event loop
                end = StreamPosition(row.log, some[-1][0])
                if len(changes) >= ENTRIES:
                    return LogSlice(changes, end, more=True)
        return LogSlice(changes, end, more=len(rows) == LOG_ROWS)

    async def _changes(
        self, read: Read, row: LogRow, entries: list[tuple[int, tuple[int, int]]]
    ) -> list[FeedRow]:
        if self.of_requests:
            return await self._changes_of_requests(read, row, entries)
        if row.kind == "submitted":
            return await self._new_submission(read, row, entries[0][0], *entries[0][1])
        if not row.new:
            return []
        jobs = [job for _, (job, _) in entries]
        facts = await read(lambda connection: feed.job_facts(connection, jobs))
        await self._learn(read, "submissions", [fact.submission for fact in facts.values()])
        changes = []
        for entry, (job, epoch) in entries:
            fact = facts.get(job)
            if fact is not None and fact.submission in self.owners:
                now = (fact.state, fact.epoch) == (row.new, epoch)
                code = fact.exit_code if now else None
                place = (row.log, entry, row.at, "job", job, fact.submission, row.new, epoch, code, 1)
                changes.append(FeedRow(*place, *self.owners[fact.submission]))
        return changes

    async def _new_submission(
        self, read: Read, row: LogRow, entry: int, first: int, count: int
    ) -> list[FeedRow]:
        submission = int(row.detail.rpartition(" ")[2])
        await self._learn(read, "submissions", [submission])
        if submission not in self.owners:
            return []
        place = (row.log, entry, row.at, "submission", submission, first, row.new, 0, None, count)
        return [FeedRow(*place, *self.owners[submission])]

    async def _changes_of_requests(
        self, read: Read, row: LogRow, entries: list[tuple[int, tuple[int, int]]]
    ) -> list[FeedRow]:
        [(entry, (request, _))] = entries
        # Other events tell the states of elements.
        if not row.new or row.kind not in ("submit", "state"):
            return []
        await self._learn(read, "requests", [request])
        if request not in self.owners:
            return []
        place = (row.log, entry, row.at, "request", request, 0, row.new, 0, None, 1)
        return [FeedRow(*place, *self.owners[request])]

    async def _learn(self, read: Read, table: str, ids: list[int]) -> None:
        """Read the owners that are not known yet."""
        missing = sorted({id_ for id_ in ids if id_ not in self.owners})
        if missing:
            learnt = await read(lambda connection: feed.owners_of(connection, table, missing))
            if len(self.owners) + len(learnt) > KNOWN_OWNERS:
                self.owners.clear()
            self.owners.update(learnt)
