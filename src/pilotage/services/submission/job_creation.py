"""Creates the jobs of accepted chunks, a few per transaction. All jobs are created here.

A chunk is a set of parameter rows stored by one transaction. Acceptance is atomic; the jobs are created later, after
a crash by the next server. So no transaction blocks the others for long.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.parametric import differs_per_job, fill_placeholders
from pilotage.core.jobs.per_job_inputs import RERUN_COLUMN, decode_file, rerun_jobs
from pilotage.core.jobs.states import JobState
from pilotage.core.slice_pace import SlicePace
from pilotage.services.pool.records import SubmissionFacts
from pilotage.services.pool.state import Pool
from pilotage.services.submission.gates import insert_paired_gates, state_of_new_jobs
from pilotage.services.submission.superseding import supersede
from pilotage.store.tables import chains
from pilotage.store.tables import chunks as chunk_rows
from pilotage.store.tables import submissions as rows
from pilotage.store.tables.chunks import ChunkRow
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.submissions import MAX_CHUNK_BYTES, MAX_CHUNK_ROWS, max_rows_per_chunk

AIM = 0.002
"""Target seconds for creating jobs in one transaction on SQLite. With its commit, no write takes over 5 ms."""
POSTGRESQL_TARGET = 0.1
"""Target seconds on PostgreSQL, which allows concurrent writers but adds round trips: about one chunk."""
SIZE = 250
"""Jobs per transaction before the first measurement."""
FEWEST, MOST = 20, MAX_CHUNK_ROWS

_encode = msgspec.json.Encoder().encode


def new_pace(clock: Callable[[], float] | None = None, aim: float = AIM) -> SlicePace:
    """The pace of transactions that create jobs. `clock` returns monotonic seconds; None: the size is constant."""
    return SlicePace(aim, clock, first=SIZE, least=FEWEST, most=MOST)


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """The parameter rows of one chunk, each as compact JSON. Jobs without parameters have a `count` but no texts."""

    texts: tuple[str, ...]
    count: int
    files: tuple[str, ...] = ()
    """The digests of the input files that the rows name, without duplicates."""

    @property
    def text(self) -> str:
        return f"[{','.join(self.texts)}]"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def encoded(parameters: Sequence[Sequence[Any]]) -> list[str]:
    return [_encode(row).decode() for row in parameters]


def files_named(parameters: Sequence[Sequence[Any]], places: Sequence[int]) -> tuple[str, ...]:
    """The digests of the input files in these columns of the rows, without duplicates."""
    return tuple(dict.fromkeys(decode_file(row[place]).digest for row in parameters for place in places))


def cut(parameters: Sequence[Sequence[Any]], count: int, places: Sequence[int] = ()) -> Iterator[ChunkRows]:
    """The rows of a submission in chunks, at least one, each small enough for one transaction.

    A client that sends rows in chunks splits them in the same way, so repeated rows are recognised. `places` are the
    columns with input files.
    """
    begun = 0
    part: list[str] = []
    size, most = 2, max_rows_per_chunk(len(places))
    for place, text in enumerate(encoded(parameters)):
        length = len(text.encode())
        if part and (len(part) == most or size + length > MAX_CHUNK_BYTES):
            yield ChunkRows(tuple(part), len(part), files_named(parameters[begun:place], places))
            begun, part, size = place, [], 2
        part.append(text)
        size += length + 1
    yield ChunkRows(tuple(part), len(part) if part else count, files_named(parameters[begun:], places))


@dataclass(slots=True)
class JobCreator:
    """Creates the jobs of an accepted submission, or of one of its chunks, a few per transaction.

    Its progress is only in the store: two creators may work on the same chunk, if a client repeats it before the first
    answer.
    """

    submission: SubmissionId
    number: int | None = None
    """The number of the chunk; None: all chunks."""
    pace: SlicePace | None = None
    rows: ChunkRows | None = None
    """The rows of the chunk `number`, if they are in memory."""
    _held: tuple[int, tuple[str, ...]] | None = None

    def step(self, pool: Pool, tx: Transaction) -> bool:
        """Create the next jobs. Returns whether all jobs exist."""
        chunk = self._next(tx)
        if chunk is None:
            return True
        pace = self.pace or new_pace()
        count = min(pace.size, chunk.count - chunk.made)
        pace.measured(count, lambda: self._create(pool, tx, chunk, count))
        if chunk.made + count < chunk.count or self._next(tx) is not None:
            return False
        # Conditions on this submission have waited until all of its jobs exist.
        pool.jobs.dependants_due()
        return True

    def _create(self, pool: Pool, tx: Transaction, chunk: ChunkRow, count: int) -> None:
        made = chunk.made + count
        texts = self._texts(tx, chunk)[chunk.made : made]
        _insert(pool, tx, pool.jobs.submissions.get(tx, self.submission), chunk, texts or [None] * count)
        # Jobs of another submission may have been paired with these before they existed.
        chains.mark_created(tx.connection, chunk.first_job + chunk.made, count)
        chunk_rows.save_made(tx.connection, chunk, made)

    def _next(self, tx: Transaction) -> ChunkRow | None:
        """The next incomplete chunk, locked; or None."""
        if self.number is None:
            return chunk_rows.first_incomplete(tx.connection, self.submission, lock=True)
        chunk = chunk_rows.by_number(tx.connection, self.submission, self.number, lock=True)
        return chunk if chunk is not None and chunk.made < chunk.count else None

    def _texts(self, tx: Transaction, chunk: ChunkRow) -> tuple[str, ...]:
        if self.rows is not None:
            return self.rows.texts
        if self._held is None or self._held[0] != chunk.number:
            stored = chunk_rows.pending_rows(tx.connection, self.submission, chunk.number)
            raw = msgspec.json.decode(stored.encode(), type=list[msgspec.Raw])
            self._held = (chunk.number, tuple(bytes(text).decode() for text in raw))
        return self._held[1]


def create_immediately(pool: Pool, tx: Transaction, chunk: ChunkRow, given: ChunkRows) -> None:
    """Create all jobs of a chunk in the transaction that accepts it."""
    facts = pool.jobs.submissions.get(tx, chunk.submission)
    _insert(pool, tx, facts, chunk, given.texts or [None] * given.count)


def own_names(facts: SubmissionFacts, parameters: Sequence[str | None], first: int) -> list[str] | None:
    """The job names from id `first` on, with placeholders replaced; None: all have the name in the submission."""
    row = facts.row
    if not differs_per_job(row.job_name, row.names):
        return None
    count = row.expected or row.count
    names = []
    for job, text in enumerate(parameters, first):
        values = msgspec.json.decode(text) if text else []
        name = (
            fill_placeholders(row.job_name, row.names, values, job - row.first_job, count)
            if row.names
            else row.job_name
        )
        names.append(name.replace("%j", str(job)))
    return names


def _insert(
    pool: Pool, tx: Transaction, facts: SubmissionFacts, chunk: ChunkRow, parameters: Sequence[str | None]
) -> None:
    row, user_priority, count = facts.row, facts.description.user_priority, len(parameters)
    first = JobId(chunk.first_job + chunk.made)
    state = state_of_new_jobs(pool, tx, row, facts.description)
    event = record(
        tx.connection,
        pool.ids.events,
        at=chunk.accepted,
        kind="submitted",
        actor=f"user:{row.owner}",
        detail=f"submission {row.id}",
        jobs=json.dumps([first, count]),
        new=state,
    )
    names = own_names(facts, parameters, first)
    rows.insert_jobs(
        tx.connection, row, first, parameters, user_priority, event, chunk.accepted, names, state
    )
    if RERUN_COLUMN in row.names:
        again = rerun_jobs(row.names, [msgspec.json.decode(text or "[]") for text in parameters])
        supersede(pool, tx, row, again, chunk.accepted)
    if state is JobState.WAITING:
        pool.queues.add_jobs(tx, row.queue, user_priority, first, count)
    elif facts.description.after_each:
        place = chunk_rows.count_before(tx.connection, chunk) + chunk.made
        insert_paired_gates(pool, tx, row, facts.description, first, count, place)
