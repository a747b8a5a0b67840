"""The director submits by list-match: Requirements against each CE's facts, the CE's own Requirements, and Rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotage.core.brokering.ce_ad import ce_ad
from pilotage.core.brokering.new_pilots import MEASURED
from pilotage.core.classads import evaluate, parse_expression
from pilotage.core.glue.information import CeInformation, HostClass
from pilotage.core.jobs.description import JobDescription
from pilotage.core.policy import Ce, parse
from pilotage.core.provisioning.iteration import Shortfall
from pilotage.core.queues.fit import Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.pilot.host_facts import host_facts
from pilotage.services.director.ce_director import CeDirector
from pilotage.services.director.demand import Iteration
from pilotage.services.director.iteration_orders import IterationOrders
from pilotage.services.director.iteration_report import report
from pilotage.services.director.ordering import order_pilots
from pilotage.services.matching.known_offers import known_offers
from pilotage.services.policy.apply import apply_policy
from pilotage.services.pool.brokering import PoolBroker
from pilotage.services.submission.warnings import submission_warnings
from pilotage.services.why.requirement_refusals import requirement_refusals
from tests.unit.services.bench import NODE, POLICY, Bench
from tests.unit.services.iterations import run_iteration

NAMES = ("c500", "c1500", "c3000")
CES = "".join(
    f"""
[ces.{name}]
site = "here"
type = "slurm"
owners = "any"
max_waiting = 50
max_running = 60
"""
    for name in NAMES
)
DIRECTOR = """
[director]
demand = "dirac"
DefaultSubmitPools = ["Batch"]
PrivatePilotFraction = 0
extraPilots = 0
extraPilotFraction = 0
[director.pools.Batch]
EnableListMatch = true
"""
CONDITIONAL = (
    "other.GlueHostBenchmarkSI00 > 500"
    " ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"
)


class Grid:
    """Three CEs in one pool, with the facts that a test gives them."""

    def __init__(self, folder: Path, director: str = DIRECTOR) -> None:
        self.bench = Bench(folder, POLICY + CES + director)
        for name in NAMES:
            entry = CeDirector(name, IterationOrders(NODE.platform))
            self.bench.do(lambda tx, entry=entry: order_pilots(entry, self.bench.pool, tx, self.bench.now))

    def tell(self, name: str, hosts: Sequence[int] | None = (400, 600), **attributes: Any) -> None:
        """`hosts`: the SI00 of each class of hosts; None: classes are not known."""
        classes = tuple(HostClass(4, {"GlueHostBenchmarkSI00": power}) for power in hosts or ())
        facts = CeInformation(attributes, classes, updated=self.bench.now)
        self.bench.do(lambda tx: tx.put(self.bench.pool.ces.information, name, facts))

    def tell_limits(self, hosts: Sequence[int] | None = (400, 600)) -> None:
        for name in NAMES:
            self.tell(name, hosts, GlueCEPolicyMaxCPUTime=int(name[1:]))

    def apply(self, text: str) -> None:
        bench = self.bench
        bench.do(
            lambda tx: apply_policy(bench.pool, tx, parse(text), text, by="alice", reason="", now=bench.now)
        )

    def compute(self, seed: int = 1) -> Iteration:
        bench = self.bench
        work: Iteration = bench.do(
            lambda tx: run_iteration(bench.pool, tx.connection, Random(seed), bench.now)
        )
        return work

    def chosen(self, seed: int = 1) -> list[str]:
        """The CEs of the only queue's pilots, in the order of the orders."""
        [decision] = self.compute(seed).decisions
        return [order.ce for order in decision.orders]

    def verdicts(self) -> dict[str, str]:
        work = self.compute()
        [decision] = work.decisions
        told = report(work, seed=1, number=None, queue=decision.queue.id, limit=1).queues[0]
        return {name: told.ces[name] for name in NAMES}


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    return Grid(tmp_path)


def test_the_conditional_of_the_document_goes_where_it_can_be_true(grid: Grid) -> None:
    grid.tell_limits()
    grid.bench.submit(200, requirements=CONDITIONAL)
    assert sorted(grid.chosen()) == ["c1500", "c3000"]
    grid.tell("c1500", (400,), GlueCEPolicyMaxCPUTime=1500)
    assert grid.chosen() == ["c3000"]
    verdicts = grid.verdicts()
    assert verdicts["c500"].startswith(
        "the Requirements cannot be true there: other.GlueCEPolicyMaxCPUTime > "
    )
    assert "GlueHostBenchmarkSI00 = 400" in verdicts["c1500"]
    assert verdicts["c3000"] == ""


