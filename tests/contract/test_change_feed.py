"""The change feed over each store: random writers, and readers that come back with the cursor that they kept.

Nothing is missed, nothing comes twice, and each reader sees the changes of one writer in their order. On PostgreSQL two
servers write, and commit in another order than they began.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest

from pilotage.server.feed.change_feed import ChangeFeed
from pilotage.server.feed.cursor import FeedCursor, StreamPosition, parse_cursor
from pilotage.server.feed.log_reader import ENTRIES
from pilotage.store.engine.connection import Connection, WriterConnection
from pilotage.store.tables.feed import FeedRow
from tests.contract.stores import Store, fill

Answer = TypeVar("Answer")

EVENT = (
    "INSERT INTO events (id, at, kind, actor, old, new, detail, jobs)"
    " VALUES (?, 1.0, 'moved', 'server', '', ?, '', ?)"
)
REQUEST_EVENT = (
    "INSERT INTO request_events (request_id, at, actor, kind, new) VALUES (1, 1.0, 'server', 'state', ?)"
)
JOBS = 4


class WriterOfBlock:
    """A server that writes events with ids of its own block."""

    def __init__(self, connection: WriterConnection, block: int) -> None:
        self._connection = connection
        self._next = block
        self._open: list[str] = []
        self.told: list[str] = []
        """The states that it has committed, each another text."""

    def write(self, state: str, jobs: int = 1) -> None:
        """Write a change in the present transaction."""
        if not self._open:
            self._connection.begin()
        entries = [[1 + job % JOBS, 1, 0] for job in range(jobs)]
        self._connection.execute(EVENT, (self._next, state, json.dumps(entries)))
        self._open += [state] * jobs
        self._next += 1

    def end(self, *, commit: bool) -> None:
        if self._open:
            self._connection.commit() if commit else self._connection.rollback()
            self.told += self._open if commit else []
            self._open = []


class Reader:
    """A client that keeps nothing but its last cursor, as a text."""

    def __init__(self, cursor: FeedCursor) -> None:
        self._text = str(cursor)
        self.seen: list[str] = []

    async def read(self, feed: FeedOfStore, most: int) -> int:
        cursor = parse_cursor(self._text)
        rows, end, _ = await feed.changes(cursor.jobs, of_requests=False)
        if len(rows) > most:
            rows = rows[:most]
            end = StreamPosition(rows[-1].log, rows[-1].entry)
        self.seen += [row.state for row in rows]
        self._text = str(cursor._replace(jobs=end))
        return len(rows)


@pytest.fixture
def writers(store: Store, connection: WriterConnection) -> Iterator[list[WriterOfBlock]]:
    fill(connection)
    made = [WriterOfBlock(connection, 1_000_000)]
    other = store.open_writer() if store.name == "postgresql" else None
    if other is not None:
        made.append(WriterOfBlock(other, 500_000))
    yield made
    for writer in made:
        writer.end(commit=False)
    if other is not None:
        other.close()


class FeedOfStore:
    """A feed with the readers of a store."""

    def __init__(self, store: Store) -> None:
        self.feed = ChangeFeed()
        self._readers = store.readers

    async def read(self, query: Callable[[Connection], Answer]) -> Answer:
        return query(self._readers.connection())

    async def advance(self) -> None:
        await self.feed.advance(self.read)

    async def changes(
        self, position: StreamPosition, *, of_requests: bool
    ) -> tuple[list[FeedRow], StreamPosition, bool]:
        return await self.feed.changes(self.read, position, of_requests=of_requests)

    async def newest(self) -> FeedCursor:
        of_jobs, of_requests = self.feed.of_jobs, self.feed.of_requests
        return FeedCursor(1, await of_jobs.newest(self.read), await of_requests.newest(self.read), 1)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_missed_and_nothing_comes_twice(
    store: Store, writers: list[WriterOfBlock], seed: int
) -> None:
    rng = random.Random(seed)

    async def history() -> None:
        feed = FeedOfStore(store)
        begin = await feed.newest()
        readers = [Reader(begin) for _ in range(3)]
        for step in range(150):
            writer = rng.choice(writers)
            act = rng.random()
            if act < 0.4:
                writer.write(f"s{step}", rng.choice((1, 1, 3)))
            elif act < 0.6:
                writer.end(commit=rng.random() < 0.8)
            elif act < 0.7:
                await feed.advance()
            elif act < 0.75:
                feed.feed.forget()
            else:
                await rng.choice(readers).read(feed, rng.choice((1, 2, 100)))
        for writer in writers:
            writer.end(commit=True)
        await feed.advance()
        late = Reader(begin)
        for reader in (*readers, late):
            while await reader.read(feed, 100):
                pass
            assert sorted(reader.seen) == sorted(state for writer in writers for state in writer.told)
            for writer in writers:
                mine = set(writer.told)
                assert [state for state in reader.seen if state in mine] == writer.told
        assert [reader.seen for reader in readers] == [late.seen] * 3, "all see one order"

    asyncio.run(history())


def test_a_change_of_very_many_jobs_comes_in_parts(store: Store, writers: list[WriterOfBlock]) -> None:
    async def history() -> None:
        feed = FeedOfStore(store)
        reader = Reader(await feed.newest())
        jobs = 3 * ENTRIES + 7
        writers[0].write("Killed", jobs)
        writers[0].end(commit=True)
        reads = 0
        while await reader.read(feed, 10_000):
            reads += 1
        assert len(reader.seen) == jobs
        assert reads > 3

    asyncio.run(history())


def test_listeners_are_woken_by_changes_of_their_owner_or_submission_only(
    store: Store, writers: list[WriterOfBlock], connection: Any
) -> None:
    [(submission, owner)] = connection.execute("SELECT id, owner FROM submissions")

    async def history() -> None:
        feed = FeedOfStore(store)
        with feed.feed.listening(), ExitStack() as stack:
            await feed.advance()
            awaited = (owner, "nobody", "", submission, submission + 1)
            woken = [stack.enter_context(feed.feed.next_change(one)) for one in awaited]
            writers[0].write("Done")
            writers[0].end(commit=True)
            await feed.advance()
            assert [one.done() for one in woken] == [True, False, True, True, False]
            feed.feed.wake()  # the server stops
            assert all(one.done() for one in woken)

    asyncio.run(history())


def test_changes_of_requests(store: Store, connection: WriterConnection) -> None:
    async def history() -> list[FeedRow]:
        feed = FeedOfStore(store)
        begin = (await feed.newest()).requests
        connection.begin()
        for state in ("acquired", "", "running"):
            connection.execute(REQUEST_EVENT, (state,))
        connection.commit()
        rows, _, more = await feed.changes(begin, of_requests=True)
        assert not more
        return rows

    columns = {
        name: "1" if kind.upper() in ("INTEGER", "BIGINT", "FLOAT", "DOUBLE PRECISION", "SMALLINT") else "''"
        for name, kind in _required_columns(store, "requests")
    }
    columns |= {"id": "1", "owner": "'ada'", "grp": "'lab'"}
    connection.execute(f"INSERT INTO requests ({', '.join(columns)}) VALUES ({', '.join(columns.values())})")
    assert [(row.kind, row.id, row.state, row.owner) for row in asyncio.run(history())] == [
        ("request", 1, "acquired", "ada"),
        ("request", 1, "running", "ada"),
    ]


def _required_columns(store: Store, table: str) -> list[tuple[str, str]]:
    import sqlalchemy as sa

    return [
        (column["name"], str(column["type"]))
        for column in sa.inspect(store.engine).get_columns(table)
        if not column["nullable"] and column.get("default") is None
    ]
