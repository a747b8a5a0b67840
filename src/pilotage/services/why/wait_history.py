"""The wait history: the main reason why each queue waits, recorded when it changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pilotage.core.ids import QueueId
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.services.pool.records import RecordedReason
from pilotage.services.pool.task_queues import TaskQueues
from pilotage.services.why.answer import WaitSnapshot, main_reason
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import wait_reasons
from pilotage.store.tables.wait_reasons import ReasonRow
from pilotage.store.writer.transaction import Transaction

FIRST_DELAY = 5.0
"""Seconds from the server's start to the first recording. By then directors and pilots have contacted the server."""

CHUNK_SIZE = 100
"""Rows written per transaction."""

MAX_EVALUATIONS = 500_000
"""Approximate evaluations of the predicate per recording. The next recording begins with the remaining queues."""


def last_reasons(connection: Connection) -> dict[QueueId, RecordedReason]:
    """The last recorded reason of each queue, from before this server's start."""
    return {
        queue: RecordedReason(reason, detail, began)
        for queue, reason, detail, began in wait_reasons.last_reasons(connection)
    }


@dataclass(slots=True)
class WaitRecorder:
    """Finds the queues with a changed main reason, round-robin. Its state may be lost without harm."""

    stopped_at: QueueId = field(default=QueueId(0))
    """The queue after which the last round stopped; 0: the round was complete."""
    _failures: list[tuple[QueueId, Exception]] = field(default_factory=list)

    def take_failures(self) -> list[tuple[QueueId, Exception]]:
        """The queues that could not be analysed since the last call, with their errors."""
        taken, self._failures = self._failures, []
        return taken

    def changes(self, snapshot: WaitSnapshot, connection: Connection, now: float) -> list[ReasonRow]:
        """The reasons that changed since the last recording."""
        return [row for rows in self.steps(snapshot, connection, now) for row in rows]

    def steps(
        self, snapshot: WaitSnapshot, connection: Connection, now: float
    ) -> Iterator[Sequence[ReasonRow]]:
        """`changes` queue by queue: each step takes some milliseconds at most."""
        evaluated = snapshot.analysis.asked
        begin, self.stopped_at = self.stopped_at, QueueId(0)
        done = begin
        for entry in _round(snapshot.analysis.entries, begin):
            if snapshot.analysis.asked - evaluated > MAX_EVALUATIONS:
                self.stopped_at = done
                break
            try:
                changed = _changed_reason(snapshot, connection, entry, now)
            except Exception as error:
                # A queue that cannot be analysed has no reason; the others have theirs.
                self._failures.append((entry.id, error))
                changed = []
            yield changed
            done = entry.id
        yield list(_emptied_queues(snapshot, now))


def _round(entries: Sequence[IndexedQueue], begin: QueueId) -> Iterator[IndexedQueue]:
    """The queues with waiting jobs, by id, beginning after `begin`."""
    ordered = sorted((entry for entry in entries if entry.waiting), key=lambda entry: entry.id)
    yield from (entry for entry in ordered if entry.id > begin)
    yield from (entry for entry in ordered if entry.id <= begin)


def _changed_reason(
    snapshot: WaitSnapshot, connection: Connection, entry: IndexedQueue, now: float
) -> list[ReasonRow]:
    verdict = main_reason(snapshot, connection, entry, now)
    recorded = snapshot.recorded_reasons.get(entry.id)
    if recorded is not None and (recorded.reason, recorded.detail) == (verdict.reason, verdict.detail):
        return []
    return [ReasonRow(entry.id, now, str(verdict.reason), verdict.detail)]


def _emptied_queues(snapshot: WaitSnapshot, now: float) -> Iterator[ReasonRow]:
    """A row without a reason for each recorded queue in which no job waits any more."""
    busy = {entry.id for entry in snapshot.analysis.entries if entry.waiting}
    for queue, recorded in snapshot.recorded_reasons.items():
        if recorded.reason and queue not in busy:
            yield ReasonRow(queue, now, "", "")


def write(queues: TaskQueues, tx: Transaction, rows: Sequence[ReasonRow]) -> None:
    """Store changed reasons. Call in the writer's thread, after `pool.queues.recorded_reasons` has been loaded.

    If they were forgotten since, another server may have recorded reasons. Then nothing is stored until the next look.
    """
    if queues.recorded_reasons is None:
        return
    # A queue that was deleted since the snapshot has no history any more.
    rows = [row for row in rows if row.queue in queues.identities]
    wait_reasons.insert_reasons(tx.connection, rows)
    for row in rows:
        recorded = queues.recorded_reasons.get(row.queue)
        began = recorded.began if recorded is not None and recorded.reason else row.since
        tx.put(queues.recorded_reasons, row.queue, RecordedReason(row.reason, row.detail, began))
