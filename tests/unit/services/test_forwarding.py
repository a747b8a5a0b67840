"""Submissions carry the flags of their queue's residual, or are not made; batch jobs carry its facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.core import policy as policies
from pilotage.core.classads import quote
from pilotage.core.glue.information import CeInformation, HostClass
from pilotage.core.ids import QueueId
from pilotage.core.policy import Ce
from pilotage.core.provisioning.iteration import BatchOrder
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.director import forwarding
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.forwarding import forwarding_of
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.services.director.ordering import order_pilots
from pilotage.services.director.submissions import SubmissionIntent
from pilotage.services.policy.apply import apply_policy
from tests.unit.services.bench import NODE, Bench
from tests.unit.services.test_batch_director import BATCH_POLICY
from tests.writer_guard import as_writer

SI00 = "GlueHostBenchmarkSI00"
CONDITIONAL = (
    f"other.{SI00} > 500 ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"
)
"""Of "Approaches to batch system description"."""
HOSTS = (HostClass(3, {SI00: 400}, ("n1", "n2", "n3")), HostClass(1, {SI00: 600}, ("n4",)))
POLICY = BATCH_POLICY.replace(
    "[director]\n", '[ces.batch.forward]\nGlueHostBenchmarkSI00 = "feature si00_{}"\n[director]\n'
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, POLICY)
    yield bench
    bench.end()


def describe(bench: Bench, max_cpu_time: int, **more: Any) -> None:
    """Set the information of the batch CE."""
    attributes = {"GlueCEPolicyMaxCPUTime": max_cpu_time, **more}
    with as_writer():
        bench.pool.ces.information["batch"] = CeInformation(attributes, HOSTS, updated=bench.now, expiry=1e6)


def ordered(bench: Bench, **job: Any) -> list[SubmissionIntent]:
    """The intents for pilots of a queue with a job of this description."""
    bench.submit(1, **job)
    [queue] = bench.pool.queues.index.entries
    order = BatchOrder(QueueId(queue), 1, "private", "alice", "physics", "Batch")
    with as_writer():
        bench.pool.provisioning.orders["batch"] = (order,)
    director = CeDirector("batch", IterationOrders(NODE.platform))
    return bench.do(lambda tx: order_pilots(director, bench.pool, tx, bench.now))


@pytest.mark.parametrize(
    ("max_cpu_time", "flags"), [(1500, ("--constraint=si00_600",)), (3000, ()), (500, None)]
)
def test_the_conditional_of_the_document_becomes_flags(
    bench: Bench, max_cpu_time: int, flags: tuple[str, ...] | None
) -> None:
    describe(bench, max_cpu_time)
    intents = ordered(bench, requirements=CONDITIONAL)
    assert [intent.order.flags for intent in intents] == ([] if flags is None else [flags])
    if flags is None:
        [reason] = bench.pool.provisioning.refusals.values()
        assert reason == "CE batch: the requirements cannot be true at this CE"


def test_batch_jobs_carry_the_facts_of_their_queue(bench: Bench) -> None:
    describe(bench, 3000)
    hostile = '$(id) "quoted"\n, x=1'
    [intent] = ordered(bench, requirements=f"other.Colour == {quote(hostile)}")
    [identity] = [entry.identity for entry in bench.pool.queues.index.entries.values()]
    assert intent.order.flags == ()
    assert intent.order.properties["identity"] == identity.digest()[:16]
    assert intent.order.properties["cpu"] == str(identity.cpu_time)
    assert "$(id)" in intent.order.properties["unmapped"]
    assert "\n" not in intent.order.properties["unmapped"]


def test_only_host_requirements_become_flags_where_the_policy_says_so(tmp_path: Path) -> None:
    explicit = POLICY.replace('type = "slurm"\n', 'type = "slurm"\nresidual = "explicit"\n')
    bench = Bench(tmp_path, explicit)
    try:
        describe(bench, 3000)
        identity = QueueIdentity("alice", "physics", requirements=f"other.{SI00} > 500")
        made = forwarding_of(bench.pool, "batch", identity, bench.now)
        assert (made.flags, made.unmapped is None) == ((), False)
        both = QueueIdentity(
            "alice", "physics", requirements="other.X > 1", host_requirements=f"other.{SI00} > 500"
        )
        made = forwarding_of(bench.pool, "batch", both, bench.now)
        assert (made.flags, made.unmapped is None) == (("--constraint=si00_600",), False)
        impossible = QueueIdentity("alice", "physics", requirements="other.GlueCEPolicyMaxCPUTime > 9999")
        assert not forwarding_of(bench.pool, "batch", impossible, bench.now).is_possible
    finally:
        bench.end()


def test_flags_follow_the_facts_of_the_ce(bench: Bench) -> None:
    describe(bench, 1500)
    identity = QueueIdentity("alice", "physics", requirements=CONDITIONAL)
    first = forwarding_of(bench.pool, "batch", identity, bench.now)
    assert first.flags
    assert forwarding_of(bench.pool, "batch", identity, bench.now) is first
    describe(bench, 3000)
    assert forwarding_of(bench.pool, "batch", identity, bench.now).flags == ()


def test_the_identity_that_submits_takes_part(bench: Bench) -> None:
    describe(bench, 1500)
    text = f'other.{SI00} > 500 || my.Owner == "alice"'
    alice = forwarding_of(
        bench.pool, "batch", QueueIdentity("alice", "physics", requirements=text), bench.now
    )
    bob = forwarding_of(bench.pool, "batch", QueueIdentity("bob", "physics", requirements=text), bench.now)
    assert (alice.flags, bob.flags) == ((), ("--constraint=si00_600",))


def test_the_writer_finds_prepared_flags_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large requirements over 500 classes of hosts take long, and everybody waits for the writer."""
    describe(bench, 1500)
    bench.submit(1, requirements=CONDITIONAL)
    [queue] = bench.pool.queues.index.entries
    order = BatchOrder(QueueId(queue), 1, "private", "alice", "physics", "Batch")
    with as_writer():
        bench.pool.provisioning.orders["batch"] = (order, replace(order, queue=QueueId(99)))
    forwarding.prepare_forwardings(bench.pool, bench.connection, "batch", bench.now)

    def made_again(*_: object) -> None:
        raise AssertionError("made in the writer's thread")

    monkeypatch.setattr(forwarding, "_made", made_again)
    [prepared] = bench.do(
        lambda tx: forwarding.forwarded_orders(bench.pool, tx, "batch", [order], bench.now + 1)
    )
    assert prepared.forwarding.flags == ("--constraint=si00_600",)


