"""The wall time of a CE: the director, `why` and the pilot reckon with the same CPU time left for jobs."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.ids import PilotId
from pilotage.core.pilots import wall_time
from pilotage.core.policy import parse, warnings
from pilotage.core.queues.wait_reason import Reason
from pilotage.pilot.assignments import Assignments
from pilotage.pilot.enrol import make_config
from pilotage.pilot.job_rate import JobRate
from pilotage.pilot.node import NodeResources
from pilotage.pilot.take_request import next_take
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.local_orders import LocalOrders
from pilotage.services.director.ordering import order_pilots
from pilotage.services.director.submissions import SubmissionIntent
from pilotage.services.policy.apply import apply_policy
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import EnrolResponse
from tests.unit.services.bench import NODE, POLICY, Bench, MakeBench, Paper
from tests.unit.services.test_why import new_policy, queue_of, why_job

BUCKETS = (500, 5000, 50000, 300000)


def with_wall(wall: float, more: str = "") -> str:
    return POLICY.replace("[ces.local]", f"[ces.local]\nwall = {wall}\nprocessors = 1\n{more}")


def test_a_pilot_keeps_the_wall_time_that_was_asked_for(make: MakeBench) -> None:
    bench = make(with_wall(7200))
    ce = Ce(bench)
    bench.submit(1)
    [ordered] = ce.order()
    new_policy(bench, with_wall(600))
    answer = ce.enrol(ordered).terms
    assert (answer.wall, answer.margin, answer.least) == (7200, wall_time.MARGIN, wall_time.LEAST)


def offered(answer: EnrolResponse, elapsed: float) -> float:
    """The CPU time that the real pilot offers so many seconds after its start."""
    options = argparse.Namespace(idle=None, patience=60.0, batch_end=0.0, cut_off="stay")
    config = make_config(answer, NodeResources(NODE, ()), options, start=0.0, unix_start=0.0)
    take = next_take(1, Assignments(), JobRate(), config, elapsed)
    assert take is not None
    return take.node.cpu_left


class Ce:
    """The CE `local`, its director, and pilots that start as soon as they are ordered."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.director = CeDirector("local", LocalOrders(NODE), local=True)
        self.started = 0

    def order(self) -> list[SubmissionIntent]:
        ordered = self.bench.do(lambda tx: order_pilots(self.director, self.bench.pool, tx, self.bench.now))
        self.started += len(ordered)
        return ordered

    def enrol(self, ordered: SubmissionIntent) -> Paper:
        return Paper(self.bench, ordered.secret)


@pytest.mark.parametrize("beyond", [0, 1, 29, 30, 31, 34, 35, 36, 60])
@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_pilot_offers_the_time_that_the_director_expected(
    make: MakeBench, bucket: int, beyond: int
) -> None:
    wall = bucket + beyond
    bench = make(with_wall(wall))
    [job] = bench.submit(cpu_time=bucket)
    ce = Ce(bench)
    ordered = ce.order()
    if wall_time.cpu_time_of_new_pilot(wall, 1.0) < bucket:
        assert ordered == []
        answer = why_job(bench, job)
        assert (answer.reason, answer.detail) == (Reason.NEEDS, "cpu-time")
        assert f"CE local gives pilots {wall:g} s of wall time" in answer.summary
        assert f"the CPU bucket of this queue is {bucket} s" in answer.summary
    else:
        [one] = ordered
        pilot = ce.enrol(one)
        left = offered(pilot.terms, elapsed=wall_time.start(wall))
        assert [offer.job for offer in pilot.take(cpu_left=left)] == [job]


@given(
    wall=st.floats(1, 1e7), power=st.floats(0.1, 20), late=st.floats(0, 1), cpu_time=st.integers(1, 1_000_000)
)
def test_server_and_pilot_compute_the_same_time_left(
    wall: float, power: float, late: float, cpu_time: int
) -> None:
    """The pilot has at least what was expected unless it started late, and the wall that is advised is enough."""
    answer = EnrolResponse(
        *(1, "token", 1, "here", "local", 60.0, 5.0, 5.0),
        cpu_power=power,
        wall=wall,
        margin=wall_time.margin(wall),
        least=wall_time.least(wall),
    )
    elapsed = late * wall_time.start(wall)
    left = offered(answer, elapsed)
    assert left == pytest.approx(min(1e9, wall_time.cpu_time_left(wall, elapsed, power)))
    assert left >= min(1e9, wall_time.cpu_time_of_new_pilot(wall, power)) * (1 - 1e-9)
    advised = wall_time.wall_for(cpu_time, power)
    assert wall_time.cpu_time_of_new_pilot(advised, power) >= cpu_time
    assert advised <= 1 or wall_time.cpu_time_of_new_pilot(advised - 1, power) < cpu_time


