"""The tries at jobs, and their results."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pilotage.core.ids import JobId, PilotId


class Begun(NamedTuple):
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


def save_begun(connection: sqlite3.Connection, begun: Iterable[Begun]) -> None:
    sql = (
        "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, processors, owner, grp, site, cpu_power)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    connection.executemany(sql, begun)


class Closed(NamedTuple):
    """The end of a try, with what its pilot measured."""

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


def save_closed(connection: sqlite3.Connection, closed: Iterable[Closed]) -> None:
    """A try that was cut before keeps its end: its use was charged up to there."""
    sql = (
        "UPDATE attempts SET ended = coalesce(ended, ?), outcome = ?, exit_code = ?, failure = ?, message = ?,"
        " wall = ?, cpu = ?, max_rss = ? WHERE job_id = ? AND epoch = ?"
    )
    connection.executemany(sql, closed)


class Cut(NamedTuple):
    """The end of a try of which nothing was measured."""

    at: float
    outcome: str
    job: JobId
    epoch: int


def save_cut(connection: sqlite3.Connection, cut: Iterable[Cut]) -> None:
    connection.executemany("UPDATE attempts SET ended = ?, outcome = ? WHERE job_id = ? AND epoch = ?", cut)


def pilot_of(connection: sqlite3.Connection, job: JobId, epoch: int) -> PilotId | None:
    """Who has had this try; None if it was never confirmed."""
    sql = "SELECT pilot_id FROM attempts WHERE job_id = ? AND epoch = ?"
    row = connection.execute(sql, (job, epoch)).fetchone()
    return PilotId(row[0]) if row else None


@dataclass(frozen=True, slots=True)
class Result:
    """Outputs of one try. `outputs` are (name, bytes) of uploaded files."""

    job: JobId
    epoch: int
    stdout: bytes | None
    stderr: bytes | None
    outputs: list[tuple[str, int]]
    missing: list[str]


def save_results(connection: sqlite3.Connection, results: Iterable[Result]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO results (job_id, epoch, stdout, stderr, outputs, missing) VALUES (?, ?, ?, ?, ?, ?)",
        [(r.job, r.epoch, r.stdout, r.stderr, json.dumps(r.outputs), json.dumps(r.missing)) for r in results],
    )


def result_of(connection: sqlite3.Connection, job: JobId, epoch: int) -> Result | None:
    sql = "SELECT stdout, stderr, outputs, missing FROM results WHERE job_id = ? AND epoch = ?"
    row = connection.execute(sql, (job, epoch)).fetchone()
    if row is None:
        return None
    outputs = [(name, size) for name, size in json.loads(row[2])]
    return Result(job, epoch, row[0], row[1], outputs, json.loads(row[3]))


def delete_results(connection: sqlite3.Connection, jobs: Iterable[JobId]) -> None:
    connection.executemany("DELETE FROM results WHERE job_id = ?", [(job,) for job in jobs])