def test_hosts_that_nobody_knows_may_fit(grid: Grid) -> None:
    """Before, a condition on a node was false until a pilot ran there, so none was ever started."""
    grid.tell_limits(None)
    grid.bench.submit(200, requirements=CONDITIONAL)
    assert sorted(grid.chosen()) == ["c1500", "c3000"]


@pytest.mark.parametrize(
    "requirements", ['other.CPUModel == "x"', 'regexp("^wn", other.Hostname)', 'other.Platform == "el99"']
)
def test_an_attribute_that_only_the_pilot_finds_is_unknown(grid: Grid, requirements: str) -> None:
    grid.tell_limits()
    grid.bench.submit(1, requirements=requirements)
    assert grid.compute().decisions[0].shortfall is Shortfall.NONE


def test_requirements_that_can_be_true_nowhere_get_no_pilot_and_a_reason(grid: Grid) -> None:
    grid.tell_limits()
    grid.bench.submit(1, requirements="other.GlueCEPolicyMaxCPUTime > 5000")
    work = grid.compute()
    [decision] = work.decisions
    assert (decision.shortfall, decision.orders) == (Shortfall.IMPOSSIBLE, ())
    assert work.refusals == {decision.queue.id: str(Shortfall.IMPOSSIBLE)}


def test_a_ce_that_is_not_in_production_is_closed(grid: Grid) -> None:
    grid.tell("c500", GlueCEStateStatus="Draining")
    grid.tell("c1500", GlueCEStateStatus="Production")
    grid.tell("c3000", GlueCEStateStatus="Closed")
    grid.bench.submit(60)
    assert grid.chosen() == ["c1500"]
    assert grid.verdicts() == {"c500": "its state is Draining", "c1500": "", "c3000": "its state is Closed"}


def test_a_full_ce_gets_nothing_and_has_not_failed(grid: Grid) -> None:
    for name, total in zip(NAMES, (10, 7, 12), strict=True):
        grid.tell(name, GlueCEStateTotalJobs=total, GlueCEPolicyMaxTotalJobs=10, GlueCEStateFreeCPUs=0)
    grid.bench.submit(60)
    work = grid.compute()
    [decision] = work.decisions
    assert [(order.ce, order.pilots) for order in decision.orders] == [("c1500", 3)]
    assert decision.shortfall is Shortfall.LITTLE_ROOM
    assert grid.verdicts()["c500"] == (
        "it is full: GlueCEStateTotalJobs is 10, and GlueCEPolicyMaxTotalJobs 10"
    )
    grid.tell("c1500", GlueCEStateRunningJobs=5, GlueCEPolicyMaxRunningJobs=5)
    assert grid.compute().decisions[0].shortfall is Shortfall.NO_ROOM


def test_expired_facts_are_neither_full_nor_closed(grid: Grid) -> None:
    for name in NAMES:
        grid.tell(name, GlueCEStateStatus="Closed", GlueCEPolicyMaxCPUTime=int(name[1:]))
    grid.bench.submit(60, requirements="other.GlueCEPolicyMaxCPUTime >= 1500")
    assert grid.compute().decisions[0].shortfall is Shortfall.CLOSED
    grid.bench.now += 1000
    assert sorted(grid.chosen()) == ["c1500", "c3000"]


def test_the_shortest_estimated_response_comes_first_and_none_comes_last(grid: Grid) -> None:
    grid.tell("c500", GlueCEStateEstimatedResponseTime=600)
    grid.tell("c1500")
    grid.tell("c3000", GlueCEStateEstimatedResponseTime=5)
    grid.bench.submit(200)
    assert grid.chosen() == ["c3000", "c500", "c1500"]
    ranks = {ce.name: ce.rank for ce in report(grid.compute(), seed=1, number=None, queue=None, limit=1).ces}
    assert (ranks["c500"], ranks["c1500"], ranks["c3000"]) == (-600, None, -5)