def test_a_batch_system_that_gives_less_time_than_the_policy_says() -> None:
    answer = EnrolResponse(
        1, "token", 1, "here", "local", 60.0, 5.0, 5.0, wall=1000.0, margin=30.0, least=60.0
    )
    assert offered(answer, 0.0) == pytest.approx(970)
    options = argparse.Namespace(idle=None, patience=60.0, batch_end=0.0, cut_off="stay")
    short = replace(answer, wall=10_000.0)
    config = make_config(short, NodeResources(NODE, ()), options, start=0.0, unix_start=0.0)
    assert (config.end, config.margin, config.min_remaining) == (10_000, 30, 60)


@pytest.mark.parametrize(
    ("begun", "ended", "node_ahead", "wall"),
    [
        (1_000, 4_600, 0.0, 3_600),
        (1_000, 4_600, 90.0, 3_600),
        (1_000, 4_600, -90.0, 3_600),
        (1_000, 9_000_000, 90.0, 10_000),
        # A batch system that tells no start: all depends on the clock of the node.
        (0, 4_600, 90.0, 3_510),
        (1_000, 0, 90.0, 10_000),
    ],
)
def test_the_length_of_a_batch_job_does_not_depend_on_the_clock_of_its_node(
    begun: float, ended: float, node_ahead: float, wall: float
) -> None:
    answer = EnrolResponse(
        1, "token", 1, "here", "local", 60.0, 5.0, 5.0, wall=10_000.0, margin=30.0, least=60.0
    )
    options = argparse.Namespace(idle=None, patience=60.0, batch_start=begun, batch_end=ended, cut_off="stay")
    config = make_config(answer, NodeResources(NODE, ()), options, start=50.0, unix_start=1_000 + node_ahead)
    assert config.end == 50 + wall


def test_the_advised_wall_starts_the_job(make: MakeBench) -> None:
    bench = make(with_wall(500, "cpu_power = 2.0\n"))
    [job] = bench.submit(cpu_time=5000)
    ce = Ce(bench)
    assert ce.order() == []
    answer = why_job(bench, job)
    advised = wall_time.wall_for(5000, 2.0)
    assert "CPU time (cpu_power 2)" in answer.summary
    # A change of the job itself is named first, where there is one.
    assert answer.advice == "submit the job with CPU time <= 500 s: it then fits 1 slot at site here"
    new_policy(bench, with_wall(advised, "cpu_power = 2.0\n"))
    [one] = ce.order()
    pilot = ce.enrol(one)
    assert pilot.take(cpu_left=offered(pilot.terms, wall_time.start(advised)))[0].job == job


def test_a_wall_too_short_for_any_job_is_told_with_the_one_that_would_do(make: MakeBench) -> None:
    bench = make(with_wall(500))
    [job] = bench.submit()
    assert Ce(bench).order() == []
    answer = why_job(bench, job)
    assert answer.advice.endswith("(`pilotage policy apply`): ces.local.wall = 532")
    [warning] = [one for one in warnings(parse(with_wall(500))) if one.startswith("ces.local: wall")]
    assert "no job fits; wall = 532 is enough" in warning
    [warning] = [one for one in warnings(parse(with_wall(5030))) if one.startswith("ces.local: wall")]
    assert "jobs of the CPU bucket 5000 s do not fit; wall = 5035 is enough" in warning
    for enough in (532, 4000, 5035, 604800):
        assert not [one for one in warnings(parse(with_wall(enough))) if one.startswith("ces.local: wall")]


def test_a_pilot_with_less_time_left_than_the_jobs_wall_time_does_not_get_it(make: MakeBench) -> None:
    bench = make(with_wall(7200))
    [long] = bench.submit(wall_time=3600)
    [short] = bench.submit(wall_time=600)
    ce = Ce(bench)
    [one] = ce.order()
    pilot = ce.enrol(one)
    assert pilot.take(cpu_left=1e6, wall_left=599.0) == []
    [offer] = pilot.take(cpu_left=1e6, wall_left=3599.0)
    assert offer.job == short
    pilot.confirm(offer)
    pilot.finish(offer)
    [offer] = pilot.take(cpu_left=1e6, wall_left=3600.0)
    assert offer.job == long


