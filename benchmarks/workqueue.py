"""A pull of elements from the global queue: claim, events and commit included, on a real SQLite file.

Two cases: all sites have room, and 3 of 60 have. Both with a tenth of the elements too, to show that the time does
not depend on their number. Then a change of the priority of a request with very many elements, up to the end of the
next pull, which takes its elements.
"""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from benchmarks.figure import Figure, figure, part
from pilotage.core import policy as policies
from pilotage.core.requests.states import RequestState
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.workqueue import membership
from pilotage.services.workqueue.custody import AgentUser
from pilotage.services.workqueue.state import WorkQueue
from pilotage.services.workqueue.sync import sync
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.sqlite import SqliteReaders, open_writer
from pilotage.store.tables import element_masks, elements, instance, location_sets, requests
from pilotage.store.tables.element_masks import NewElementJob
from pilotage.store.tables.elements import NewElement
from pilotage.store.tables.requests import RequestRow, StepRow
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from pilotage.wire.agents import JoinRequest, SyncRequest, SyncResponse

SUMMARY = "a pull of 200 elements with 400,000 available and 10 agents, in ms, and changes of priority"

SITES, OPEN_SITES, LOCATIONS, PRIORITIES, JOBS = 60, 3, 200, 20, 50
AT_ONCE = 20_000
ALL, FEW = "all sites have room", f"{OPEN_SITES} of {SITES} sites have room"
CHANGE = "change of a priority and the next pull"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--elements", type=int, default=400_000)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=20_000, help="unfinished jobs of each agent")
    parser.add_argument("--pulls", type=int, default=20, help="pulls of each case")
    parser.add_argument("--large", type=int, default=1_000_000, help="elements of the request that changes")


@dataclass
class Agent:
    """One agent of the benchmark."""

    id: int
    name: str
    number: int = 1


