"""Attempts at jobs, and their results."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pilotage.core.ids import JobId, PilotId
from pilotage.core.jobs.states import GIVEN_BACK, TAKEN_AHEAD
from pilotage.store.engine.bulk_statements import RowWriter, delete, insert, update
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.rows import columns

SHOWN_OUTCOME = (
    f"CASE WHEN {{a}}ahead = 0 THEN coalesce({{a}}outcome, '') WHEN {{a}}outcome IS NULL THEN '{TAKEN_AHEAD}'"
    f" ELSE '{GIVEN_BACK}' END"
)
"""The outcome as people see it, as SQL; `a` is the prefix of the columns."""


class StartedAttempt(NamedTuple):
    """A confirmed attempt."""

    job: JobId
    epoch: int
    attempt: int
    pilot: PilotId
    at: float
    processors: int
    owner: str
    group: str
    site: str
    cpu_power: float
    ahead: int = 0
    """1: it was taken ahead, and its payload has not started."""
    ended: float | None = None
    """The same as `at` for an attempt that was taken ahead, so that nothing is booked."""


save_started = RowWriter[StartedAttempt](
    insert(
        "attempts",
        (
            "job_id",
            "epoch",
            "attempt",
            "pilot_id",
            "started",
            "processors",
            "owner",
            "grp",
            "site",
            "cpu_power",
            "ahead",
            "ended",
        ),
    )
)


NOT_TOLD, NEVER = 0.0, -1.0
"""Instead of the instant at which a payload started: nobody told it; or it did not start."""
_INSTANT = "double precision"
_BEGIN = "started = CASE WHEN ahead = 1 AND {begun} > started THEN {begun} ELSE started END"
"""A payload that was taken ahead starts at `begun`, and never before its confirm."""


class BegunAttempt(NamedTuple):
    """The start of the payload of an attempt that was taken ahead."""

    begun: float
    job: JobId
    epoch: int


save_begun = RowWriter[BegunAttempt](
    update(
        "attempts",
        ("begun", "job_id", "epoch"),
        f"{_BEGIN}, ahead = 0, ended = NULL",
        "job_id = {job_id} AND epoch = {epoch} AND ahead = 1 AND outcome IS NULL",
        begun=_INSTANT,
    )
)


class FinishedAttempt(NamedTuple):
    """The end of an attempt, with the measurements of its pilot."""

    at: float
    outcome: str
    exit_code: int | None
    failure: str
    message: str
    wall: float
    cpu: float
    max_rss: int
    job: JobId
    epoch: int
    begun: float = NOT_TOLD
    """When its payload started. It counts if the attempt was taken ahead and no start was told."""


MAX_DRIFT, DRIFT = 60.0, 1.05
"""Seconds, and factor, by which the time on a node may exceed the time by the server's clock."""
MAX_CORES = 4096
"""Cores that a payload can use at once."""
_SINCE = "CASE WHEN {ended} > attempts.started THEN {ended} - attempts.started ELSE 0 END"
_LONGEST = f"(({_SINCE}) * {DRIFT} + {MAX_DRIFT})"
"""The most wall time since the confirm, as SQL."""


def _at_most(value: str, bound: str) -> str:
    return f"CASE WHEN {value} > {bound} THEN {bound} ELSE {value} END"


save_finished = RowWriter[FinishedAttempt](
    update(
        "attempts",
        (
            *("ended", "outcome", "exit_code", "failure", "message", "wall", "cpu", "max_rss"),
            *("job_id", "epoch", "begun"),
        ),
        f"{_BEGIN}, ended = CASE WHEN ahead = 1 THEN {{ended}} ELSE coalesce(ended, {{ended}}) END, ahead = 0,"
        " outcome = {outcome}, exit_code = {exit_code}, failure = {failure},"
        f" message = {{message}}, wall = {_at_most('{wall}', _LONGEST)},"
        f" cpu = {_at_most('{cpu}', f'{_LONGEST} * {MAX_CORES}')}, max_rss = {{max_rss}}",
        "job_id = {job_id} AND epoch = {epoch}",
        begun=_INSTANT,
    )
)
"""An attempt that was interrupted before keeps its end, because its use was charged up to that time.

A pilot may claim any time: no more is stored than has passed since the confirm.
"""


class InterruptedAttempt(NamedTuple):
    """The end of an attempt without measurements. One that never began has no time that counts."""

    at: float
    outcome: str
    job: JobId
    epoch: int
    begun: float = NOT_TOLD
    """When its payload started, `NEVER` or `NOT_TOLD`."""


save_interrupted = RowWriter[InterruptedAttempt](
    update(
        "attempts",
        ("ended", "outcome", "job_id", "epoch", "begun"),
        f"{_BEGIN}, ended = CASE WHEN {{begun}} < 0 OR (ahead = 1 AND {{begun}} = 0) THEN started ELSE {{ended}} END,"
        " ahead = CASE WHEN {begun} < 0 THEN 1 WHEN {begun} > 0 THEN 0 ELSE ahead END, outcome = {outcome}",
        "job_id = {job_id} AND epoch = {epoch}",
        begun=_INSTANT,
    )
)


