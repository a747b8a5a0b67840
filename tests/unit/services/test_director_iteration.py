"""Iterations of the director on a real store: its facts, its orders, and the report that explains them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pilotage.core.policy import parse
from pilotage.core.provisioning.demand import QueueDemand
from pilotage.core.provisioning.iteration import Shortfall
from pilotage.core.queues.fit import AnyIdentity, fits
from pilotage.outside.batch.adapter import Receipt
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.demand import (
    Iteration,
    post_orders,
    prepare,
    read_counts,
)
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.services.director.iteration_report import report
from pilotage.services.director.ordering import order_pilots
from pilotage.services.director.submissions import SubmissionIntent
from pilotage.services.director.submitting import acknowledged, released, releasing
from pilotage.services.policy.apply import apply_policy
from pilotage.store.tables import pilot_demand, pilots
from pilotage.store.writer.transaction import Transaction
from tests.unit.services.bench import NODE, POLICY, Bench, Paper
from tests.unit.services.iterations import run_iteration

CES = """
[ces.batch]
site = "here"
type = "slurm"
owners = "any"
max_waiting = 50
max_running = 60
[ces.bound]
site = "here"
type = "slurm"
owners = "home"
pool = "Slow"
middleware = "condor"
max_waiting = 10
max_running = 10
"""
DIRECTOR = """
[director]
demand = "dirac"
DefaultSubmitPools = ["Batch"]
"""


def receipt_of(intent: SubmissionIntent) -> Receipt:
    array = f"7{len(intent.stamp)}"
    return Receipt(array, tuple(f"{array}_{index}" for index in range(intent.order.pilots)))


class Place:
    """A server with two batch CEs, and the directors of both."""

    def __init__(self, folder: Path, director: str = DIRECTOR) -> None:
        self.bench = Bench(folder, POLICY + CES + director)
        self.directors = {
            name: CeDirector(name, IterationOrders(NODE.platform)) for name in ("batch", "bound")
        }
        self.intents: list[SubmissionIntent] = self.cycle()

    def cycle(self) -> list[SubmissionIntent]:
        """The cycles of both CEs, which carry out the orders; their submissions are released at once."""
        bench = self.bench
        intents = []
        for director in self.directors.values():
            ordered = bench.do(
                lambda tx, director=director: order_pilots(director, bench.pool, tx, bench.now)
            )
            for intent in ordered:
                bench.do(
                    lambda tx, d=director, i=intent: acknowledged(d, bench.pool, tx, i.stamp, receipt_of(i))
                )
                bench.do(lambda tx, d=director, i=intent: releasing(tx, i.stamp))
                bench.do(lambda tx, d=director, i=intent: released(d, bench.pool, tx, i.stamp))
            intents += ordered
        return intents

    def apply(self, text: str) -> None:
        bench = self.bench
        bench.do(
            lambda tx: apply_policy(bench.pool, tx, parse(text), text, by="alice", reason="", now=bench.now)
        )

    def compute(self, seed: int) -> Iteration:
        bench = self.bench
        work: Iteration = bench.do(
            lambda tx: run_iteration(bench.pool, tx.connection, Random(seed), bench.now)
        )
        return work

    def act(self, seed: int) -> Iteration:
        """An iteration whose orders are carried out."""
        work = self.compute(seed)
        self.bench.do(lambda tx: post_orders(self.bench.pool, tx, work))
        self.intents = self.cycle()
        return work


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_explained_iteration_is_the_one_that_acts(place: Place) -> None:
    for number in range(6):
        place.bench.submit(3 + number, cpu_time=500 * (number + 1), owner=("alice", "bob")[number % 2])
    explained = report(place.compute(5), seed=5, number=None, queue=None, limit=100)
    acted = report(place.act(5), seed=5, number=1, queue=None, limit=100)
    assert explained.queues == acted.queues
    assert explained.pilots == acted.pilots > 0
    assert place.compute(6).decisions != place.compute(7).decisions
    rows = pilots.live(place.bench.connection, "batch")
    assert len(rows) == acted.pilots


def test_a_dry_run_orders_nothing(place: Place) -> None:
    place.bench.submit(5)
    assert place.compute(1).decisions[0].submitted > 0
    assert place.cycle() == []
    assert not place.bench.pool.provisioning.orders


def test_waiting_pilots_count_from_their_order_on(place: Place) -> None:
    """One job: a cap of 5. Ordered pilots, intents and waiting pilots count; started ones do not."""
    bench = place.bench
    bench.submit(1, cpu_time=500)
    work = place.compute(3)
    assert work.decisions[0].submitted == 5
    bench.do(lambda tx: post_orders(bench.pool, tx, work))
    assert place.compute(3).decisions[0].shortfall is Shortfall.COVERED
    intents = place.cycle()
    assert place.compute(3).decisions[0].shortfall is Shortfall.COVERED
    Paper(bench, intents[0].secret, 0)
    demand = place.compute(3).decisions[0].demand
    assert isinstance(demand, QueueDemand)
    assert demand.cap == 1
    # Pilots that have waited for too long are no longer counted.
    bench.now += 6 * 3600 + 1
    demand = place.compute(3).decisions[0].demand
    assert isinstance(demand, QueueDemand)
    assert demand.cap == 5


def test_an_order_that_becomes_an_intent_meanwhile_is_never_missed(place: Place) -> None:
    bench = place.bench
    bench.submit(1, cpu_time=500)
    work = place.compute(3)
    bench.do(lambda tx: post_orders(bench.pool, tx, work))
    orders = dict(bench.pool.provisioning.orders)
    counts = read_counts(bench.connection, bench.pool.policy, orders, bench.now)
    place.cycle()
    *_, meanwhile = prepare(bench.pool, counts, {}, bench.now)
    assert meanwhile is not None
    assert [queue.waiting for queue in meanwhile.facts.queues] == [5]


def test_a_pilot_keeps_its_queue_and_identity(tmp_path: Path) -> None:
    generic = (
        DIRECTOR + 'GenericPilotDN = "/CN=pilots"\nGenericPilotGroup = "physics"\nPrivatePilotFraction = 0\n'
    )
    place = Place(tmp_path, generic)
    bench = place.bench
    bench.submit(1, cpu_time=500)
    bench.submit(1, owner="bob", pilot_types=("private",))
    work = place.act(1)
    queues = {decision.queue.identity.owner: decision.queue.id for decision in work.decisions}
    sql = "SELECT DISTINCT queue_id, pilot_type, owner, grp, only_owner FROM pilots ORDER BY queue_id"
    assert sorted(bench.connection.execute(sql).fetchall()) == sorted(
        [
            (queues["alice"], "generic", "/CN=pilots", "physics", None),
            (queues["bob"], "private", "bob", "physics", "bob"),
        ]
    )
    counts = pilot_demand.live_by_queue(bench.connection, queues.values())
    assert {owner: counts[queue].waiting for owner, queue in queues.items()} == {"alice": 5, "bob": 5}


def test_a_private_pilot_gets_no_job_of_another_owner_or_group(tmp_path: Path) -> None:
    place = Place(tmp_path, DIRECTOR + "PrivatePilotFraction = 1\n")
    bench = place.bench
    bobs = bench.submit(1, owner="bob")
    place.act(1)
    bench.submit(1, owner="alice")
    paper = Paper(bench, place.intents[0].secret, 0)
    row = paper.row
    assert (row.pilot_type, row.only_owner, row.owner, row.group) == ("private", "bob", "bob", "physics")
    bench.act("kill", *bobs)
    bench.submit(1, owner="bob", group="sharing")
    assert paper.take() == []
    bench.submit(1, owner="bob")
    assert len(paper.take()) == 1


def test_orders_of_an_earlier_policy_are_dropped(place: Place) -> None:
    bench = place.bench
    bench.submit(5)
    work = place.compute(1)
    place.apply(bench.policy_text.replace("max_waiting = 50", "max_waiting = 1"))
    assert bench.do(lambda tx: post_orders(bench.pool, tx, work)) == 0
    assert not bench.pool.provisioning.orders


def test_a_new_policy_counts_in_the_next_iteration(place: Place) -> None:
    bench = place.bench
    bench.submit(100, cpu_time=500)
    assert place.compute(1).decisions[0].submitted == 50
    place.apply(bench.policy_text + "extraPilotFraction = 0\nextraPilots = 0\npilotsPerIteration = 0.01\n")
    place.cycle()
    demand = place.compute(1).decisions[0].demand
    assert isinstance(demand, QueueDemand)
    assert (demand.cap, demand.mean) == (100, pytest.approx(0.02 * 300000 / 7200))


def test_the_report_says_for_each_ce_why_it_gets_no_pilot(place: Place) -> None:
    bench = place.bench
    first = bench.submit(5, submit_pools=("Slow", "Batch"), grid_middlewares=("slurm",))
    assert first
    work = place.compute(1)
    [decision] = work.decisions
    told = report(work, seed=1, number=None, queue=decision.queue.id, limit=1).queues[0]
    assert told.ces["bound"] == "its middleware is condor; the queue allows slurm"
    assert told.ces["local"].startswith("it is in pool Local")
    assert told.ces["batch"] == ("" if decision.pool == "Batch" else "the pilots went to pool Slow")


def test_a_queue_of_another_owner_gets_no_pilot_where_only_the_home_owner_is_served(place: Place) -> None:
    bench = place.bench
    bench.submit(5, owner="bob", submit_pools=("Slow",))
    bench.submit(5, owner="alice", submit_pools=("Slow",))
    shortfalls = {decision.queue.identity.owner: decision for decision in place.compute(2).decisions}
    assert shortfalls["bob"].shortfall is Shortfall.NO_CE
    assert {order.pilot_type for order in shortfalls["alice"].orders} == {"private"}


def test_requirements_decide_by_the_ad_of_a_new_pilot(place: Place) -> None:
    bench = place.bench
    bench.submit(5, requirements='target.GridCE == "elsewhere"')
    bench.submit(5, requirements='target.GridCE == "batch"', cpu_time=5000)
    by_cpu = {decision.queue.identity.cpu_time: decision.shortfall for decision in place.compute(2).decisions}
    assert by_cpu == {500: Shortfall.IMPOSSIBLE, 5000: Shortfall.NONE}


def test_the_facts_equal_the_predicate_for_every_queue_and_ce(place: Place) -> None:
    """The masks come from the index in slices; each entry is asked of the plain predicate here."""
    bench, rng = place.bench, Random(3)
    for number in range(40):
        bench.submit(
            1,
            owner=rng.choice(["alice", "bob"]),
            cpu_time=rng.choice([500, 5000, 50000, 300000]),
            sites=rng.choice([(), ("here",), ("there",)]),
            force_generic=number % 5 == 0,
            pilot_types=("private",) if number % 5 == 1 else (),
            grid_ces=rng.choice([(), ("batch",)]),
        )

    def made(tx: Transaction) -> Iteration:
        counts = read_counts(tx.connection, bench.pool.policy, {}, bench.now)
        *pauses, work = prepare(bench.pool, counts, {}, bench.now)
        assert not any(pauses)
        assert work is not None
        return work

    work: Iteration = bench.do(made)
    assert len(work.facts.queues) > 20
    for queue in work.facts.queues:
        for place_of_ce, ce in enumerate(work.facts.ces):
            private = replace(ce.offer, pilot_type="private", identities=(AnyIdentity(),))
            for offer, kind in ((ce.offer, "generic"), (private, "private")):
                expected = fits(queue.identity, offer, lambda _: True)
                assert work.fitting.ces(queue, kind)[place_of_ce] == expected  # type: ignore[arg-type]


def test_cpu_normalization_counts_in_the_next_iteration_and_is_explained(place: Place) -> None:
    """A queue of the highest bucket fits a week of wall time at full speed, and not at a third of it."""
    bench = place.bench
    bench.submit(5, cpu_time=300000)
    assert place.compute(1).decisions[0].shortfall is Shortfall.NONE
    place.apply(bench.policy_text + '[director.pools.Batch]\nCPUNormalization = "CPUPower / 3"\n')
    place.cycle()
    work = place.compute(1)
    assert work.decisions[0].shortfall is Shortfall.NO_CE
    ces = {ce.name: ce for ce in report(work, seed=1, number=None, queue=None, limit=1).ces}
    assert ces["batch"].cpu_power == pytest.approx(1 / 3)
    assert ces["batch"].cpu_time == pytest.approx((604800 - 35) / 3)
    assert (ces["bound"].cpu_power, ces["bound"].cpu_time) == (1.0, pytest.approx(604800 - 35))
    bench.submit(1, cpu_time=500)
    place.act(1)
    assert Paper(bench, place.intents[0].secret, 0).terms.cpu_power == pytest.approx(1 / 3)


def test_the_report_has_the_settings_of_pools_and_the_ranks_of_their_ces(place: Place) -> None:
    bench = place.bench
    bench.submit(1, cpu_time=500)
    ranked = "maxThreadsInPool = 7\nEnableListMatch = true\nRank = 'MaxWaiting - WaitingPilots'\n"
    place.apply(bench.policy_text + "[director.pools.Batch]\n" + ranked)
    place.cycle()
    place.act(3)
    told = report(place.compute(1), seed=1, number=None, queue=None, limit=1)
    pools, ces = {pool.name: pool for pool in told.pools}, {ce.name: ce for ce in told.ces}
    assert (pools["Batch"].max_threads, pools["Batch"].rank) == (7, "MaxWaiting - WaitingPilots")
    assert (pools["Slow"].max_threads, pools["Slow"].rank) == (4, "")
    assert pools["Slow"].cpu_normalization == "CPUPower"
    assert (ces["batch"].rank, ces["bound"].rank, ces["local"].rank) == (45, None, None)


def test_an_order_whose_jobs_were_taken_meanwhile_starts_no_pilot(place: Place) -> None:
    bench = place.bench
    jobs = bench.submit(3, cpu_time=500)
    work = place.compute(3)
    assert bench.do(lambda tx: post_orders(bench.pool, tx, work))
    bench.act("kill", *jobs)
    assert place.cycle() == []
    assert not list(bench.connection.execute("SELECT id FROM pilots"))