@pytest.mark.parametrize("beyond", [0, 34, 35, 36])
def test_no_pilot_is_ordered_for_jobs_that_it_cannot_end(make: MakeBench, beyond: int) -> None:
    """The director, `why` and the real pilot reckon with the same wall time left."""
    bench = make(with_wall(3600 + beyond))
    [job] = bench.submit(wall_time=3590)
    ordered = Ce(bench).order()
    if beyond < 35:
        assert ordered == []
        answer = why_job(bench, job)
        assert (answer.reason, answer.detail) == (Reason.NEEDS, "wall-time")
        assert f"CE local gives pilots {3600 + beyond} s of wall time" in answer.summary
        assert "jobs of this queue ask for 3600 s" in answer.summary
        assert answer.advice.startswith("submit the job with wall time <= 3540 s")
        assert answer.needs["wall time"] == "3600 s (next bucket above the requested 3590 s)"
    else:
        [one] = ordered
        pilot = Ce(bench).enrol(one)
        options = argparse.Namespace(idle=None, patience=60.0, batch_end=0.0, cut_off="stay")
        config = make_config(pilot.terms, NodeResources(NODE, ()), options, start=0.0, unix_start=0.0)
        take = next_take(1, Assignments(), JobRate(), config, wall_time.start(3600))
        assert take is not None
        assert take.node.wall_left == pytest.approx(3600 + beyond - 35)
        assert pilot.take(wall_left=take.node.wall_left)[0].job == job


def test_the_advised_wall_starts_a_job_with_a_wall_time(make: MakeBench) -> None:
    bench = make(with_wall(560))
    [job] = bench.submit(wall_time=600)
    assert Ce(bench).order() == []
    new_policy(bench, with_wall(wall_time.wall_for_job(600)))
    [one] = Ce(bench).order()
    assert Ce(bench).enrol(one).take(wall_left=600.0)[0].job == job
    assert wall_time.wall_of_new_pilot(wall_time.wall_for_job(600)) >= 600


# --- pilots that come in vain


def come_in_vain(ce: Ce, pilot: Paper, **node: float) -> None:
    """Ask for work that the node does not have room for, and leave."""
    assert pilot.take(cpu_left=10.0, **node) == []  # type: ignore[arg-type]
    ce.bench.do(pilot.asking(pilot.request(leaving="idle")))


def test_pilots_that_never_had_a_job_are_started_ever_more_seldom(make: MakeBench) -> None:
    """Each node has less than the CE was said to have, and idle pilots leave after a second."""
    bench = make(POLICY.replace("[ces.local]", "[ces.local]\nprocessors = 1\n"))
    [job] = bench.submit()
    ce = Ce(bench)
    for _ in range(200):
        for one in ce.order():
            come_in_vain(ce, ce.enrol(one))
        bench.now += 1.0
    assert ce.started == 5, "at 0, 8, 24, 56 and 120 s"
    answer = why_job(bench, job)
    assert answer.reason == Reason.SLOTS
    assert "the last 5 pilots started for this queue at CE local ended without a job" in answer.advice
    assert [one.in_vain for one in answer.pilots] == [5]
    # The first one that has a job ends all that.
    bench.now += 128.0
    [one] = ce.order()
    pilot = ce.enrol(one)
    offer = pilot.hold()
    assert ce.order() == []
    bench.do(pilot.asking(pilot.request(finishes=[], leaving="idle")))
    assert bench.state(offer.job) == "Waiting"
    assert len(ce.order()) == 1
    assert [one.in_vain for one in why_job(bench, job).pilots] == [0]


def test_other_queues_are_served_meanwhile(make: MakeBench) -> None:
    bench = make(POLICY.replace("[ces.local]", "[ces.local]\nprocessors = 1\n"))
    bench.submit(memory=4096)
    ce = Ce(bench)
    come_in_vain(ce, ce.enrol(ce.order()[0]), memory=1024)
    bench.now += 1.0
    assert ce.order() == []
    [small] = bench.submit()
    [one] = ce.order()
    assert ce.enrol(one).take(memory=1024)[0].job == small


