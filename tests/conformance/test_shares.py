"""DIRAC's own cases of priorities and share corrections, asked of Pilotage.

Answered otherwise on purpose, each with a test of what Pilotage answers instead:

- *sum, not mean*: the document adds the UserPriorities of a queue up, so that three jobs of priority 1 weigh as much
  as one of 3 (`priority:user priority 1 versus 5`, `priority:two users` is the same in both);
- *queues alike but for their sites* are two queues that divide what one would get: DIRAC gives each the sum, so that
  spreading a workload over k lists of sites multiplies its weight by k;
- *linear*: UserPriority is 0 to 10 as it stands: no 10 → 1e6, no 0 → 1e-5, and no floor of 0.001 below a priority;
- *absent entity weighted*: the document's formula weights the correction of who is absent from a slice like any other
  (`newcomer C absent from history`, `newcomer only absent in the hour`): DIRAC adds the slice's maximum whole;
- *MaxGlobalCorrectionFactor*, the document's name, is read: DIRAC ignores it and takes 5;
- what DIRAC clamps at its global bound for that reason alone (`newcomer …`: 3000) stays below it here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from pilotage.core.queues.identity import QueueIdentity, cpu_bucket
from pilotage.core.shares.correction import Facts, correct
from pilotage.core.shares.correctors.wms_history import CorrectionSlice, HistoryInstance
from pilotage.core.shares.priorities import Priorities
from pilotage.core.shares.use import Use
from tests.conformance.recorded import dirac_suites

HOUR, DAY = 3600, 86400
CPU_BUCKETS = (
    *(360, 1800, HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 3 * DAY, 4 * DAY),
    *(6 * DAY, 8 * DAY, 10 * DAY, 25 * DAY // 2),
)
REGISTRY = {"myGroup": 1000.0, "group00": 1000.0, "group03": 1000.0}
SHARING = frozenset({"group03"})


def named(suite: str) -> dict[str, dict[str, Any]]:
    return {case["name"]: case for case in dirac_suites()[suite]["cases"]}


RECORDED = named("priority/recorded-9.1.22")
CALCULATED = named("priority/calculate_priority")
CORRECTED = named("shares/correction")

# --- priorities, recorded: what Pilotage answers where it is not what DIRAC does

Answer = dict[tuple[str, int, frozenset[str]], float]
"""By owner, CPU bucket and sites."""

NO_SITES: frozenset[str] = frozenset()

OTHERWISE: dict[str, Answer] = {
    # Alike but for their sites: together what one queue would get, where DIRAC gives each the sum.
    "priority:one user two TQs same requirements but Sites": {
        ("a", 21600, frozenset({"S1"})): 500.0,
        ("a", 21600, frozenset({"S2"})): 500.0,
    },
    # The sum, not the mean: 3 of 8 and 5 of 8, where DIRAC has 1 of 6 and 5 of 6.
    "priority:user priority 1 versus 5, AVG of RealPriority": {
        ("a", 21600, NO_SITES): 375.0,
        ("a", 86400, NO_SITES): 625.0,
    },
    # Linear, 0 to 10, without a floor: 0, 10 and 5 of 15, where DIRAC makes 1e-5, 1e6 and 5 of them.
    "priority:user priority extremes 0 and 10": {
        ("a", 21600, NO_SITES): 0.0,
        ("a", 86400, NO_SITES): 1000 * 10 / 15,
        ("a", 1800, NO_SITES): 1000 * 5 / 15,
    },
}


def answered(case: dict[str, Any]) -> Answer:
    priorities: Priorities[QueueIdentity] = Priorities(REGISTRY, SHARING)
    weights, jobs = Counter[QueueIdentity](), Counter[QueueIdentity]()
    for part in case["jobs"]:
        wanted = part["job"]
        identity = QueueIdentity(
            owner=wanted["Owner"],
            group=wanted["OwnerGroup"],
            cpu_time=cpu_bucket(wanted["CPUTime"], CPU_BUCKETS),
            sites=frozenset(wanted.get("Sites", ())),
            tags=frozenset(),
        )
        weights[identity] += part["userPriority"] * part["count"]
        jobs[identity] += part["count"]
        priorities.set(identity, identity.owner, identity.group, weights[identity], jobs[identity])
    return {
        (queue.owner, queue.cpu_time, queue.sites): priority for queue, priority in priorities.recompute()
    }


@pytest.mark.parametrize("name", RECORDED)
def test_diracs_recorded_priorities(name: str) -> None:
    case = RECORDED[name]
    theirs: Answer = {
        (queue["Owner"], queue["CPUTime"], frozenset(queue.get("Sites", ()))): queue["Priority"]
        for queue in case["queues"]
    }
    ours = answered(case)
    if name in OTHERWISE:
        assert ours == pytest.approx(OTHERWISE[name], rel=1e-15)
        assert ours != pytest.approx(theirs, abs=1e-3), "answered as DIRAC does: no longer an exception"
    else:
        assert ours == pytest.approx(theirs, abs=1e-3)  # DIRAC's are recorded to three digits


# --- priorities, calculated: DIRAC's test gives means; here each queue has one job of that UserPriority or one sum

CALCULATED_OTHERWISE: dict[str, tuple[Sequence[int], Sequence[float]]] = {
    # (sums of UserPriority, parts of the share): alike queues divide the share, where DIRAC gives it to each whole.
    "same requirements, different user priority": ((30, 20, 3), (30 / 53, 20 / 53, 3 / 53)),
    # Numbers of jobs do matter within an entity: 100 of 3, 14 of 2 and 154 of 0.3 (as 3 of 10).
    "same requirements, job counts 100/14/154 do not matter": (
        (3000, 280, 462),
        (3000 / 3742, 280 / 3742, 462 / 3742),
    ),
}


def parts(sums: Sequence[int], share: float) -> list[float]:
    priorities: Priorities[int] = Priorities({"group": share}, frozenset())
    for queue, weight in enumerate(sums):
        priorities.set(queue, "a", "group", weight, 1)
    return [priority for _, priority in sorted(priorities.recompute())]


@pytest.mark.parametrize("name", CALCULATED)
def test_diracs_calculated_priorities(name: str) -> None:
    case = CALCULATED[name]
    means, expected = case["meanUserPriorityOfQueue"], case["expected"]
    for share in case["shares"]:
        if name in CALCULATED_OTHERWISE:
            assert expected["allQueuesGet"] == "share"
            sums, ours = CALCULATED_OTHERWISE[name]
            assert parts(sums, share) == pytest.approx([part * share for part in ours], rel=1e-15)
            assert sum(parts(sums, share)) == pytest.approx(share, rel=1e-15)
            continue
        found = parts([int(mean) for mean in means], share)
        if "allQueuesGet" in expected:
            assert expected["allQueuesGet"] == "share/3"
            assert found == pytest.approx([share / 3] * 3, rel=1e-15)
        else:
            wanted = expected["perQueue"] if "perQueue" in expected else expected["priorities"]
            assert found == pytest.approx([float(one.removesuffix("*share")) * share for one in wanted])


# --- corrections

CORRECTED_OTHERWISE: dict[str, dict[str, float]] = {
    # Absent in both slices: .8·2 + .2·5 = 2.6, where DIRAC adds 2 + 5 and clamps that at 3.
    "shares:newcomer C absent from history": {"A": 2000 / 3, "B": 2000 / 3, "C": 2600.0},
    # Absent in the hour, at its share in the week: .8 + .2·5 = 1.8, where DIRAC adds .8 + 5 and clamps that at 3.
    "shares:newcomer only absent in the hour": {"A": 900.0, "B": 1800.0},
    # The document's MaxGlobalCorrectionFactor = 3 holds, where DIRAC takes 5: .5/.01 is far above either.
    "shares:documented option name MaxGlobalCorrectionFactor is not read": {
        "A": 3000.0,
        "B": 1000 * 0.5 / 0.99,
    },
}


def corrected(case: dict[str, Any]) -> dict[str, float]:
    spans = {name: float(part["TimeSpan"]) for name, part in case["slices"].items()}
    most = case.get("MaxGlobalCorrection", case.get("MaxGlobalCorrectionFactor"))
    slices = {
        name: CorrectionSlice(
            time_span=spans[name], weight=part["Weight"], max_correction=part["MaxCorrection"]
        )
        for name, part in case["slices"].items()
    }
    running = {
        spans[name]: {("a", group): float(jobs) for group, jobs in use.items()}
        for name, use in case["history"].items()
    }
    shares = {group: float(share) for group, share in case["expectedShares"].items()}
    facts = Facts(
        shares=shares,
        owners=frozenset(("a", group) for group in shares),
        admits=lambda owner, group: True,
        use=lambda span: Use(running[span], running[span]),
        decayed_use=lambda half_life: Use({}, {}),
        elapsed=600.0,
    )
    instance = HistoryInstance(max_global_correction_factor=most, slices=slices)  # type: ignore[arg-type]
    found = correct(["WMSHistory"], {"WMSHistory": {"Groups": instance}}, facts, {})
    return {group: share * found.groups[group] for group, share in shares.items()}


@pytest.mark.parametrize("name", CORRECTED)
def test_diracs_corrections(name: str) -> None:
    case = CORRECTED[name]
    ours, theirs = corrected(case), case["corrected"]
    if name in CORRECTED_OTHERWISE:
        assert ours == pytest.approx(CORRECTED_OTHERWISE[name], rel=1e-12)
        assert ours != pytest.approx(theirs), "answered as DIRAC does: no longer an exception"
    else:
        assert ours == pytest.approx(theirs, rel=1e-12)


def test_each_exception_is_a_case() -> None:
    assert RECORDED.keys() >= OTHERWISE.keys()
    assert CALCULATED.keys() >= CALCULATED_OTHERWISE.keys()
    assert CORRECTED.keys() >= CORRECTED_OTHERWISE.keys()
