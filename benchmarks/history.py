"""Old jobs on their way out of the hot table, and looking for them afterwards: SQLite, `synchronous=FULL`."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.figure import Figure, figure
from benchmarks.filled import count_jobs
from pilotage.services.retention import RULES, new_pace, run_slice
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.connection import WriterConnection
from pilotage.store.engine.sqlite import open_writer
from pilotage.store.tables import listing
from pilotage.store.tables.selections import JobSelection, Viewer

OWNERS, SUBMISSION = 50, 100
SUMMARY = "jobs/s out of the hot table, of the writer's time: a million that have ended; pages of them"

QUESTIONS: dict[str, tuple[JobSelection, Viewer]] = {
    "one's own": (JobSelection(), Viewer("owner 7")),
    "one's failed ones": (JobSelection(states=["Failed"]), Viewer("owner 7")),
    "a submission": (JobSelection(submission=508), Viewer("owner 7")),
    "all failed ones": (JobSelection(states=["Failed"]), Viewer("", everything=True)),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1_000_000, help="jobs that have ended")


def run(asked: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-history-") as folder:
        path = Path(folder) / "history.db"
        engine = sqlite_engine(path)
        upgrade(engine)
        engine.dispose()
        connection = open_writer(path)
        _fill(connection, asked.jobs)
        moved, whole = _all(connection, "hot")
        pages = {
            name: _median(lambda question=one: _page(connection, *question))
            for name, one in QUESTIONS.items()
        }
        counts = _median(lambda: listing.counts(connection, JobSelection(), Viewer("owner 7")))
        forgotten, _ = _all(connection, "jobs")
        connection.close()
    notes = {
        "a slice": f"{_told(moved)}; with its commit {_told(whole)}",
        "a slice that forgets": _told(forgotten),
        "a page of 100": ", ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in pages.items()),
        "counts of one's own": f"{counts * 1000:.1f} ms",
    }
    return figure("history", "jobs/s of the writer's time", [asked.jobs / sum(whole)], {}, notes)


def _fill(connection: WriterConnection, jobs: int) -> None:
    connection.begin()
    connection.execute(
        "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, pilot_type, processors, memory, submitted,"
        " hostname) VALUES (1, 's', 's', 0, 'Done', 'here', 'local', 'generic', 1, 0, 1.0, 'node')"
    )
    connection.executemany(
        "INSERT INTO submissions (id, owner, grp, submitted, description, inputs, names, job_name, job_group,"
        " job_type, queue_id, first_job, count, warnings)"
        " VALUES (?, ?, ?, 1, '{}', '[]', '[]', 'name', 'group', 'User', 1, ?, ?, '[]')",
        (
            (n + 1, f"owner {n % OWNERS}", f"group {n % 5}", n * SUBMISSION + 1, SUBMISSION)
            for n in range(jobs // SUBMISSION + 1)
        ),
    )
    connection.executemany(
        "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, epoch, attempt, finished_epoch,"
        " finished_digest, exit_code, submitted, started, ended, last_event, final_state, owner)"
        " VALUES (?1, ?2, 1, ?3, 1, 1, 1, 1, '0123456789abcdef', 0, 1, 2, ?4, ?1, ?3, ?5)",
        (
            (
                *(job, 1 + job // SUBMISSION, "Failed" if job % 487 == 0 else "Done", 3 + job * 0.01),
                f"owner {job // SUBMISSION % OWNERS}",
            )
            for job in range(1, jobs + 1)
        ),
    )
    connection.executemany(
        "INSERT INTO attempts (job_id, epoch, attempt, pilot_id, started, ended, outcome, owner, grp, site)"
        " VALUES (?, 1, 1, 1, 2, ?, 'applied', 'o', 'g', 'here')",
        ((job, 3 + job * 0.01) for job in range(1, jobs + 1)),
    )
    count_jobs(connection)
    connection.commit()


def _all(connection: WriterConnection, name: str) -> tuple[list[float], list[float]]:
    """Seconds of each slice until nothing is left: of its statements, and with the commit."""
    [rule] = [one for one in RULES if one.name == name]
    pace = new_pace(time.perf_counter)
    statements, whole = [], []
    while True:
        begin = time.perf_counter()
        connection.begin()
        done = run_slice(connection, rule, [], 1e9, 1e9, pace)
        statements.append(time.perf_counter() - begin)
        connection.commit()
        whole.append(time.perf_counter() - begin)
        if done.last:
            return statements, whole


def _page(connection: WriterConnection, selection: JobSelection, viewer: Viewer) -> None:
    first = listing.jobs(connection, selection, viewer, 0, 50)
    listing.jobs(connection, selection, viewer, first[-1].id, 50)


def _median(ask: Callable[[], object], times: int = 15) -> float:
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        ask()
        found.append(time.perf_counter() - begin)
    return sorted(found)[times // 2]


def _told(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    parts = (ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1])
    return "p50 {:.1f} ms, p99 {:.1f} ms, the longest {:.1f} ms".format(*(part * 1000 for part in parts))