class Filled:
    """A store with requests of many elements, and agents with jobs."""

    def __init__(self, folder: Path, count: int, given: argparse.Namespace, *, few: bool) -> None:
        path = folder / "queue.db"
        engine = sqlite_engine(path)
        upgrade(engine)
        engine.dispose()
        self.rng, self.now = Random(1), 1e9
        self.connection = open_writer(path)
        self.writer = Writer(self.connection)
        self.writer.start()
        self.readers = SqliteReaders(path)
        self.writer.call(lambda tx: instance.create(tx.connection, "bench", self.now))
        policy = policies.parse(_policy())
        self.pool = self.writer.call(
            lambda tx: open_pool(
                tx, policy, version=1, incarnation=1, rng=Random(1), secrets=secrets, home_owner=""
            )
        )
        self.work_queue = WorkQueue(self.pool)
        self.sets = self.writer.call(lambda tx: list(self._location_sets(tx)))
        per_request = count // given.requests
        self.requests = [self.request(number % PRIORITIES, per_request) for number in range(given.requests)]
        self.agents = [self._agent(f"agent{number}") for number in range(given.agents)]
        for agent in self.agents:
            self._give_jobs(agent, given.jobs, few=few)
        self.slots = {f"S{site}": 10**6 for site in range(SITES)}
        self.connection.execute("ANALYZE")

    def close(self) -> None:
        self.writer.stop()
        self.readers.close()
        self.connection.close()

    def _location_sets(self, tx: Transaction) -> Iterator[int]:
        for _ in range(LOCATIONS):
            sites = self.rng.sample(range(SITES), self.rng.randint(1, 3))
            yield location_sets.id_of(tx.connection, [f"S{site}" for site in sites])

    def request(self, priority: int, count: int) -> int:
        """A request in the queue with `count` available elements."""
        row = RequestRow(
            *(0, f"r{priority}", "alice", "physics", priority, "home", "", RequestState.ACQUIRED, "{}"),
            *(("*",), (), False, False, None, self.now, self.now),
        )
        stored = self.writer.call(lambda tx: requests.insert(tx.connection, row))
        splitting = json.dumps({"algorithm": "FileBased", "parameters": {"files_per_job": 1}})
        step = StepRow(stored.id, 0, "process", "Processing", "Block", splitting, 1, None, (), (), None)
        self.writer.call(lambda tx: requests.insert_steps(tx.connection, [step]))
        for first in range(0, count, AT_ONCE):
            rows = [self._element(stored.id, number) for number in range(first, min(first + AT_ONCE, count))]
            self.writer.call(lambda tx, rows=rows: elements.insert_new(tx.connection, rows))
        return stored.id

    def _element(self, request: int, number: int) -> NewElement:
        return NewElement(
            *(request, 0, f"{request}-{number}".ljust(64, "0"), "Available", JOBS, 5000, 50, 10**9),
            *(f"[{number}]", "", self.rng.choice(self.sets), self.now, self.now),
        )

    def _agent(self, name: str) -> Agent:
        message = JoinRequest(name, "home", "nonce")
        answer = self.writer.call(
            lambda tx: membership.join(self.work_queue, tx, message, AgentUser("alice"), self.now)
        )
        return Agent(answer.agent, name)

    def _give_jobs(self, agent: Agent, count: int, *, few: bool) -> None:
        """Unfinished jobs of an agent. `few`: so many of the highest priority that most sites have no room."""
        full = [f"S{site}" for site in range(SITES if few else 0) if site >= OPEN_SITES]
        request = self.requests[PRIORITIES - 1]
        rows = []
        for number in range(count):
            element = -(agent.id * 10**6 + number // 100)
            site = full[number % len(full)] if few else f"S{number % SITES}"
            rows.append(
                NewElementJob(
                    *(element, 1, str(number), "{}", request, 0, "made", 1, site, agent.id),
                    *(100, 1, 10**6, self.now),
                )
            )
        self.writer.call(lambda tx: element_masks.insert_jobs(tx.connection, rows))
        ids = sorted({row.element_id for row in rows})
        self.writer.call(
            lambda tx: tx.connection.executemany(
                "INSERT INTO elements (id, request_id, step, digest, state, jobs, location_set, created, changed,"
                " agent_id) VALUES (?, ?, 0, ?, 'Running', 100, 1, 0, 0, ?)",
                [(number, request, f"held{number}", agent.id) for number in ids],
            )
        )

    def count_jobs(self, agent: Agent) -> float:
        """Milliseconds to count the unfinished jobs of an agent, which is done every few seconds."""
        begun = time.perf_counter()
        self.work_queue.loads.count(self.readers.connection(), agent.id, self.now)
        return (time.perf_counter() - begun) * 1000

    def pull(self, agent: Agent, want: int = 200) -> tuple[float, SyncResponse]:
        """Milliseconds of one turn that pulls, and its answer. Then the agent confirms, outside of the time."""
        load = self.work_queue.loads.known(agent.id, self.now, shared=False)
        assert load is not None
        begun = time.perf_counter()
        answer = self._send(agent, SyncRequest("nonce", agent.number, want, self.slots))
        took = (time.perf_counter() - begun) * 1000
        # Given back, so that each pull of a case meets the same queue.
        self._send(agent, SyncRequest("nonce", agent.number + 1))
        agent.number += 2
        return took, answer

    def _send(self, agent: Agent, message: SyncRequest) -> SyncResponse:
        load = self.work_queue.loads.known(agent.id, self.now, shared=False)
        assert load is not None
        return self.writer.call(
            lambda tx: sync(
                self.work_queue, tx, agent.id, AgentUser("alice"), message, load, self.now, self.rng
            )
        )

    def change_priority(self, request: int, priority: int) -> None:
        def change(tx: Transaction) -> None:
            before = requests.for_change(tx.connection, request)
            assert before is not None
            requests.change_facts(
                tx.connection,
                before,
                _with_priority(before, priority),
                kind="priority",
                actor="bench",
                now=self.now,
                detail="",
            )

        self.writer.call(change)


def _with_priority(row: RequestRow, priority: int) -> RequestRow:
    return replace(row, priority=priority)


def _policy() -> str:
    lines = ['[groups.physics]\n[users.alice]\ngroups = ["physics"]']
    for site in range(SITES):
        lines.append(f"[sites.S{site}]")
        running = 400_000 if site < OPEN_SITES else 1000
        lines.append(
            f'[ces.C{site}]\nsite = "S{site}"\ntype = "slurm"\nmax_running = {running}\npilot_processors = 1'
        )
    lines.append("[requests]\nqueue_depth = 2.0")
    return "\n".join(lines)


def _case(folder: Path, count: int, given: argparse.Namespace, *, few: bool) -> tuple[list[float], float]:
    """The times of the pulls of one case, and the time of a count of jobs."""
    filled = Filled(folder, count, given, few=few)
    try:
        counting = [filled.count_jobs(agent) for agent in filled.agents]
        times = []
        for number in range(given.pulls):
            took, answer = filled.pull(filled.agents[number % len(filled.agents)])
            assert len(answer.elements) == 200, len(answer.elements)
            times.append(took)
        return times, part(sorted(counting), 0.5)
    finally:
        filled.close()


def _change(folder: Path, given: argparse.Namespace) -> list[float]:
    """Milliseconds of a change of the priority of a large request, with the pull that follows it."""
    filled = Filled(folder, given.elements // 10, given, few=False)
    try:
        large = filled.request(0, given.large)
        [filled.count_jobs(agent) for agent in filled.agents]
        times = []
        for number in range(given.pulls):
            agent = filled.agents[number % len(filled.agents)]
            begun = time.perf_counter()
            filled.change_priority(large, PRIORITIES + number)
            changed = (time.perf_counter() - begun) * 1000
            took, answer = filled.pull(agent)
            assert {element.request for element in answer.elements} == {large}
            times.append(changed + took)
            filled.change_priority(large, 0)
        return times
    finally:
        filled.close()


def run(given: argparse.Namespace) -> Figure:
    results: dict[str, list[float]] = {}
    notes: dict[str, str] = {}
    for name, few in ((ALL, False), (FEW, True)):
        for count in (given.elements, given.elements // 10):
            with tempfile.TemporaryDirectory() as folder:
                times, counting = _case(Path(folder), count, given, few=few)
            label = f"{name}, {count:,} elements"
            results[label] = times
            notes[label] = (
                f"median {part(sorted(times), 0.5):.1f} ms, slowest {max(times):.1f} ms; "
                f"count of {given.jobs:,} jobs of an agent, every few seconds: {counting:.1f} ms"
            )
    with tempfile.TemporaryDirectory() as folder:
        times = _change(Path(folder), given)
    notes[f"{CHANGE}, {given.large:,} elements"] = (
        f"median {part(sorted(times), 0.5):.1f} ms, slowest {max(times):.1f} ms"
    )
    runs = [part(sorted(times), 0.5) for label, times in results.items() if f"{given.elements:,}" in label]
    notes["measured"] = (
        f"{given.agents} agents, {given.requests} requests of {PRIORITIES} priorities, {LOCATIONS} sets of sites"
    )
    return figure("a pull of 200 elements", "ms", runs, {"limit of the design": 50.0}, notes)
