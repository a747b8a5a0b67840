"""The history of what each queue waited for: its main reason, written down when it changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pilotage.core.ids import QueueId
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.services.pool.records import WaitedReason
from pilotage.services.pool.state import Pool
from pilotage.services.why.answer import LOOKS, WaitSnapshot, verdict_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import wait_reasons
from pilotage.store.tables.wait_reasons import ReasonRow
from pilotage.store.writer.transaction import Transaction

PERIOD = LOOKS
"""Seconds between two looks."""

SOON = 5.0
"""The first look is so long after the start: directors and pilots have been heard by then."""

CHUNK = 100
"""So many rows are written in one turn of the writer."""

ASKED = 500_000
"""The predicate is asked about so often in one look; the queues that are left come first in the next one."""


def last_reasons(connection: Connection) -> dict[QueueId, WaitedReason]:
    """Where the history of an earlier server ended."""
    return {
        queue: WaitedReason(reason, detail, began)
        for queue, reason, detail, began in wait_reasons.last_reasons(connection)
    }


@dataclass(slots=True)
class WaitRecorder:
    """Goes round all queues. What it remembers may be forgotten."""

    stopped_at: QueueId = field(default=QueueId(0))
    """The queue after which the last look had to stop; 0: it came round."""

    def look(self, found: WaitSnapshot, connection: Connection, now: float) -> list[ReasonRow]:
        """What has changed since the last look."""
        return [row for rows in self.steps(found, connection, now) for row in rows]

    def steps(self, found: WaitSnapshot, connection: Connection, now: float) -> Iterator[Sequence[ReasonRow]]:
        """The same, queue by queue: each step takes some milliseconds at most."""
        asked = found.survey.asked
        begin, self.stopped_at = self.stopped_at, QueueId(0)
        done = begin
        for entry in _round(found.survey.entries, begin):
            if found.survey.asked - asked > ASKED:
                self.stopped_at = done
                break
            yield _changed(found, connection, entry, now)
            done = entry.id
        yield list(_emptied(found, now))


def _round(entries: Sequence[IndexedQueue], begin: QueueId) -> Iterator[IndexedQueue]:
    """The queues with waiting jobs, those after `begin` first."""
    ordered = sorted((one for one in entries if one.waiting), key=lambda one: one.id)
    yield from (one for one in ordered if one.id > begin)
    yield from (one for one in ordered if one.id <= begin)


def _changed(found: WaitSnapshot, connection: Connection, entry: IndexedQueue, now: float) -> list[ReasonRow]:
    verdict, known = verdict_of(found, connection, entry, now), found.waited.get(entry.id)
    if known is not None and (known.reason, known.detail) == (verdict.reason, verdict.detail):
        return []
    return [ReasonRow(entry.id, now, str(verdict.reason), verdict.detail)]


def _emptied(found: WaitSnapshot, now: float) -> Iterator[ReasonRow]:
    """Queues in which nothing waits any more."""
    busy = {one.id for one in found.survey.entries if one.waiting}
    for queue, known in found.waited.items():
        if known.reason and queue not in busy:
            yield ReasonRow(queue, now, "", "")


def chunks(rows: Sequence[ReasonRow]) -> Iterator[Sequence[ReasonRow]]:
    """What is written in one turn of the writer each."""
    for first in range(0, len(rows), CHUNK):
        yield rows[first : first + CHUNK]


def write(pool: Pool, tx: Transaction, rows: Sequence[ReasonRow]) -> None:
    """Store what has changed. In the writer's thread, after `pool.waited` has been read."""
    assert pool.waited is not None
    # A queue that has been forgotten meanwhile has no history any more.
    rows = [row for row in rows if row.queue in pool.identities]
    wait_reasons.note_reasons(tx.connection, rows)
    for row in rows:
        known = pool.waited.get(row.queue)
        began = known.began if known is not None and known.reason else row.since
        tx.put(pool.waited, row.queue, WaitedReason(row.reason, row.detail, began))
