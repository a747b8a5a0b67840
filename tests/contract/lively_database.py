"""A database with some of everything: jobs in most states, chains, limits, pilots, requests and data sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilotage.core.datasets.facts import Replica
from pilotage.services.catalogue.locations import ReplicaChange, change_replicas
from tests.unit.services.bench import POLICY as BENCH_POLICY
from tests.unit.services.bench import Bench
from tests.unit.services.request_bench import RequestBench
from tests.unit.services.settling import advance
from tests.unit.services.workqueue.queue_bench import QueueBench

POLICY = f"""{BENCH_POLICY}
[sites.there]
[ces.there]
site = "there"
owners = "any"
[[limits]]
attribute = "job_type"
value = "User"
running = 9
"""


@dataclass
class Lively:
    """The bench, and the ids of what it has."""

    bench: Bench
    waiting: int = 0
    running: int = 0
    stalled: int = 0
    matched: int = 0
    done: int = 0
    rescheduled: int = 0
    archived: int = 0
    parent: int = 0
    """A job that waits; `child` is Blocked until it is Done."""
    child: int = 0
    parents: int = 0
    """A submission of two jobs that wait; `of_all` is Blocked until both are Done."""
    of_all: int = 0
    limited: int = 0
    """A submission of three jobs with one place."""
    completed: int = 0
    """A request with a merge step, of which everything is done."""
    growing: int = 0
    """A request with elements that are Available, held by an agent, and running."""
    trial: bool = False
    """Whether changes by SQL stay in an open transaction, which is rolled back."""

    @property
    def queue(self) -> QueueBench:
        return QueueBench(self.bench)

    @property
    def requests(self) -> RequestBench:
        return RequestBench(self.bench)

    def sql(self, text: str, *values: Any) -> None:
        if self.trial:
            self.bench.connection.execute(text, values)
        else:
            self.bench.do(lambda tx: tx.connection.execute(text, values))

    def value(self, text: str, *values: Any) -> Any:
        return self.bench.connection.execute(text, values).fetchone()[0]

    def settle(self) -> None:
        """As the duty of dependants does."""
        bench = self.bench
        while not bench.do(lambda tx: advance(bench.pool, tx, 100, bench.now)):
            pass

    def work(self) -> int:
        """Let a pilot do the jobs that wait; returns their number."""
        pilot, done = self.bench.pilot(), 0
        while offers := pilot.take():
            assert pilot.confirm(offers[0]) == "accepted"
            assert pilot.finish(offers[0], files=[]) == "accepted"
            done += 1
        return done

    def run_request(self, request: int) -> str:
        """Let all work of a request be done; returns its state."""
        queue, of_requests = self.queue, self.requests
        for _ in range(6):
            queue.intake(request)
            agent = queue.agent(f"agent {self.bench.nonces}")
            self.bench.nonces += 1
            while agent.sync(slots={"here": 10**6, "there": 10**6}).elements:
                agent.split()
            of_requests.release()
            self.work()
            of_requests.roll_up()
            of_requests.advance(request)
        return of_requests.state(request)

    def block(self, dataset: int, name: str, *sites: str) -> int:
        block = self.queue.block(dataset, name, sites=None)
        added = ReplicaChange(add=tuple(Replica(site, f"/{site}") for site in sites))
        self.bench.do(lambda tx: change_replicas(tx, [block], added, self.bench.now))
        self.sql("DELETE FROM moved_blocks")
        return block


def fill(bench: Bench) -> Lively:
    """Fill an empty database."""
    made = Lively(bench)
    _archived_and_completed(made)
    _jobs(made)
    _chains(made)
    _growing_request(made)
    return made


def _archived_and_completed(made: Lively) -> None:
    bench, queue = made.bench, made.queue
    raw = queue.dataset("raw")
    for name in ("a", "b", "c"):
        made.block(raw, name, "here", "there")
    made.completed = queue.request(queue.merged_step(), inputs=[raw])
    assert made.run_request(made.completed) == "completed"
    [made.archived] = bench.submit()
    assert made.work() == 1
    bench.later(10)
    bench.tidy()


def _jobs(made: Lively) -> None:
    bench = made.bench
    [made.stalled] = bench.submit()
    bench.pilot().hold()
    bench.later(50)
    [made.rescheduled] = bench.submit(retries=1)
    worker = bench.pilot()
    worker.finish(worker.hold(), exit_code=3)
    [made.running] = bench.submit()
    worker.hold()
    [made.done] = bench.submit()
    other = bench.pilot()
    other.finish(other.hold())
    [made.matched] = bench.submit()
    assert other.take()
    [made.waiting] = bench.submit()
    assert [bench.state(job) for job in (made.stalled, made.rescheduled, made.running, made.done)] == [
        *("Stalled", "Rescheduled", "Running", "Done")
    ]


def _chains(made: Lively) -> None:
    bench = made.bench
    [made.parent] = bench.submit()
    [made.child] = bench.submit(after_ok=(str(made.parent),))
    both = bench.accept(bench.prepared(2))
    bench.make(both)
    made.parents = both.id
    [made.of_all] = bench.submit(after_ok=(f"s:{made.parents}",))
    [job, *_] = bench.submit(3, parallel=1)
    made.limited = made.value("SELECT submission_id FROM jobs WHERE id = ?", job)
    made.settle()
    assert [bench.state(job) for job in (made.child, made.of_all)] == ["Blocked"] * 2


def _growing_request(made: Lively) -> None:
    queue = made.queue
    raw = queue.dataset("growing")
    for name in ("a", "b", "c"):
        made.block(raw, name, "here")
    made.growing = queue.request(queue.merged_step(), inputs=[raw])
    queue.intake(made.growing)
    splitting, holding = queue.agent("splitting"), queue.agent("holding")
    for agent in (splitting, holding):
        agent.sync(want=1, slots={"here": 10**6})
        agent.sync(want=0)
    splitting.split()
    states = [row.state for row in queue.elements_of(made.growing)]
    assert states == ["Running", "Acquired", "Available"], states
