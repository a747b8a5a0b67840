"""The release of made jobs to the pool, and the roll-up of their ends, on a real SQLite file with durable commits.

The jobs are of many requests, with many sets of sites. The slices are those of the server's duties: each decides and
stores in one transaction. The counts of the jobs in the pool are read beside the writer, and are measured apart.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TypeVar

from benchmarks.figure import Figure, figure, part, told
from pilotage.core import policy as policies
from pilotage.core.jobs.description import JobDescription
from pilotage.core.requests.json_format import specification_to_text
from pilotage.core.requests.retries import RetryRules
from pilotage.core.requests.specification import Program, Specification, Step, StepSplitting
from pilotage.core.requests.states import RequestState
from pilotage.core.slice_pace import SlicePace
from pilotage.core.workqueue.roll_up import WORKING
from pilotage.server.duties.release import AIM
from pilotage.server.duties.row_by_row import SLICE_AIM
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.workqueue import roll_up
from pilotage.services.workqueue.programs import ProgramCache
from pilotage.services.workqueue.release import ReleaseRun
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.sqlite import SqliteReaders, open_writer
from pilotage.store.tables import (
    element_jobs,
    element_masks,
    instance,
    job_outcomes,
    location_sets,
    releasing,
    requests,
)
from pilotage.store.tables.element_masks import NewElementJob
from pilotage.store.tables.job_outcomes import JobEnd
from pilotage.store.tables.requests import RequestRow, StepRow
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer

SUMMARY = "jobs per second from made to waiting in the pool, of 200 requests and 60 sites"

SITES, LOCATIONS, AT_ONCE, PER_ELEMENT = 60, 50, 20_000, 1000
AIM_RATE = 20_000.0

Result = TypeVar("Result")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=200_000, help="made jobs")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)


def run(asked: argparse.Namespace) -> Figure:
    rates, slices, rolled, ends, counting = [], [], [], [], []
    groups = 0
    for number in range(asked.runs):
        with (
            tempfile.TemporaryDirectory(prefix="bench-release-") as name,
            closing(_Filled(Path(name), asked, number)) as filled,
        ):
            seconds, times, groups = filled.release()
            rates.append(asked.jobs / seconds)
            slices += times
            begun = time.perf_counter()
            filled.count()
            counting.append((time.perf_counter() - begun) * 1000)
            seconds, times = filled.roll_up(asked.jobs)
            rolled.append(asked.jobs / seconds)
            ends += times
    notes = {
        "case": f"{asked.jobs:,} made jobs of {asked.requests} requests in {groups:,} groups, durable commits",
        "slices": _told(slices),
        "roll-up": f"{told(sorted(rolled)[len(rolled) // 2])} ended jobs/s; slices {_told(ends)}",
        "count": f"{told(max(counting))} ms at most to count {asked.jobs:,} jobs in the pool, beside the writer",
    }
    return figure("release", "jobs/s", rates, {"aim": AIM_RATE}, notes)


def _told(times: list[float]) -> str:
    ordered = sorted(times)
    return f"median {told(part(ordered, 0.5))} ms, p99 {told(part(ordered, 0.99))} ms, longest {told(ordered[-1])} ms"


class _Filled:
    """A store with made jobs that all may be released."""

    def __init__(self, folder: Path, asked: argparse.Namespace, seed: int) -> None:
        path = folder / "pool.db"
        engine = sqlite_engine(path)
        upgrade(engine)
        engine.dispose()
        self.rng, self.now = Random(seed), 1e9
        self.connection = open_writer(path)
        self.writer = Writer(self.connection)
        self.writer.start()
        self.readers = SqliteReaders(path)
        self.writer.call(lambda tx: instance.create(tx.connection, "bench", self.now))
        policy = policies.parse(_policy())
        self.pool = self.writer.call(
            lambda tx: open_pool(
                tx, policy, version=1, incarnation=1, rng=self.rng, secrets=secrets, home_owner=""
            )
        )
        self.work_queue, self.programs = WorkQueue(self.pool), ProgramCache()
        self.sets = self.writer.call(lambda tx: list(self._location_sets(tx)))
        ids = [self._request(number) for number in range(asked.requests)]
        for first in range(0, asked.jobs, AT_ONCE):
            rows = [self._job(ids, number) for number in range(first, min(first + AT_ONCE, asked.jobs))]
            self.writer.call(lambda tx, rows=rows: element_masks.insert_jobs(tx.connection, rows))

    def close(self) -> None:
        self.writer.stop()
        self.readers.close()
        self.connection.close()

    def _location_sets(self, tx: Transaction) -> Iterator[int]:
        for _ in range(LOCATIONS):
            sites = self.rng.sample(range(SITES), self.rng.randint(1, 5))
            yield location_sets.id_of(tx.connection, [f"S{site}" for site in sites])

    def _request(self, number: int) -> int:
        program = Program(JobDescription(executable="/bin/true"))
        step = Step(
            "process",
            program,
            StepSplitting("FileBased", (("files_per_job", 1),)),
            type="Merge" if number % 5 == 0 else "Processing",
        )
        text = specification_to_text(Specification(f"r{number}", (step,)))
        row = RequestRow(
            *(0, f"r{number}", "alice", "physics", number % 20, "home", "", RequestState.RUNNING_OPEN, text),
            *(("*",), (), False, False, None, self.now, self.now),
        )
        stored = self.writer.call(lambda tx: requests.insert(tx.connection, row))
        rows = [StepRow(stored.id, 0, step.name, step.type, "Block", "{}", 1, None, (), (), None)]
        self.writer.call(lambda tx: requests.insert_steps(tx.connection, rows))
        return stored.id

    def _job(self, ids: list[int], number: int) -> NewElementJob:
        element = number // PER_ELEMENT
        return NewElementJob(
            *(element, 1, str(number), '{"files":[[1,0,100]]}', ids[element % len(ids)], 0, "made"),
            *(self.sets[element % len(self.sets)], "", 1, 100, 1, 10**6, self.now),
        )

    def release(self) -> tuple[float, list[float], int]:
        """Seconds of a pass, the times of its slices in ms, and the number of groups."""
        begun = time.perf_counter()
        run = ReleaseRun(self.work_queue, self.programs, self.count(), self.rng, self.made())
        times: list[float] = []
        while not self._timed(times, lambda tx: run.read_groups(tx, self.now)):
            pass
        pace, taken = SlicePace(AIM, time.perf_counter), 1
        while taken:
            size = pace.size
            taken = self._timed(
                times,
                lambda tx, size=size: pace.measured(size, lambda: run.release(tx, size, self.now)),
            )
        return time.perf_counter() - begun, times, len(run.groups)

    def count(self) -> list[element_jobs.ReleasedCount]:
        connection = self.readers.connection()
        return element_jobs.released_counts(connection, releasing.in_states(connection, sorted(WORKING)))

    def made(self) -> frozenset[int]:
        return frozenset(element_jobs.requests_with_made(self.connection))

    def roll_up(self, jobs: int) -> tuple[float, list[float]]:
        """Seconds to use the ends of all jobs, and the times of the slices in ms."""
        rows = self.connection.execute(
            "SELECT id, job_id FROM element_jobs WHERE state = 'released'"
        ).fetchall()
        assert len(rows) == jobs
        ends = [JobEnd(row[0], row[1], "Done", self.now, 0, "", "") for row in rows]
        self.writer.call(lambda tx: job_outcomes.append(tx.connection, ends))
        times: list[float] = []
        places = roll_up.places_of(self.work_queue, self.now)
        pace, begun = SlicePace(SLICE_AIM, time.perf_counter), time.perf_counter()
        while part := job_outcomes.after(self.connection, 0, pace.size):
            self._timed(
                times,
                lambda tx, part=part: pace.measured(
                    len(part),
                    lambda: roll_up.roll_up(tx, self.programs, RetryRules(), self.now, part, places),
                ),
            )
        return time.perf_counter() - begun, times

    def _timed(self, times: list[float], request: Callable[[Transaction], Result]) -> Result:
        def timed(tx: Transaction) -> Result:
            begun = time.perf_counter()
            result = request(tx)
            times.append((time.perf_counter() - begun) * 1000)
            return result

        return self.writer.call(timed)


def _policy() -> str:
    sites = "".join(
        f'[sites.S{site}]\n[ces.C{site}]\nsite = "S{site}"\ntype = "slurm"\nmax_running = 100000\n'
        for site in range(SITES)
    )
    users = '[groups.physics]\nshare = 1\n[users.alice]\ngroups = ["physics"]\n'
    return f"{users}{sites}[requests]\nmax_jobs_per_owner = 100000000\n"
