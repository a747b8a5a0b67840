"""Running limits and start delays: DIRAC's cases, and clocks that step."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.limits import ATTRIBUTES, Limit, Limiter
from tests.conformance.recorded import dirac_suites

RECONSTRUCTION = QueueIdentity("o", "g", job_type="MCReconstruction")
SIMULATION = QueueIdentity("o", "g", job_type="MCSimulation")
QUEUES = {queue.job_type: queue for queue in (RECONSTRUCTION, SIMULATION)}
SITE, CE = "here", "ce1"

# DIRAC's cases that are replayed otherwise, and why.
OTHERWISE = {
    "no match gives the token back; a match of another type too": (
        "nothing is reserved: a start is counted when the match is made, in the one thread that matches"
    ),
    "50 concurrent requests, one token": "one thread matches: the requests come one after another",
    "running limit counts matches made since the cached count": "there is no cache: every match is counted",
    "matches older than the count are not added": "a count from the store replaces what was counted before",
}


CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in dirac_suites()["limiter"]["cases"]}


def limiter(*limits: Limit) -> Limiter:
    made = Limiter()
    made.replace_limits(limits)
    return made


def limits_of(case: dict[str, Any]) -> list[Limit]:
    found = []
    for attribute, values in case.get("delay", {}).items():
        assert attribute == "JobType"
        for value, delay in values.items():
            burst = case.get("burst", {}).get(attribute, {}).get(value, 1)
            found.append(Limit("job_type", value, site=SITE, delay=delay, burst=burst))
    return found


def is_open(of: Limiter, queue: QueueIdentity, now: float) -> bool:
    return not any(limit.applies_to(queue) for limit in of.closed_limits(SITE, CE, now))


def start(of: Limiter, queue: QueueIdentity, now: float) -> None:
    assert is_open(of, queue, now)
    of.record_start(queue, SITE, CE, now)


def replay(of: Limiter, events: list[list[Any]]) -> None:
    for now, event in events:
        if event == "match":
            start(of, RECONSTRUCTION, now)
        else:
            assert is_open(of, RECONSTRUCTION, now) == (event == "allowed"), (now, event)


@pytest.mark.parametrize("name", ["delay without burst", "burst 3 every 0.5 s"])
def test_diracs_delays(name: str) -> None:
    case = CASES[name]
    of = limiter(*limits_of(case))
    replay(of, case["events"])
    idle = case.get("after100sIdle")
    if idle:
        for _ in range(idle["tokens"]):
            start(of, RECONSTRUCTION, 100.5)
        assert not is_open(of, RECONSTRUCTION, 100.5)


def test_dirac_gives_a_token_back_that_was_not_used_here_none_is_taken() -> None:
    case = CASES["no match gives the token back; a match of another type too"]
    of = limiter(*limits_of(case))
    assert of.closed_limits(SITE, CE, 0) == []  # reserved and released: asked, and nothing started
    start(of, SIMULATION, 0)
    assert [limit.value for limit in of.closed_limits(SITE, CE, 0)] == ["MCSimulation"]


def test_diracs_fifty_requests_for_one_token() -> None:
    case = CASES["50 concurrent requests, one token"]
    of = limiter(*limits_of(case))
    started = 0
    for _ in range(50):
        if is_open(of, RECONSTRUCTION, 0):
            start(of, RECONSTRUCTION, 0)
            started += 1
    assert started == case["allowed"]


def test_dirac_keeps_the_time_since_the_last_start_when_the_delay_changes() -> None:
    case = CASES["shortening the delay 10->1 keeps elapsed time"]
    of = limiter(Limit("job_type", "MCReconstruction", site=SITE, delay=10))
    for now, event in case["events"]:
        if event == "delay:=1":
            of.replace_limits([Limit("job_type", "MCReconstruction", site=SITE, delay=1)])
        else:
            replay(of, [[now, event]])


def test_dirac_counts_matches_made_since_its_count() -> None:
    case = CASES["running limit counts matches made since the cached count"]
    [(value, most)] = case["limit"]["JobType"].items()
    of = limiter(Limit("job_type", value, site=SITE, running=most))
    of.recount([(QUEUES[value], SITE, CE, case["cachedRunning"])])
    assert is_open(of, QUEUES[value], 0) == (case["before"] == "allowed")
    start(of, QUEUES[value], 0)
    assert is_open(of, QUEUES[value], 0) == (case["afterOneMatch"] == "allowed")


def test_dirac_does_not_add_matches_that_its_count_has_seen() -> None:
    case = CASES["matches older than the count are not added"]
    of = limiter(Limit("job_type", "MCReconstruction", site=SITE, running=case["limit"]))
    start(of, RECONSTRUCTION, case["matchAt"])
    of.recount([(RECONSTRUCTION, SITE, CE, case["countedRunning"])])
    assert is_open(of, RECONSTRUCTION, case["countTakenAt"]) == (case["expected"] == "allowed")


def test_no_case_of_dirac_is_left_out() -> None:
    replayed = {"delay without burst", "burst 3 every 0.5 s", "shortening the delay 10->1 keeps elapsed time"}
    assert set(CASES) == replayed | set(OTHERWISE)


def test_a_clock_that_steps_back_delays_the_next_start_by_one_delay_only() -> None:
    of = limiter(Limit("job_type", "MCReconstruction", delay=10))
    start(of, RECONSTRUCTION, 5000)
    assert not is_open(of, RECONSTRUCTION, 1000)
    assert not is_open(of, RECONSTRUCTION, 1009)
    start(of, RECONSTRUCTION, 1010)
    assert not is_open(of, RECONSTRUCTION, 1019)
    assert is_open(of, RECONSTRUCTION, 1020)


def test_a_clock_that_steps_back_saves_up_no_starts() -> None:
    of = limiter(Limit("job_type", "MCReconstruction", delay=10, burst=2))
    start(of, RECONSTRUCTION, 100)
    start(of, RECONSTRUCTION, 100)
    for now in (50, 100, 60, 55):
        of.closed_limits(SITE, CE, now)
    start(of, RECONSTRUCTION, 110)
    start(of, RECONSTRUCTION, 110)
    assert not is_open(of, RECONSTRUCTION, 110)


def test_a_running_limit_opens_when_one_ends_and_never_counts_below_nothing() -> None:
    of = limiter(Limit("job_type", "MCReconstruction", site=SITE, running=1))
    of.record_end(RECONSTRUCTION, SITE, CE)
    start(of, RECONSTRUCTION, 0)
    assert not is_open(of, RECONSTRUCTION, 0)
    of.record_end(RECONSTRUCTION, SITE, CE)
    start(of, RECONSTRUCTION, 0)
    assert not is_open(of, RECONSTRUCTION, 0)


def test_a_limit_of_nothing_lets_nothing_start() -> None:
    of = limiter(Limit("job_type", "MCReconstruction", running=0))
    assert not is_open(of, RECONSTRUCTION, 0)
    assert is_open(of, SIMULATION, 0)


def test_a_limit_holds_at_its_place_only() -> None:
    everywhere = Limit("job_type", "MCReconstruction", running=0)
    at_site = Limit("job_type", "MCReconstruction", site="here", running=0)
    at_ce = Limit("job_type", "MCReconstruction", ce="ce2", running=0)
    at_both = Limit("job_type", "MCReconstruction", site="here", ce="ce2", running=0)
    of = limiter(everywhere, at_site, at_ce, at_both)
    assert of.closed_limits("here", "ce2", 0) == [everywhere, at_site, at_ce, at_both]
    assert of.closed_limits("here", "ce1", 0) == [everywhere, at_site]
    assert of.closed_limits("there", "ce2", 0) == [everywhere, at_ce]
    assert of.closed_limits("there", "ce1", 0) == [everywhere]


def test_a_kept_limit_keeps_its_count_and_a_dropped_one_forgets_it() -> None:
    one = Limit("job_type", "MCReconstruction", running=1)
    other = Limit("job_type", "MCSimulation", running=1)
    of = limiter(one, other)
    start(of, RECONSTRUCTION, 0)
    start(of, SIMULATION, 0)
    of.replace_limits([one])
    of.replace_limits([one, other])
    assert not is_open(of, RECONSTRUCTION, 0)
    assert is_open(of, SIMULATION, 0)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        *(("owner", "o"), ("group", "g"), ("setup", "s"), ("job_type", "User"), ("cpu_time", "5000")),
        *(("processors", "8"), ("platforms", "el9"), ("tags", "gpu")),
    ],
)
def test_every_attribute_is_told_apart(attribute: str, value: str) -> None:
    sets = {"platforms": frozenset({"el8", "el9"}), "tags": frozenset({"gpu", "ssd"})}
    queue = QueueIdentity("o", "g", setup="s", cpu_time=5000, processors=8, **dict[str, Any](sets))
    assert Limit(attribute, value, running=0).applies_to(queue)
    assert not Limit(attribute, value + "0", running=0).applies_to(queue)
    assert attribute in ATTRIBUTES
