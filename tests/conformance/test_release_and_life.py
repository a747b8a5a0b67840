"""WMCore's cases of the release, of retries, and of the life of elements and requests, asked of Pilotage.

Answered otherwise on purpose:

- *SUB-02 E*: the overflow is a part of the limit. WMCore adds it to the jobs that already wait, so it grows with them.
- *SUB-05, all sites down or aborted*: WMCore fails the job. Here it stays made, since a site that is down comes back,
  and `why` names the reason.
- *LIFE-03 assigned to acquired*: staging is optional here.
- *LIFE-02 neg+done*: answered as the recorded note asks, where WMCore raises.

LIFE-05, the cancellation, needs a store: tests/unit/services/test_changed_requests.py has it.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from pilotage.core.requests.retries import FailedTry, FailureClass, PauseRule, RetryRules, after_failed_try
from pilotage.core.requests.states import REQUEST_STATES, RequestState
from pilotage.core.sites import SiteState
from pilotage.core.workqueue.release import (
    AgentLoads,
    JobRelease,
    Limits,
    ReleaseGroup,
    ReleasePass,
    ReleaseRefusal,
    ReleaseRules,
    usable_sites,
)
from pilotage.core.workqueue.roll_up import CANCELING, PartProgress, progress_of_whole, state_of_request
from pilotage.core.workqueue.states import ElementState
from tests.conformance.recorded import wmcore_scenarios
from tests.unit.services.bench import Bench
from tests.unit.services.request_bench import RequestBench

STAGING_IS_OPTIONAL = ("assigned->acquired",)


CASES = wmcore_scenarios()

STOPS = {
    "NoPendingSlot": ReleaseRefusal.PENDING,
    "NoTaskPendingSlot": ReleaseRefusal.TYPE_PENDING,
    "NoRunningSlot": ReleaseRefusal.ALL,
    "NoTaskRunningSlot": ReleaseRefusal.TYPE_ALL,
}
ON_PURPOSE = {"E higher prio, already 80 pending": (0, ReleaseRefusal.PENDING)}
OTHER_TYPE = "another type"


def release(loads: AgentLoads, job_type: str, priority: int, count: int) -> int:
    return len(pass_over(loads, ReleaseGroup(job_type, priority, 1, frozenset({"S"}), iter(range(count)))))


def pass_over(loads: AgentLoads, *groups: ReleaseGroup) -> list[JobRelease]:
    one_pass = ReleasePass(loads, Random(1))
    for place, group in enumerate(groups):
        one_pass.add(place, group)
    return one_pass.take(10_000)


@pytest.mark.parametrize("name", CASES["SUB-02"]["given"]["rows"])
def test_a_site_takes_jobs_up_to_the_first_limit(name: str) -> None:
    case = CASES["SUB-02"]
    row = dict(zip(case["given"]["columns"], case["given"]["rows"][name], strict=True))
    limits = Limits(*(row[f"{scope}_{kind}_slots"] for scope in ("site", "task") for kind in ("pend", "run")))
    loads = AgentLoads(lambda _site, _type: limits, ReleaseRules(overflow=0.2))
    job_type, active = row["type"], row["highest_active_prio"]
    loads.add(1, "S", job_type, active or 0, pending=row["task_pend"], running=row["task_run"])
    others = {kind: row[f"site_{kind}"] - row[f"task_{kind}"] for kind in ("pend", "run")}
    loads.add(1, "S", OTHER_TYPE, 0, pending=others["pend"], running=others["run"])
    if active is None:
        loads.loads[1, "S"].types[job_type].priorities.clear()
    expected = case["expect"][name]
    number, stop = ON_PURPOSE.get(name, (expected["submittable"], STOPS[expected["stop"]]))
    assert release(loads, job_type, row["job_prio"], 1000) == number
    reached = loads.reached_limit(1, "S", job_type, row["job_prio"])
    assert (reached and reached.refusal) is stop


def test_merges_have_their_own_limits_beside_processing() -> None:
    given, expected = CASES["SUB-01"]["given"], CASES["SUB-01"]["expect"]
    site = given["site"]

    def limits(_site: str, job_type: str) -> Limits:
        return Limits(
            site["pending"], site["running"], given[job_type]["pending"], given[job_type]["running"]
        )

    loads = AgentLoads(limits, ReleaseRules())
    waiting = {"Processing": 50, "Merge": 0}
    active = {"Processing": 0, "Merge": 0}

    def cycle() -> None:
        groups = [
            ReleaseGroup(kind, 1, 1, frozenset({"S"}), iter(range(count))) for kind, count in waiting.items()
        ]
        kinds = list(waiting)
        for job in pass_over(loads, *groups):
            waiting[kinds[job.group]] -= 1
            active[kinds[job.group]] += 1

    cycle()
    first = expected["after1"]["Processing"]
    assert (active["Processing"], waiting["Processing"]) == (first["submitted"], first["left"])
    waiting["Merge"] = 10
    cycle()
    assert (active["Merge"], waiting["Merge"]) == (
        expected["after2"]["Merge"]["submitted"],
        expected["after2"]["Merge"]["left"],
    )
    waiting["Processing"] += 300
    waiting["Merge"] += 300
    for _ in range(5):
        for kind, load in loads.loads[1, "S"].types.items():
            loads.add(1, "S", kind, 1, pending=-load.pending, running=load.pending)
        cycle()
    for kind, counts in expected["after5cycles"].items():
        assert (active[kind], waiting[kind]) == (counts["active"], counts["left"])


def test_draining_sites_take_only_jobs_without_another_choice() -> None:
    uses = {"S1": SiteState.DRAIN}
    assert usable_sites(("S1", "S2", "S3", "S4"), uses) == {"S2", "S3", "S4"}
    assert usable_sites(("S1",), uses) == {"S1"}
    assert not usable_sites(("S1",), {"S1": SiteState.DOWN})


@pytest.mark.parametrize("name", CASES["RETRY-01"]["expect"])
def test_a_cooloff_ends_after_its_pause(name: str, tmp_path: Path) -> None:
    """The rule gives the pause, and the statement of the release duty takes the jobs whose pause is over."""
    case = CASES["RETRY-01"]
    base = dict.fromkeys(FailureClass, float(case["given"]["base_s"]))
    rules = RetryRules(retries=99, rule=PauseRule(name.lower()), bases=base)
    bench = Bench(tmp_path)
    of_requests = RequestBench(bench)
    element = of_requests.element(of_requests.request(), 1)
    for moment, expected in case["expect"][name].items():
        retry, elapsed = (int(text.removeprefix(label)) for text, label in zip(
            moment.split("_"), ("retry", "elapsed"), strict=True
        ))  # fmt: skip
        pause = after_failed_try(FailedTry("Processing", retry - 1, "payload", 1), rules).pause
        assert pause is not None
        failed = "UPDATE element_jobs SET state = 'cooloff', not_before = ? WHERE element_id = ?"
        values = (bench.now + pause, element)
        bench.do(lambda tx, failed=failed, values=values: tx.connection.execute(failed, values))
        bench.now += elapsed
        assert of_requests.make_again() == int(expected), moment
    bench.end()


def test_the_limits_of_retries_are_those_of_each_type() -> None:
    limits, rules = dict(CASES["RETRY-02"]["given"]["max_retries"]), RetryRules()
    limits["Harvest"] = limits.pop("Harvesting")
    assert rules.retries == limits.pop("default")
    assert {kind: rules.most(kind) for kind in limits} == limits
    rules = RetryRules(fatal_exit_codes=frozenset({70}), pass_exit_codes=frozenset({71}))
    for kind in ("Processing", *limits):
        most = rules.most(kind)
        assert after_failed_try(FailedTry(kind, most - 1, "payload", 1), rules).pause
        assert after_failed_try(FailedTry(kind, most, "payload", 1), rules).pause is None
        assert after_failed_try(FailedTry(kind, 0, "payload", 70), rules).pause is None
        assert after_failed_try(FailedTry(kind, 0, "payload", 71), rules).pause == 0.0


@pytest.mark.parametrize("index", range(len(CASES["LIFE-01"]["given"]["sets"])))
def test_a_requests_state_is_that_of_its_elements(index: int) -> None:
    states = CASES["LIFE-01"]["given"]["sets"][index]
    expected = CASES["LIFE-01"]["expect"]["+".join(states)]
    assert state_of_request(map(ElementState, states)) == expected.replace("canceled", CANCELING)


@pytest.mark.parametrize("name", CASES["LIFE-02"]["given"]["cases"])
def test_a_whole_ends_as_its_parts(name: str) -> None:
    case = CASES["LIFE-02"]
    before = re.search(r"\(parent (\w+)\)", name)
    parts = [PartProgress(ElementState(state), *values) for state, *values in case["given"]["cases"][name]]
    whole = progress_of_whole(parts, ElementState(before[1] if before else case["given"]["parent_default"]))
    expected = case["expect"][name.split("(")[0]]
    if "error" in expected:
        # WMCore raises here, which stalled the roll-up of all requests. The recorded note asks for this answer.
        assert whole.result is ElementState.ACQUIRED
        return
    assert {
        "result": whole.result, "parent_after": whole.state, "pc": whole.complete, "psucc": whole.success,
        "end": whole.has_ended,
    } == expected  # fmt: skip


@pytest.mark.parametrize("index", range(len(CASES["LIFE-03"]["given"]["pairs"])))
def test_the_moves_of_requests(index: int) -> None:
    pair = CASES["LIFE-03"]["given"]["pairs"][index]
    old, new = map(RequestState, pair.split("->"))
    expected = True if pair in STAGING_IS_OPTIONAL else CASES["LIFE-03"]["expect"][pair]
    assert REQUEST_STATES.allows(old, new) is expected
