"""The event log: each transition of a job, with its time and actor, written in the same transaction.

With the events of its transitions, a transaction writes the changes of the counters of jobs.

Equal transitions of one transaction share a row. A job points to its last event, and each event to the job's previous
event. So the history of a job is read without an index.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field

import msgspec

from pilotage.core.ids import JobId, PilotId
from pilotage.store.cluster.id_allocator import IdAllocator
from pilotage.store.engine.bulk_statements import insert
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import job_counts
from pilotage.store.tables.job_counts import CountChange

_EVENTS = insert("events", ("id", "at", "kind", "actor", "old", "new", "detail", "jobs"))


def last_event(connection: Connection) -> int:
    """The highest id of an event; 0: there is no event."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0])


SEVERAL_PILOTS = "pilots"
"""The actor of an event that several pilots caused. Its entries name the pilot of each job."""


@dataclass(slots=True)
class EventBatch:
    """The events of one transaction. Ids used by a rolled-back transaction are not used again."""

    ids: IdAllocator
    at: float
    actor: str
    _rows: dict[tuple[str, str, str, str], tuple[int, list[tuple[int, ...]], list[int]]] = field(
        default_factory=dict
    )
    """Id, entries of jobs, and submission of each entry; by kind, old state, new state and detail."""

    def add(
        self,
        kind: str,
        old: str,
        new: str,
        job: JobId,
        submission: int,
        epoch: int,
        previous: int,
        detail: str = "",
        pilot: PilotId | None = None,
    ) -> int:
        """Add a transition of `job`; returns the event's id, to be stored as the job's `last_event`.

        `pilot` is given when the actor is `SEVERAL_PILOTS`.
        """
        key = (kind, old, new, detail)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = (self.ids.next(), [], [])
        row[1].append((job, epoch, previous) if pilot is None else (job, epoch, previous, pilot))
        row[2].append(submission)
        return row[0]

    def discard(self, kind: str, jobs: Container[int]) -> None:
        """Remove unwritten events of this kind for these jobs: the transitions did not happen."""
        for key, (id_, moved, submissions) in list(self._rows.items()):
            if key[0] == kind:
                left = [pair for pair in zip(moved, submissions, strict=True) if pair[0][0] not in jobs]
                if left:
                    self._rows[key] = (id_, [entry for entry, _ in left], [of_job for _, of_job in left])
                else:
                    del self._rows[key]

    def write(self, connection: Connection) -> None:
        if self._rows:
            at, actor, encode = self.at, self.actor, msgspec.json.encode
            connection.execute_bulk_later(
                _EVENTS,
                [
                    (id_, at, kind, actor, old, new, detail, encode(jobs).decode())
                    for (kind, old, new, detail), (id_, jobs, _) in self._rows.items()
                ],
            )
            job_counts.append(
                connection,
                [
                    CountChange.of(old, new, Counter(submissions))
                    for (_, old, new, _), (_, _, submissions) in self._rows.items()
                ],
            )
            self._rows.clear()


def record(
    connection: Connection,
    ids: IdAllocator,
    *,
    at: float,
    kind: str,
    actor: str,
    detail: str,
    jobs: str = "[]",
    old: str = "",
    new: str = "",
) -> int:
    """Write one event about a submission, a pilot or the policy; returns its id."""
    id_ = ids.next()
    connection.execute_bulk_later(_EVENTS, [(id_, at, kind, actor, old, new, detail, jobs)])
    return id_


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    kind: str
    actor: str
    old: str
    new: str
    epoch: int
    detail: str


def history(connection: Connection, job: JobId, last_event: int) -> list[Event]:
    """The events of a job, oldest first."""
    events: list[Event] = []
    event_id = last_event
    while event_id:
        row = connection.execute(
            "SELECT at, kind, actor, old, new, detail, jobs FROM events WHERE id = ?", (event_id,)
        ).fetchone()
        if row is None:
            break
        at, kind, actor, old, new, detail, jobs = row
        epoch, event_id, pilot = _job_entry(json.loads(jobs), job)
        if actor == SEVERAL_PILOTS:
            actor = f"pilot:{pilot}"
        events.append(Event(at, kind, actor, old, new, epoch, detail))
    return events[::-1]


def _job_entry(jobs: list[list[int] | int], job: JobId) -> tuple[int, int, int]:
    """(epoch, previous event, pilot) of `job` in the list of one event; zeros for a submission's [first, count]."""
    for entry in jobs:
        if isinstance(entry, list) and entry[0] == job:
            return entry[1], entry[2], entry[3] if len(entry) > 3 else 0
    return 0, 0, 0