def test_a_ce_that_goes_meanwhile_has_no_ad_and_no_flags(bench: Bench) -> None:
    """A thread that explains or prepares runs beside a change of the policy."""
    describe(bench, 1500)
    policy = bench.pool.policy

    class Vanishing(dict[str, Ce]):
        def get(self, name: str, default: object = None) -> Any:
            found = super().get(name, default)
            with as_writer():
                bench.pool.policy = msgspec.structs.replace(policy, ces={})
            return found

    with as_writer():
        bench.pool.policy = msgspec.structs.replace(policy, ces=Vanishing(policy.ces))
    identity = QueueIdentity("alice", "physics", requirements=CONDITIONAL)
    assert forwarding_of(bench.pool, "batch", identity, bench.now) == forwarding.NOTHING
    assert bench.pool.ce_ad("batch", bench.now) is None


def test_flags_of_ces_that_the_policy_lost_are_forgotten(bench: Bench) -> None:
    describe(bench, 1500)
    ordered(bench, requirements=CONDITIONAL)
    [identity] = [entry.identity for entry in bench.pool.queues.index.entries.values()]
    ad = bench.pool.ce_ad("batch", bench.now)
    assert ad is not None
    assert forwarding_of(bench.pool, "batch", identity, bench.now).flags
    kept = bench.pool.ces.forwardings.of(ad)
    assert kept
    text = POLICY.replace("ces.batch", "ces.other")
    bench.do(
        lambda tx: apply_policy(
            bench.pool, tx, policies.parse(text), text, by="alice", reason="", now=bench.now
        )
    )
    assert bench.pool.ces.forwardings.of(ad) == {}
