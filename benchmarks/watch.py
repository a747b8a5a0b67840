"""One listing of a Slurm CE with many pilots: read, compared with the store's rows, and applied.

The duty is the server's own, in an event loop that also runs the writer, as with SQLite. Only the commands are played:
they print what Slurm's commands print, recorded in their form. In each listing some pilots have started, and some have
ended without a word.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from benchmarks.figure import Figure
from benchmarks.filled import Store, store_at
from pilotage.core import policy as policies
from pilotage.core.ids import PilotId
from pilotage.core.pilots.handover import SubmissionPhase
from pilotage.core.pilots.states import PilotState
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.runner import CommandResult
from pilotage.outside.batch.slurm.adapter import SlurmBatch
from pilotage.server.duties.batch_clients import OwnBatchClients
from pilotage.server.duties.ce import CeDuty
from pilotage.server.failing_rows import FailingRows
from pilotage.server.outside_calls import DirectCalls
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Connection
from pilotage.store.engine.sqlite import SqliteReaders
from pilotage.store.tables import instance, pilot_submissions, pilots
from pilotage.store.tables.pilots import NewPilot
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer

SUMMARY = (
    "milliseconds for one listing of a Slurm CE with 50,000 pilots, and how long it holds the event loop"
)

CE = "cluster"
CONFIGURATION = (
    "Configuration data as of 2026-11-22T07:05:45\nBOOT_TIME               = 2026-11-22T07:05:22\n"
)
WARM = 2
"""Listings before counting begins: the first writes why pilots wait, and the second finds the submissions settled."""

Answer = TypeVar("Answer")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pilots", type=int, default=50_000)
    parser.add_argument("--array", type=int, default=100, help="pilots of one submission")
    parser.add_argument(
        "--started", type=int, default=200, help="pilots that have started since the last listing"
    )
    parser.add_argument(
        "--ended", type=int, default=50, help="pilots that have ended without a word since then"
    )
    parser.add_argument("--listings", type=int, default=7)


def run(asked: argparse.Namespace) -> Figure:
    with (
        tempfile.TemporaryDirectory(prefix="bench-watch-") as folder,
        store_at(Path(folder), "sqlite") as store,
    ):
        site = _Site(store, asked)
        with _timed_callbacks() as loop_times:
            listings, between = asyncio.run(_measured(site, asked, loop_times))
        assert site.ended == len(site.cluster.ended), (site.ended, len(site.cluster.ended))
    total = median(cycle.total for cycle in listings)
    notes = {
        "pilots": f"{asked.pilots:,} in submissions of {asked.array}; in each listing {asked.started} have started and"
        f" {asked.ended} have ended",
        "event loop": f"{_in_loop(listings)} (in each listing)",
        "between listings": f"{_in_loop(between)} (in each cycle)",
        "listing": f"{len(site.cluster.listing()) / 1e6:.1f} MB",
    }
    runs = [round(cycle.total, 1) for cycle in listings]
    return Figure("watch", round(total, 1), "ms", {"aim": 2000.0}, round(total / 2000, 3), runs, notes)


@dataclass
class Cycle:
    """Milliseconds of one cycle of the duty."""

    total: float
    in_loop: float
    """Processor time of the event loop's thread."""
    longest: float
    """The longest time, by the clock, in which the loop did nothing else."""
    longest_work: float
    """The most processor time of the loop's thread at a stretch."""


def _in_loop(cycles: Sequence[Cycle]) -> str:
    used, work, longest = (
        median(getattr(cycle, name) for cycle in cycles) for name in ("in_loop", "longest_work", "longest")
    )
    return f"{used:.0f} ms of processor time; at a stretch {work:.1f} ms of it, {longest:.1f} ms by the clock"


@dataclass
class _LoopTimes:
    used: float = 0.0
    longest: float = 0.0
    longest_work: float = 0.0


@contextmanager
def _timed_callbacks() -> Iterator[_LoopTimes]:
    """Measure every callback of the event loop in this thread."""
    times, thread, run_callback = _LoopTimes(), threading.get_ident(), asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begun, used = time.perf_counter(), time.thread_time()
        run_callback(handle)
        if threading.get_ident() == thread:
            work = time.thread_time() - used
            times.used += work
            times.longest_work = max(times.longest_work, work)
            times.longest = max(times.longest, time.perf_counter() - begun)

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]
    try:
        yield times
    finally:
        asyncio.Handle._run = run_callback  # type: ignore[method-assign]


async def _measured(
    site: _Site, asked: argparse.Namespace, times: _LoopTimes
) -> tuple[list[Cycle], list[Cycle]]:
    """The cycles with a listing, and those between two listings."""
    site.writer.move_to_loop(asyncio.get_running_loop())
    duty, listings, between = site.duty(), list[Cycle](), list[Cycle]()
    try:
        for number in range(WARM + asked.listings):
            site.now += site.pool.policy.ces[CE].listing_period + 1
            site.cluster.change(asked.started, asked.ended)
            cycle = await _cycle(duty, times)
            quiet = await _cycle(duty, times)
            if number >= WARM:
                listings.append(cycle)
                between.append(quiet)
        site.ended = await site.writer.acall(lambda tx: _count_ended(tx.connection))
    finally:
        duty.close()
        site.writer.stop()
        site.readers.close()
        site.connection.close()
    return listings, between


async def _cycle(duty: CeDuty, times: _LoopTimes) -> Cycle:
    times.used = times.longest = times.longest_work = 0.0
    begun = time.perf_counter()
    await duty.cycle()
    total = time.perf_counter() - begun
    # The callback in which the cycle ended is measured at its end.
    await asyncio.sleep(0)
    return Cycle(total * 1000, times.used * 1000, times.longest * 1000, times.longest_work * 1000)


