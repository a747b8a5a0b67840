"""Rows in chunks over HTTP, against the bare insertion of the same jobs into the same store.

The client is this process, the server another one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, figure
from benchmarks.processes import memory
from benchmarks.server import served
from pilotage.client import Client
from pilotage.core.ids import JobId, QueueId, SubmissionId
from pilotage.services.submission.job_creation import encoded
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.connection import WriterConnection
from pilotage.store.engine.sqlite import open_writer
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.tables import submissions
from pilotage.wire.submissions import MAX_CHUNK_ROWS

SUMMARY = "jobs/s from the client's call to all jobs waiting, durable"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=300_000, help="jobs of one submission")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--parameters", type=int, default=2, help="values of each job")
    parser.add_argument("--runs", type=int, default=3)


def run(asked: argparse.Namespace) -> Figure:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        address = _databases(stack, asked.store)
        limit = _bare_insertion(_bare(folder, address), asked.jobs, asked.parameters)
        client = stack.enter_context(served(folder, database=address[0] if address else ""))
        names = [f"p{place}" for place in range(asked.parameters)]
        # Nothing is to run meanwhile: no node has this memory.
        description = {
            "executable": "echo",
            "arguments": [f"%({name})s" for name in names],
            "memory": 10_000_000,
        }
        pid = json.loads((folder / "home" / "server.json").read_text())["pid"]
        before = memory(pid, "VmRSS")
        rates = []
        for _ in range(asked.runs):
            begun = time.perf_counter()
            client.submit_rows(description, _rows(asked.jobs, asked.parameters), names=names)
            rates.append(asked.jobs / (time.perf_counter() - begun))
        after, most = memory(pid, "VmRSS"), memory(pid, "VmHWM")
        notes = {
            "jobs": f"{asked.jobs:,} of {asked.parameters} values, {asked.store}",
            "server's memory": f"{before} MB before, {after} MB after, {most} MB at most",
            **_transactions(client),
        }
    peers = {"bare insertion into the same table, a commit for every 5,000 rows": limit}
    return figure("submit", "jobs/s", [round(rate) for rate in rates], peers, notes)


def _rows(jobs: int, values: int) -> Iterator[list[Any]]:
    return ([job, *(f"file-{place}-{job}.root" for place in range(1, values))] for job in range(jobs))


def _databases(stack: ExitStack, store: str) -> tuple[str, str] | None:
    """The addresses of two databases without jobs: the server's, and one to fill by hand; None on SQLite."""
    if store == "sqlite":
        return None
    from benchmarks.postgres import durable

    server = stack.enter_context(durable())
    return server.url(server.migrated()), server.url(server.migrated())


def _bare(folder: Path, address: tuple[str, str] | None) -> WriterConnection:
    if address is None:
        engine = sqlite_engine(folder / "bare.db")
        upgrade(engine)
        engine.dispose()
        return open_writer(folder / "bare.db")
    return DatabaseAddress.parse(address[1]).open_writer()


def _bare_insertion(connection: WriterConnection, jobs: int, values: int) -> float:
    row = submissions.SubmissionRow(
        SubmissionId(1), "a", "b", None, 1.0, "{}", "[]", (), "", "", "", QueueId(1), JobId(1), jobs, ()
    )  # fmt: skip
    texts = encoded(list(_rows(jobs, values)))
    begun = time.perf_counter()
    for first in range(0, jobs, MAX_CHUNK_ROWS):
        connection.begin()
        part = texts[first : first + MAX_CHUNK_ROWS]
        submissions.insert_jobs(connection, row, JobId(first + 1), part, 1, 1, 1.0)
        connection.commit()
    taken = time.perf_counter() - begun
    connection.close()
    return round(jobs / taken)


def _transactions(client: Client) -> dict[str, str]:
    with urllib.request.urlopen(f"{client.url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
    }
    commits, slow = found["pilotage_commits_total"], found["pilotage_slow_transactions_total"]
    busy = found["pilotage_busy_transactions_total"]
    work = found["pilotage_transactions_work_seconds_total"] / commits * 1000
    commit = found["pilotage_transactions_commit_seconds_total"] / commits * 1000
    longest = found["pilotage_longest_work_of_a_transaction_seconds"] * 1000
    whole = found["pilotage_longest_transaction_seconds"] * 1000
    return {
        "transactions": f"{commits:,.0f}, {work:.1f} ms each and {commit:.1f} ms for the commit",
        "longest": f"{longest:.1f} ms; {whole:.1f} ms with its commit and checkpoint",
        "above 5 ms": f"{slow:.0f} by the clock, {busy:.0f} by processor time",
    }
