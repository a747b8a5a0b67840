"""Counts and lists by state of a submission whose jobs are all in the hot table."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.figure import Figure
from benchmarks.filled import count_jobs, store_at
from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.queues.identity import QueueIdentity
from pilotage.store.engine.connection import WriterConnection
from pilotage.store.tables import chunks, listing, submissions
from pilotage.store.tables.selections import JobSelection, Viewer

if TYPE_CHECKING:
    from collections.abc import Generator

SUMMARY = "ms of a submission's counts and lists by state, with a million jobs that are not archived"

TIMES = 15
OWNER = "alice"
ONE = Viewer(OWNER)
QUESTIONS: dict[str, Callable[[WriterConnection], object]] = {
    "counts of a submission": lambda c: listing.counts(c, JobSelection(submission=1), ONE),
    "counts of one's own": lambda c: listing.counts(c, JobSelection(), ONE),
    "100 failed of a submission": lambda c: listing.jobs(
        c, JobSelection(submission=1, states=["Failed"]), ONE, 0, 100
    ),
    "100 failed of one's own": lambda c: listing.jobs(c, JobSelection(states=["Failed"]), ONE, 0, 100),
    "100 running of one's own": lambda c: listing.jobs(c, JobSelection(states=["Running"]), ONE, 0, 100),
    "100 waiting of one's own": lambda c: listing.jobs(c, JobSelection(states=["Waiting"]), ONE, 0, 100),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1_000_000, help="jobs of the submission")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")


def run(asked: argparse.Namespace) -> Figure:
    sizes = sorted({asked.jobs // 100, asked.jobs // 10, asked.jobs})
    times = {size: _measured(asked.store, size) for size in sizes}
    worst = max(QUESTIONS, key=lambda name: times[asked.jobs][name])
    ours, small = times[asked.jobs][worst], times[sizes[0]][worst]
    notes = {
        name: ", ".join(f"{times[size][name]:.2f} ms with {size:,}" for size in sizes) for name in QUESTIONS
    }
    notes["the slowest"] = worst
    limits = {f"with {sizes[0]:,} jobs": round(small, 2)}
    return Figure("lists", round(ours, 2), "ms", limits, round(ours / small, 2), [round(ours, 2)], notes)


def _measured(kind: str, jobs: int) -> dict[str, float]:
    """The median milliseconds of each question."""
    with _filled(kind, jobs) as connection:
        return {name: _median(lambda ask=ask: ask(connection)) for name, ask in QUESTIONS.items()}


@contextmanager
def _filled(kind: str, jobs: int) -> Generator[WriterConnection]:
    """One submission: a tenth of its jobs waits, a tenth has failed, the others are done."""
    with (
        TemporaryDirectory(prefix="bench-lists-") as folder,
        store_at(Path(folder), kind) as store,
        closing(store.open_writer()) as connection,
    ):
        connection.begin()
        queue = submissions.insert_queue(connection, QueueIdentity(OWNER, "g"), 0.0)
        row = submissions.SubmissionRow(
            SubmissionId(1), OWNER, "g", None, 1.0, "{}", "[]", (), "", "", "", queue, JobId(1), jobs, ()
        )  # fmt: skip
        submissions.insert(connection, row)
        chunk = chunks.ChunkRow(row.id, 0, "", row.first_job, jobs, 0, 1.0)
        chunks.insert(connection, chunk, "[]")
        chunks.save_made(connection, chunk, jobs)
        submissions.insert_jobs(connection, row, JobId(1), [None] * jobs, 1, 1, 1.0)
        connection.execute(
            "UPDATE jobs SET state = CASE WHEN id % 10 = 1 THEN 'Failed' ELSE 'Done' END, ended = id"
            " WHERE id % 10 <> 0"
        )
        connection.execute("UPDATE jobs SET final_state = state WHERE ended IS NOT NULL")
        count_jobs(connection)
        connection.commit()
        connection.execute("ANALYZE")
        yield connection


def _median(ask: Callable[[], object]) -> float:
    times = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        ask()
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)