def _count_ended(connection: Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM pilots WHERE ended IS NOT NULL").fetchone()[0])


@dataclass
class _Cluster:
    """What Slurm's commands print: the `Runner` of the adapter."""

    array: int
    states: list[str]
    """Of each pilot."""
    rng: Random = field(default_factory=lambda: Random(7))
    ended: set[int] = field(default_factory=set)
    is_remote: bool = False

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = 60.0) -> CommandResult:
        if command[0] == "scontrol":
            return CommandResult(0, CONFIGURATION)
        assert command[0] == "squeue", command
        return CommandResult(0, self.listing())

    def close(self) -> None:
        """No command runs."""

    def listing(self) -> str:
        reasons = {
            "PENDING": ("", "Priority"),
            "RUNNING": ("node017", "None"),
            "NODE_FAIL": ("node021", "NodeDown"),
        }
        return "".join(
            f"=|{1000 + number // self.array}|{number % self.array}|{state}|{reasons[state][0]}"
            f"|{stamp_of(number // self.array)}|{reasons[state][1]}\n"
            for number, state in enumerate(self.states)
        )

    def change(self, started: int, ended: int) -> None:
        waiting = [number for number, state in enumerate(self.states) if state == "PENDING"]
        for number in waiting[:started]:
            self.states[number] = "RUNNING"
        running = [number for number, state in enumerate(self.states) if state == "RUNNING"]
        for number in self.rng.sample(running, min(ended, len(running))):
            self.states[number] = "NODE_FAIL"
            self.ended.add(number)


def stamp_of(submission: int) -> str:
    return f"pilotage-{submission:016x}"


class _Site:
    """A store with the pilots of one CE, and the objects of a server that the duty needs."""

    def __init__(self, store: Store, asked: argparse.Namespace) -> None:
        self.now = time.time()
        self.ended = 0
        # Four of five pilots run when the measurement begins.
        states = ["PENDING" if number % 5 == 4 else "RUNNING" for number in range(asked.pilots)]
        self.cluster = _Cluster(asked.array, states)
        self.connection = store.open_writer()
        self.readers = SqliteReaders(store.path)
        self.writer = Writer(self.connection)
        self.writer.start()
        self.writer.call(lambda tx: self._fill(tx, asked.array))
        policy = policies.parse(policy_text(asked.pilots))
        self.pool: Pool = self.writer.call(
            lambda tx: open_pool(
                tx, policy, version=1, incarnation=1, rng=Random(1), secrets=secrets, home_owner=""
            )
        )
        ids = [PilotId(number + 1) for number, state in enumerate(states) if state == "RUNNING"]
        self.pool.pilots.last_seen.update(dict.fromkeys(ids, self.now))

    def duty(self) -> CeDuty:
        batch = SlurmBatch(self.cluster, "bench", SlurmOptions())
        return CeDuty(
            self._context(),
            CeDirector(CE, IterationOrders("linux")),
            batch,
            OwnBatchClients(self._context(), 64),
        )

    def _context(self) -> Any:
        """The part of a server's `Context` that the duty uses."""

        async def quick_read(query: Callable[[Connection], Answer]) -> Answer:
            return query(self.readers.connection())

        return cast(
            "Any",
            SimpleNamespace(
                pool=self.pool,
                writer=SimpleNamespace(acall=self.writer.acall, in_loop=True),
                readers=self.readers,
                clock=lambda: self.now,
                monotonic=time.monotonic,
                quick_read=quick_read,
                pilots=SimpleNamespace(outside=DirectCalls()),
                duties=SimpleNamespace(failing=FailingRows(lambda: 0.0)),
            ),
        )

    def _fill(self, tx: Transaction, array: int) -> None:
        connection, count = tx.connection, len(self.cluster.states)
        instance.create(connection, "bench", self.now)
        for number, state in enumerate(self.cluster.states):
            index = number % array
            stamp = stamp_of(number // array)
            if not index:
                members = min(array, count - number)
                row = pilot_submissions.insert(
                    connection,
                    stamp=stamp,
                    ce=CE,
                    phase=SubmissionPhase.RELEASED,
                    pilots=members,
                    now=self.now,
                )
                pilot_submissions.update(
                    connection, row, batch_id=str(1000 + number // array), epoch="2026-11-22T07:05:22"
                )
            pilot = pilots.insert(
                connection,
                NewPilot(
                    stamp=f"{stamp}/{index}",
                    secret_hash=stamp,
                    idx=index,
                    site="here",
                    ce=CE,
                    only_owner=None,
                    pilot_type="generic",
                    processors=1,
                    memory=2000,
                    submitted=self.now,
                    id=number + 1,
                    batch_id=f"{1000 + number // array}_{index}",
                ),
            )
            if state == "RUNNING":
                facts: dict[str, Any] = {"token_hash": f"t{number}", "started": self.now}
                lease = self.now + 86400 * 7
                pilots.update(connection, pilot, state=PilotState.RUNNING, lease_until=lease, **facts)
            else:
                pilots.update(connection, pilot, state=PilotState.WAITING)


def policy_text(count: int) -> str:
    """One CE that has all the pilots it may have."""
    people = '[users.ann]\ngroups = ["home"]\n[groups.home]\nshare = 1\n'
    return (
        f'{people}[sites.here]\n[ces.{CE}]\nsite = "here"\ntype = "slurm"\n'
        f"max_running = {count}\nmax_waiting = {count}\nlisting_period = 60\n"
    )