def test_another_rank_changes_the_choice(grid: Grid) -> None:
    for name, free in zip(NAMES, (3, 9, 6), strict=True):
        grid.tell(name, GlueCEStateFreeCPUs=free)
    grid.bench.submit(200)
    for rank, expected in (
        ("other.GlueCEStateFreeCPUs", ["c1500", "c3000", "c500"]),
        ("-GlueCEStateFreeCPUs - WaitingPilots", ["c500", "c3000", "c1500"]),
    ):
        grid.apply(POLICY + CES + DIRECTOR + f"Rank = '{rank}'\n")
        assert grid.chosen() == expected


def test_demand_matched_follows_rank_too(tmp_path: Path) -> None:
    """Before, EnableListMatch counted with demand `dirac` only."""
    grid = Grid(tmp_path, DIRECTOR.replace('"dirac"', '"matched"'))
    for name, wait in zip(NAMES, (600, 5, 60), strict=True):
        grid.tell(name, GlueCEStateEstimatedResponseTime=wait)
    grid.bench.submit(60)
    [decision] = grid.compute().decisions
    assert [(order.ce, order.pilots) for order in decision.orders] == [("c1500", 50), ("c3000", 10)]


def test_equal_ranks_are_drawn(grid: Grid) -> None:
    grid.bench.submit(5)
    assert {grid.chosen(seed)[0] for seed in range(40)} == set(NAMES)


USERS = """
[users.carol]
groups = ["egee"]
subject = "/CN=carol"
[groups.egee]
vo = "EGEE"
"""


def test_a_ce_refuses_other_virtual_organisations_with_and_without_list_match(tmp_path: Path) -> None:
    for number, director in enumerate((DIRECTOR, DIRECTOR.replace("EnableListMatch = true", ""))):
        folder = tmp_path / str(number)
        folder.mkdir()
        grid = Grid(folder, USERS + director)
        grid.tell("c500", GlueCEAccessControlBaseRule=("VO:EGEE",))
        grid.tell("c1500", GlueCEAccessControlBaseRule=("/CN=carol",))
        grid.tell("c3000", GlueCEAccessControlBaseRule=("VO:CMS",))
        grid.bench.submit(100, owner="carol", group="egee")
        assert sorted(grid.chosen()) == ["c1500", "c500"]
        assert "the submitting identity" in grid.verdicts()["c3000"]
        grid.bench.submit(1, owner="alice")
        by_owner = {decision.queue.identity.owner: decision for decision in grid.compute().decisions}
        assert by_owner["alice"].shortfall is Shortfall.REFUSED


def test_generic_pilots_are_refused_by_their_own_identity(tmp_path: Path) -> None:
    generic = 'GenericPilotDN = "/CN=pilots"\nGenericPilotGroup = "egee"\n'
    grid = Grid(tmp_path, USERS + DIRECTOR.replace("[director.pools", generic + "[director.pools"))
    grid.tell("c500", GlueCEAccessControlBaseRule=("/CN=pilots",))
    grid.tell("c1500", GlueCEAccessControlBaseRule=("VO:EGEE",))
    grid.tell("c3000", GlueCEAccessControlBaseRule=("alice",))
    grid.bench.submit(100, owner="alice", force_generic=True)
    assert sorted(grid.chosen()) == ["c1500", "c500"]
    private = grid.bench.submit(100, owner="alice", pilot_types=("private",))
    assert private
    by_type = {decision.pilot_type: decision.orders for decision in grid.compute().decisions}
    assert [order.ce for order in by_type["private"]] == ["c3000"]


def test_both_demands_ask_the_broker(tmp_path: Path) -> None:
    grid = Grid(tmp_path, DIRECTOR.replace('"dirac"', '"matched"'))
    grid.tell_limits()
    grid.bench.submit(30, requirements=CONDITIONAL)
    assert set(grid.chosen()) == {"c1500", "c3000"}
    grid.tell_limits((400,))
    assert set(grid.chosen()) == {"c3000"}
    for name in NAMES:
        grid.tell(name, (), GlueCEPolicyMaxCPUTime=500)
    assert grid.compute().decisions[0].shortfall is Shortfall.IMPOSSIBLE


def test_requirements_may_ask_for_the_type_of_the_pilot(tmp_path: Path) -> None:
    grid = Grid(tmp_path, DIRECTOR.replace("PrivatePilotFraction = 0", "PrivatePilotFraction = 1"))
    grid.bench.submit(1, requirements='other.PilotType == "private"')
    assert grid.compute().decisions[0].shortfall is Shortfall.NONE
    grid.apply(POLICY + CES + DIRECTOR)
    assert grid.compute().decisions[0].shortfall is Shortfall.IMPOSSIBLE