def test_a_new_policy_of_the_ce_ends_the_pause(make: MakeBench) -> None:
    bench = make(POLICY.replace("[ces.local]", "[ces.local]\nprocessors = 1\n"))
    bench.submit()
    ce = Ce(bench)
    come_in_vain(ce, ce.enrol(ce.order()[0]))
    bench.now += 1.0
    assert ce.order() == []
    new_policy(bench, POLICY.replace("[ces.local]", "[ces.local]\nprocessors = 1\nidle = 7\n"))
    assert len(ce.order()) == 1


def test_a_pilot_whose_job_another_one_took_was_not_in_vain(make: MakeBench) -> None:
    bench = make(POLICY.replace("[ces.local]", "[ces.local]\nprocessors = 1\n"))
    [job] = bench.submit()
    ce = Ce(bench)
    [one] = ce.order()
    [offer] = bench.pilot("home").take()
    assert offer.job == job
    assert ce.order() == []
    come_in_vain(ce, ce.enrol(one))
    bench.now += 1.0
    bench.submit()
    assert len(ce.order()) == 1


# --- what was offered under an earlier policy


def test_after_a_wall_is_lowered_only_living_pilots_still_offer_the_old_one(make: MakeBench) -> None:
    bench = make(with_wall(604800))
    [job] = bench.submit(cpu_time=50000)
    ce = Ce(bench)
    old = ce.enrol(ce.order()[0])
    bench.now += 1.0
    old.release(old.take(cpu_left=600_000.0)[0])
    assert why_job(bench, job).reason != Reason.NEEDS
    bench.now += 1.0
    new_policy(bench, with_wall(5100))
    assert why_job(bench, job).fitting == 1, "the pilot still lives"
    bench.do(old.asking(old.request(leaving="idle")))
    answer = why_job(bench, job)
    assert (answer.reason, answer.detail, answer.fitting) == (Reason.NEEDS, "cpu-time", 0)
    assert "CE local gives pilots 5100 s of wall time" in answer.summary
    assert ce.order() == []
    # The new pilots' own offers count as long as the policy stays, whether they live or not.
    bench.now += 1.0
    [short] = bench.submit()
    new = ce.enrol(ce.order()[0])
    new.release(new.take(cpu_left=5060.0)[0])
    bench.do(new.asking(new.request(leaving="idle")))
    assert why_job(bench, short).fitting == 2
    assert queue_of(bench, short) != queue_of(bench, job)


@pytest.mark.parametrize("restart", [False, True])
def test_tags_that_a_ce_no_longer_has_are_not_offered(make: MakeBench, restart: bool) -> None:
    bench = make(with_wall(604800, 'tags = ["ssd"]\n'))
    [job] = bench.submit(tags=("ssd",))
    old = Ce(bench).enrol(Ce(bench).order()[0])
    bench.now += 1.0
    new_policy(bench, with_wall(604800))
    if restart:
        bench.close()
        bench.open()
        bench.do(lambda tx: tx.put(bench.pool.pilots.last_seen, PilotId(old.id), bench.now))
    assert old.take(tags=["ssd"])[0].job == job, "it was started with the tag"
    bench.do(old.asking(old.request(leaving="idle")))
    Ce(bench).order()
    answer = why_job(bench, job)
    assert (answer.reason, answer.detail) == (Reason.NEEDS, "tags")


def test_a_policy_that_could_not_be_stored_outdates_nothing(make: MakeBench) -> None:
    bench = make(with_wall(604800))
    [job] = bench.submit(cpu_time=50000)
    ce = Ce(bench)
    old = ce.enrol(ce.order()[0])
    old.release(old.take(cpu_left=600_000.0)[0])
    bench.do(old.asking(old.request(leaving="idle")))
    before = dict(bench.pool.ces.changed_at)
    bench.now += 1.0

    policy = parse(with_wall(5100))

    def apply(tx: Transaction) -> None:
        apply_policy(bench.pool, tx, policy, with_wall(5100), by="a", reason="", now=bench.now)
        raise OSError("the disk is full")

    [answer] = bench.together(apply)
    assert isinstance(answer, OSError)
    assert bench.pool.ces.changed_at == before
    assert why_job(bench, job).fitting == 2
