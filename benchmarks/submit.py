"""Bulk submission over HTTP, against the bare insertion of the same rows."""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.figure import Figure, figure
from benchmarks.server import served
from pilotage.store.sqlite import open_writer
from pilotage.store.upgrade import sqlite_engine, upgrade


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of one submission")
    parser.add_argument("--runs", type=int, default=3)


def run(asked: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        with served(Path(folder)) as client:
            # Nothing is to run meanwhile: no node has this memory.
            description = {"executable": "true", "memory": 10_000_000}
            rates = []
            for _ in range(asked.runs):
                begun = time.perf_counter()
                client.submit(description, values=range(asked.jobs))
                rates.append(asked.jobs / (time.perf_counter() - begun))
        limit = _bare_insertion(Path(folder) / "bare.db", asked.jobs)
    peers = {"bare insertion into the same table, one transaction": limit}
    return figure("submit", "jobs/s", [round(rate) for rate in rates], peers, {"jobs": f"{asked.jobs:,}"})


def _bare_insertion(path: Path, jobs: int) -> float:
    engine = sqlite_engine(path)
    upgrade(engine)
    engine.dispose()
    sql = (
        "INSERT INTO jobs (id, submission_id, queue_id, state, user_priority, parameters, submitted, last_event)"
        " VALUES (?, 1, 1, 'Waiting', 1, ?, 0, 1)"
    )
    with closing(open_writer(path)) as connection:
        begun = time.perf_counter()
        connection.execute("BEGIN")
        connection.executemany(sql, ((job, f"[{job}]") for job in range(1, jobs + 1)))
        connection.execute("COMMIT")
        assert isinstance(connection, sqlite3.Connection)
        return round(jobs / (time.perf_counter() - begun))
