"""DIRAC's own cases of the pilots that waiting jobs need, asked of both demands.

A SiteDirector of DIRAC serves one virtual organisation. Here a group is one, and one iteration serves all groups. So
the pilots for the queues of the case's group are compared. DIRAC's rule: the waiting jobs of the group, minus its
waiting pilots, and at least 0.

- Demand `matched` answers all cases as DIRAC does.
- Demand `dirac` differs on purpose. "DIRAC Taskqueue Director" allows more waiting pilots than jobs
  (extraPilotFraction, extraPilots), and it counts a waiting pilot for its own queue only. Without extra
  pilots its cap for one queue is DIRAC's rule. Of two queues, pilots that wait for one do not cover the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from pilotage.core.ids import QueueId
from pilotage.core.policy.director import Demand, Director
from pilotage.core.policy.model import PilotType
from pilotage.core.provisioning.demand import DemandQueue
from pilotage.core.provisioning.iteration import CeLoad, IterationFacts, Mask, Shortfall, decide
from pilotage.core.provisioning.matched import FreePilots, decide_matched
from pilotage.core.provisioning.submit_pools import PoolLoad
from pilotage.core.queues.fit import Offer
from pilotage.core.queues.identity import QueueIdentity
from tests.conformance.recorded import dirac_suites

SUITE = "pilots/needed"
GROUP = "dteam"
"""The virtual organisation of the cases."""
ROOM = 1000


CASES: list[dict[str, Any]] = dirac_suites()[SUITE]["cases"]


class Everywhere:
    """All queues of the cases fit the one CE."""

    def ces(self, queue: DemandQueue, pilot_type: PilotType) -> Mask:
        return np.ones(1, dtype=np.bool_)

    def may_match(self, queue: DemandQueue, ce: int, pilot_type: PilotType) -> bool:
        return True

    def is_paused(self, queue: DemandQueue, ce: int) -> bool:
        return False

    def obstacle(self, queue: DemandQueue, pilot_type: PilotType, ces: Sequence[int]) -> Shortfall:
        return Shortfall.NO_CE


def queues_of(case: dict[str, Any], waiting: Sequence[int] = ()) -> list[DemandQueue]:
    """`waiting`: pilots that wait for the queues of the group, in their order."""
    left = iter(waiting)
    return [
        DemandQueue(
            QueueId(number),
            QueueIdentity(f"owner{number}", group),
            1000.0,
            jobs,
            next(left, 0) if group == GROUP else 0,
        )
        for number, (jobs, group) in enumerate(case["queues"], 1)
    ]


def facts_of(demand: Demand, queues: Sequence[DemandQueue], **settings: Any) -> IterationFacts:
    ce = CeLoad("ce", "Batch", "slurm", Offer("here", "ce", 1e6), frozenset(("private", "generic")), ROOM)
    director = Director(demand=demand, **settings)
    return IterationFacts(director, ("Batch",), 300000.0, queues, [ce], {"Batch": PoolLoad("Batch", 100)})


def matched(case: dict[str, Any]) -> int:
    """The pilots that demand `matched` submits for the group."""
    free = [FreePilots(0, "private", started=0, waiting=case["waitingPilots"], group=GROUP)]
    steps = decide_matched(facts_of("matched", queues_of(case)), Everywhere(), free, Random(1))
    decisions = [decision for decision in steps if decision is not None]
    return sum(decision.submitted for decision in decisions if decision.queue.identity.group == GROUP)


def document(case: dict[str, Any], waiting: Sequence[int], **settings: Any) -> int:
    """The pilots that demand `dirac` submits for the group. The means are so high that the caps decide."""
    facts = facts_of("dirac", queues_of(case, waiting), pilots_per_iteration=10000, **settings)
    decisions = decide(facts, Everywhere(), Random(1))
    return sum(decision.submitted for decision in decisions if decision.queue.identity.group == GROUP)


def own(case: dict[str, Any]) -> list[int]:
    """The waiting jobs of each queue of the group."""
    return [jobs for jobs, group in case["queues"] if group == GROUP]


def told(case: dict[str, Any]) -> str:
    return f"{case['queues']}, {case['waitingPilots']} waiting"


@pytest.mark.parametrize("case", CASES, ids=told)
def test_demand_matched_submits_as_many_pilots_as_diracs_rule(case: dict[str, Any]) -> None:
    assert matched(case) == case["expected"]


@pytest.mark.parametrize("case", [case for case in CASES if len(own(case)) < 2], ids=told)
def test_demand_document_without_extra_pilots_follows_diracs_rule_for_one_queue(case: dict[str, Any]) -> None:
    answer = document(case, [case["waitingPilots"]], extra_pilot_fraction=0.0, extra_pilots=0)
    assert answer == case["expected"]


@pytest.mark.parametrize("case", [case for case in CASES if len(own(case)) < 2], ids=told)
def test_demand_document_allows_extra_pilots(case: dict[str, Any]) -> None:
    """At most int(1.2 · jobs) + 4 wait: 16 instead of 10, and 11 instead of 5."""
    allowed = [int(1.2 * jobs) + 4 for jobs in own(case)]
    assert document(case, [case["waitingPilots"]]) == max(0, sum(allowed) - case["waitingPilots"])


def test_demand_document_counts_a_waiting_pilot_for_its_own_queue() -> None:
    """8 and 2 jobs and 10 pilots: DIRAC needs none, wherever they wait. All for the first queue cover 8 jobs here."""
    [case] = [case for case in CASES if len(own(case)) == 2 and case["waitingPilots"]]
    assert (own(case), case["waitingPilots"], case["expected"]) == ([8, 2], 10, 0)
    no_extra = {"extra_pilot_fraction": 0.0, "extra_pilots": 0}
    assert document(case, [8, 2], **no_extra) == 0
    assert document(case, [10, 0], **no_extra) == 2