def test_the_attributes_that_pilots_measure_are_known() -> None:
    """A GLUE attribute that a pilot reports and that is not named as measured would never match before it starts."""
    reported = {name.lower() for name in host_facts() if name.startswith("Glue")}
    assert reported <= MEASURED


def test_a_job_that_hosts_may_satisfy_is_not_told_that_no_node_fits(grid: Grid) -> None:
    """Possible offers, as `why` and the warnings of a submission ask them, agree with the director."""
    grid.tell_limits()
    for requirements, may_fit in (
        (CONDITIONAL, True),
        ('other.CPUModel == "x"', True),
        ('other.GlueHostBenchmarkSI00 > 700 && other.GridCE != "local"', False),
        ("other.GlueCEPolicyMaxCPUTime > 5000000", False),
    ):
        identity = QueueIdentity("alice", "physics", requirements=requirements)
        known = known_offers(grid.bench.pool, grid.bench.now)
        of_batch = [offer for offer in known if offer.offer.ce in NAMES]
        assert len(of_batch) == 2 * len(NAMES)
        assert any(offer.fits(identity) for offer in of_batch) == may_fit
        description = JobDescription(executable="true", requirements=requirements)
        warnings = submission_warnings(description, [], identity, grid.bench.pool.policy, of_batch)
        assert any("no known node fits" in warning for warning in warnings) != may_fit


def test_a_job_that_no_host_satisfies_is_told_the_values_that_said_no(grid: Grid) -> None:
    grid.tell_limits()
    identity = QueueIdentity("alice", "physics", requirements="other.GlueHostBenchmarkSI00 > 700")
    pool, now = grid.bench.pool, grid.bench.now
    known = [offer for offer in known_offers(pool, now) if offer.offer.ce in NAMES]
    refusals = requirement_refusals(identity, pool.policy, known, lambda name: pool.ce_ad(name, now), now)
    texts = {entry.ce: [part.text for part in entry.refusals] for entry in refusals}
    assert "GlueHostBenchmarkSI00 = 400" in texts["c3000"][0]


TERMS = (
    *(f"other.GlueHostBenchmarkSI00 {op} {value}" for op in (">", "<=", "==") for value in (400, 600)),
    *(f"other.GlueCEPolicyMaxCPUTime {op} {value}" for op in (">", "<") for value in (1000, 2000)),
    'other.GridCE == "c1500"',
    "isUndefined(other.GlueHostBenchmarkSI00)",
)
expressions = st.recursive(
    st.sampled_from(TERMS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(("&&", "||")), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})"),
    ),
    max_leaves=5,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(expressions, st.lists(st.lists(st.sampled_from((400, 500, 600)), max_size=2), min_size=3, max_size=3))
def test_pilots_go_only_where_a_class_of_hosts_makes_requirements_true(
    grid: Grid, requirements: str, hosts: list[list[int]]
) -> None:
    """Also the other way round: without list-match a CE that no order names has no such class."""
    for name, of_ce in zip(NAMES, hosts, strict=True):
        grid.tell(name, of_ce, GlueCEPolicyMaxCPUTime=int(name[1:]))
    jobs = grid.bench.submit(200, requirements=requirements)
    chosen = set(grid.chosen())
    expression = parse_expression(requirements)
    for name, of_ce in zip(NAMES, hosts, strict=True):
        ad = grid.bench.pool.ce_ad(name, grid.bench.now)
        assert ad is not None
        fitting = [host for host in ad.hosts if evaluate(expression, target=host.ad) is True]
        if of_ce:
            assert (name in chosen) == bool(fitting)
    grid.bench.act("kill", *jobs)


def test_ces_are_forgotten_while_other_threads_add_some() -> None:
    broker = PoolBroker()
    offer = Offer(site="here", ce="a", cpu_time=1.0)
    ads = [ce_ad(name, Ce(site="here"), CeInformation(), 0.0) for name in "abc"]

    class Names(frozenset[str]):
        def __contains__(self, name: object) -> bool:
            broker.ce(ads[2], offer)
            return super().__contains__(name)

    kept, _ = broker.ce(ads[0], offer), broker.ce(ads[1], offer)
    broker.retain(Names("a"))
    assert broker.ce(ads[0], offer) is kept