LEASE_OVER = "lease over"
"""The outcome of an attempt that ended with the lease of its pilot."""

RESTARTED = "pilot-restarted"
"""The outcome of an attempt whose pilot's batch job was started again."""


class ResumedAttempt(NamedTuple):
    """An attempt that was interrupted, and goes on."""

    job: JobId
    epoch: int


save_resumed = RowWriter[ResumedAttempt](
    update(
        "attempts",
        ("job_id", "epoch"),
        "ended = CASE WHEN ahead = 1 THEN ended END, outcome = NULL",
        "job_id = {job_id} AND epoch = {epoch}",
    )
)


class LapsedAttempt(NamedTuple):
    """An attempt that its pilot has not ended."""

    started: float
    counted: bool
    """It has cost its job a try."""
    ahead: bool
    """Its payload had not started, as far as its pilot told."""


def lapsed(connection: Connection, job: JobId, epoch: int, pilot: PilotId) -> LapsedAttempt | None:
    """The attempt of a pilot, if it ended with the pilot's lease or with its batch job alone."""
    sql = "SELECT started, outcome, ahead FROM attempts WHERE job_id = ? AND epoch = ? AND pilot_id = ?"
    row = connection.execute(sql, (job, epoch, pilot)).fetchone()
    if row is None or row[1] not in (LEASE_OVER, RESTARTED):
        return None
    return LapsedAttempt(row[0], row[1] == LEASE_OVER, bool(row[2]))


def pilot_of_attempt(connection: Connection, job: JobId, epoch: int) -> PilotId | None:
    """The pilot that confirmed this attempt; None: it was never confirmed."""
    sql = "SELECT pilot_id FROM attempts WHERE job_id = ? AND epoch = ?"
    row = connection.execute(sql, (job, epoch)).fetchone()
    return PilotId(row[0]) if row else None


def tries_of_pilot(connection: Connection, pilot: PilotId, among: Collection[int]) -> set[tuple[int, int]]:
    """(job, epoch) of all attempts of these jobs that a pilot confirmed."""
    condition, value = in_list(connection, "job_id", sorted(among))
    sql = f"SELECT job_id, epoch FROM attempts WHERE {condition} AND pilot_id = ?"
    return {(row[0], row[1]) for row in connection.execute(sql, (value, pilot))}


@dataclass(frozen=True, slots=True)
class Result:
    """The outputs of one attempt.

    `outputs`: (name, bytes) of uploaded files. `missing`: patterns without a matching file. `refused`: (name, reason)
    of matching files that were not stored.
    """

    job: JobId
    epoch: int
    stdout: bytes | None
    stderr: bytes | None
    outputs: list[tuple[str, int]]
    missing: list[str]
    refused: list[tuple[str, str]] = field(default_factory=list)


_RESULTS = insert(
    "results",
    ("job_id", "epoch", "stdout", "stderr", "outputs", "missing", "refused"),
    conflict=("job_id", "epoch"),
    otherwise="UPDATE",
)


def save_results(connection: Connection, results: Iterable[Result]) -> None:
    connection.execute_bulk_later(
        _RESULTS,
        [
            (r.job, r.epoch, r.stdout, r.stderr, *map(json.dumps, (r.outputs, r.missing, r.refused)))
            for r in results
        ],
    )


def result_of(connection: Connection, job: JobId, epoch: int) -> Result | None:
    sql = f"SELECT {_RESULT} FROM results WHERE job_id = ? AND epoch = ?"
    row = connection.execute(sql, (job, epoch)).fetchone()
    return None if row is None else _result(row)


def results_of(connection: Connection, epochs: Mapping[JobId, int]) -> dict[JobId, Result]:
    """The results of several jobs, by job. `epochs` says which attempt of each job is read."""
    condition, values = in_list(connection, "job_id", list(epochs))
    rows = connection.execute(f"SELECT {_RESULT} FROM results WHERE {condition}", (values,))
    return {row[0]: _result(row) for row in rows if row[1] == epochs[row[0]]}


_RESULT = columns(Result, job="job_id")


def _result(row: Sequence[Any]) -> Result:
    outputs = [(name, size) for name, size in json.loads(row[4])]
    refused = [(name, reason) for name, reason in json.loads(row[6])]
    return Result(row[0], row[1], row[2], row[3], outputs, json.loads(row[5]), refused)


def withdraw_result(connection: Connection, job: JobId, epoch: int) -> None:
    """Let the result of a Done job count no more: the job runs again. Its files stay until the next result."""
    sql = "UPDATE attempts SET outcome = 'redone' WHERE job_id = ? AND epoch = ? AND outcome = 'applied'"
    connection.execute(sql, (job, epoch))


_RESULTS_OF_JOB = delete("results", ("job_id",), "job_id = {job_id}")


def delete_results(connection: Connection, jobs: Iterable[JobId]) -> None:
    connection.execute_bulk_later(_RESULTS_OF_JOB, [(job,) for job in jobs])
