"""The offer of a pilot has the CE's ad with its node's own values, so that Requirements in GLUE names can be true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.brokering.ce_ad import ce_ad
from pilotage.core.brokering.pilot_ads import ATTRIBUTES, node_ad, offer_ad, own_attributes
from pilotage.core.classads import ClassAd, evaluate, parse_expression
from pilotage.core.glue.information import CeInformation, HostClass, Value
from pilotage.core.policy import Ce
from pilotage.core.queues.fit import Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.matching.requirements import requirements_for
from tests.unit.services.bench import NODE, POLICY, Bench
from tests.writer_guard import as_writer

CONDITIONAL = (
    "other.GlueHostBenchmarkSI00 > 500"
    " ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"
)
WITH_VO = POLICY.replace("[groups.physics]\n", '[groups.physics]\nvo = "EGEE"\n').replace(
    "[users.alice]\n", '[users.alice]\nsubject = "/CN=alice"\n'
)
SLOW, FAST = (
    HostClass(3, {"GlueHostBenchmarkSI00": 400}, ("n1", "n2", "n3")),
    HostClass(1, {"GlueHostBenchmarkSI00": 600}, ("n4.example.org",)),
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, WITH_VO)
    yield bench
    bench.end()


def describe(bench: Bench, max_cpu_time: int, *classes: HostClass, **more: Any) -> None:
    """Set the information of the local CE."""
    attributes = {"GlueHostBenchmarkSI00": 400, "GlueCEPolicyMaxCPUTime": max_cpu_time, **more}
    information = CeInformation(attributes, classes, updated=bench.now, expiry=1e6)
    bench.pool.ces.information["local"] = information


def taken(bench: Bench, **node: Any) -> int:
    """How many jobs a new pilot on this node is offered."""
    paper = bench.pilot(processors=4)
    paper.node = replace(NODE, processors=4, **node)
    return len(paper.take(4))


@pytest.mark.parametrize(
    ("max_cpu_time", "host", "runs"),
    [
        *((500, "n1", False), (500, "n4", False)),
        *((1500, "n1", False), (1500, "n4", True)),
        *((3000, "n1", True), (3000, "n4", True)),
    ],
)
@as_writer()
def test_the_documents_conditional_runs_on_the_valid_hosts(
    bench: Bench, max_cpu_time: int, host: str, runs: bool
) -> None:
    describe(bench, max_cpu_time, SLOW, FAST)
    bench.submit(1, requirements=CONDITIONAL)
    assert taken(bench, hostname=host) == runs


@pytest.mark.parametrize("age", [0.0, 1e7, None])
@pytest.mark.parametrize(
    "requirements",
    [
        'other.GlueCEStateStatus == "Production"',
        "other.GlueCEStateFreeCPUs > 0",
        "other.GlueCEStateEstimatedResponseTime < 86400",
    ],
)
@as_writer()
def test_a_running_pilot_proves_the_state_of_its_ce(
    bench: Bench, requirements: str, age: float | None
) -> None:
    """Otherwise pilots are submitted while the state is unknown, and their job runs on none of them."""
    if age is not None:
        state: dict[str, Value] = {"GlueCEStateStatus": "Production", "GlueCEStateFreeCPUs": 0}
        bench.pool.ces.information["local"] = CeInformation(state, updated=bench.now - age, expiry=1e6)
    bench.submit(1, requirements=requirements)
    assert taken(bench) == 1


@pytest.mark.parametrize(
    ("requirements", "runs_expired"),
    [
        ("other.GlueCEStateWaitingJobs < 10", False),
        ("isUndefined(other.GlueCEStateWaitingJobs) || other.GlueCEStateWaitingJobs < 10", True),
    ],
)
@pytest.mark.parametrize("age", [0.0, 1e7])
@as_writer()
def test_a_running_pilot_proves_nothing_of_the_jobs_of_others(
    bench: Bench, requirements: str, runs_expired: bool, age: float
) -> None:
    state: dict[str, Value] = {"GlueCEStateWaitingJobs": 3}
    bench.pool.ces.information["local"] = CeInformation(state, updated=bench.now - age, expiry=1e6)
    bench.submit(1, requirements=requirements)
    assert taken(bench) == (runs_expired or not age)


@as_writer()
def test_a_known_state_of_the_ce_counts(bench: Bench) -> None:
    describe(bench, 3000, GlueCEStateStatus="Draining", GlueCEStateEstimatedResponseTime=900)
    bench.submit(1, requirements='other.GlueCEStateStatus == "Production"')
    bench.submit(1, requirements="other.GlueCEStateEstimatedResponseTime < 600")
    assert taken(bench) == 0


@as_writer()
def test_a_queue_without_glue_names_is_not_affected(bench: Bench) -> None:
    bench.submit(1, requirements='other.Processors == 4 && other.Site == "here"')
    assert taken(bench) == 1


@as_writer()
def test_new_information_counts_at_the_next_match(bench: Bench) -> None:
    bench.submit(1, requirements=CONDITIONAL)
    paper = bench.pilot()
    assert paper.take() == []
    describe(bench, 500, FAST)
    assert paper.take() == []
    describe(bench, 1500, FAST)
    assert len(paper.take()) == 1


@as_writer()
def test_an_ad_is_made_once_for_an_answer_and_its_hosts_are_indexed_once(bench: Bench) -> None:
    describe(bench, 500, SLOW, FAST)
    first = bench.pool.ce_ad("local", bench.now)
    assert first is not None
    assert bench.pool.ce_ad("local", bench.now + 1) is first
    describe(bench, 1500, SLOW, FAST)
    second = bench.pool.ce_ad("local", bench.now)
    assert second is not None
    assert second is not first
    assert second.host_names is first.host_names
    describe(bench, 1500, SLOW)
    third = bench.pool.ce_ad("local", bench.now)
    assert third is not None
    assert third.host_names is not first.host_names


@as_writer()
def test_facts_that_a_pilot_measured_replace_the_minima_and_never_what_the_ce_fixes(bench: Bench) -> None:
    describe(bench, 500, GlueHostMainMemoryRAMSize=1000)
    wants = "other.GlueHostMainMemoryRAMSize > 30000 && other.GlueCEPolicyMaxCPUTime == 500"
    bench.submit(1, requirements=wants)
    measured = {"GlueHostMainMemoryRAMSize": "32000", "GlueCEPolicyMaxCPUTime": "9999"}
    assert taken(bench) == 0
    assert taken(bench, attributes=measured) == 1


@as_writer()
def test_texts_of_the_schema_stay_texts(bench: Bench) -> None:
    bench.submit(1, requirements='other.GlueHostOperatingSystemRelease == "12"')
    assert taken(bench, attributes={"GlueHostOperatingSystemRelease": "12"}) == 1


@as_writer()
def test_the_batch_system_may_name_the_host(bench: Bench) -> None:
    describe(bench, 1500, SLOW, FAST)
    bench.submit(2, requirements=CONDITIONAL)
    assert taken(bench, hostname="head", attributes={"BatchHost": "n2"}) == 0
    assert taken(bench, hostname="head", attributes={"BatchHost": "all.q@n4"}) == 2


@as_writer()
def test_host_requirements_are_part_of_the_match_and_of_the_queue(bench: Bench) -> None:
    describe(bench, 1500, SLOW, FAST)
    bench.submit(1, requirements="other.GlueCEPolicyMaxCPUTime > 1000")
    bench.submit(
        1,
        requirements="other.GlueCEPolicyMaxCPUTime > 1000",
        host_requirements="other.GlueHostBenchmarkSI00 > 500",
    )
    assert len(bench.pool.queues.index.entries) == 2
    assert taken(bench, hostname="n1") == 1
    assert taken(bench, hostname="n1") == 0
    assert taken(bench, hostname="n4") == 1


@as_writer()
def test_output_se_must_be_close_where_the_ce_tells_its_storage_elements(bench: Bench) -> None:
    bench.submit(1, output_se="se1.example.org")
    bench.submit(1, output_se="se2.example.org")
    describe(bench, 1500, GlueCESEBindGroupSEUniqueID=("se1.example.org",))
    assert taken(bench) == 1
    assert taken(bench) == 0
    # A CE that does not tell them refuses nothing.
    describe(bench, 1500)
    assert taken(bench) == 1


@as_writer()
def test_requirements_see_the_submitting_identity(bench: Bench) -> None:
    describe(bench, 1500, GlueCEAccessControlBaseRule=("VO:EGEE",))
    own = (
        'my.CertificateSubject == "/CN=alice" && my.VirtualOrganisation == "EGEE" && other.AuthorizationCheck'
    )
    bench.submit(1, owner="bob", requirements=own)
    paper = bench.pilot()
    assert paper.send(take=paper.asked()).no_match == {"requirements": 1}
    [job] = bench.submit(1, owner="alice", requirements=own)
    assert [offer.job for offer in paper.take()] == [job]


@as_writer()
def test_one_evaluation_answers_for_all_queues_of_a_text(bench: Bench) -> None:
    describe(bench, 1500, FAST)
    evaluations = 0

    class Counted(dict[str, str]):
        def items(self) -> Any:
            nonlocal evaluations
            evaluations += 1
            return super().items()

    node = replace(NODE, attributes=Counted())
    offer = Offer(site="here", ce="local", cpu_time=1.0)
    holds = requirements_for(bench.pool, offer, node, bench.now)
    assert evaluations == 0
    queues = [QueueIdentity(owner, "physics", requirements=CONDITIONAL) for owner in ("alice", "bob")]
    assert [holds(queue) for queue in queues] == [True, True]
    assert len(holds._known) == 1
    assert evaluations == 1


values = st.one_of(st.integers(0, 3), st.sampled_from(["a", "b"]))
names = st.sampled_from(
    ["GlueCEPolicyMaxCPUTime", "GlueHostBenchmarkSI00", "GlueSubClusterName", "rack", "Tags", "Site"]
)
facts = st.dictionaries(names, values, max_size=4)


@given(facts, st.lists(facts, max_size=2), facts, st.booleans(), st.sampled_from(["n0", "n1", "n7"]))
def test_the_offer_agrees_with_all_that_the_ce_fixes(
    of_ce: dict[str, Any], of_hosts: list[dict[str, Any]], measured: dict[str, Any], alike: bool, host: str
) -> None:
    """Partial evaluation relies on it."""
    classes = tuple(HostClass(1, attributes, (f"n{number}",)) for number, attributes in enumerate(of_hosts))
    information = CeInformation(of_ce, classes, homogeneous=alike, updated=1.0)
    ad = ce_ad("local", Ce(site="here"), information, 1.0)
    found = {name: str(value) for name, value in measured.items()}
    plain = Offer(site="here", ce="local", cpu_time=1.0)
    offer = offer_ad(plain, node_ad(plain, ad, host, "el9", found))
    for name, _ in ad.fixed.attributes:
        expression = parse_expression(name)
        assert evaluate(expression, my=offer) == evaluate(expression, my=ad.fixed), name
    assert len(offer.attributes) == len(offer.index) == len(ClassAd(offer.attributes).index)
    assert ClassAd(offer.attributes).index == offer.index


def test_own_attributes_are_those_of_the_offer_that_no_node_tells() -> None:
    offer = Offer(
        site="here", ce="local", cpu_time=1.0, memory=5, disk=7, tags=frozenset({"gpu"}), pilot_type="private"
    )
    whole = offer_ad(offer, node_ad(offer, None, "n1", "el9", {"Glibc": "2.4"}))
    own = dict(own_attributes(offer))
    assert own == {
        name: value for name, value in whole.attributes if name not in ("Hostname", "Platform", "Glibc")
    }
    assert set(ATTRIBUTES) == own.keys() | {"Hostname", "Platform"}
