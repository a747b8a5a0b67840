"""A budget holds in every window of time, whatever the pilots do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.errors import InvalidInput
from pilotage.core.ids import PilotId
from pilotage.core.pilots.cost import HOUR, Costs, PilotLife, add_costs, book
from pilotage.core.policy import parse, warnings
from pilotage.core.policy.budget import (
    Budget,
    PilotBurn,
    budget_status,
    may_burn,
    parse_budget,
    pilot_cost,
)

DAY = 86400.0


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("20000 core-h / 30 d", Budget(20000 * 3600, 30 * DAY)),
        ("1.5core-d/1w", Budget(1.5 * DAY, 7 * DAY)),
        ("90 core-min / 12 h", Budget(5400, DAY / 2)),
    ],
)
def test_budgets_are_read(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    "text",
    [
        "20000",
        "20000 core-h",
        "20000 h / 30 d",
        "core-h / d",
        "-5 core-h / 1 d",
        "0 core-h / 1 d",
        "1 core-h / 1 min",
        "1 core-h / 2 a",
        "1 core-h / 400 d",
        "1e5 core-h / 30 d",
        "9" * 60 + " core-h / 30 d",
        "1 core-h / 30 d" + " " * 200,
        "nan core-h / 30 d",
    ],
)
def test_nonsense_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_budget(text)
    assert "core-h / 30 d" in refused.value.hint


POLICY = """\
[groups.g]
[users.u]
groups = ["g"]
[sites.s]
[ces.c]
site = "s"
type = "slurm"
pilot_processors = 4
wall = 3600
"""


def test_a_policy_with_a_wrong_budget_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidInput, match="CE c") as refused:
        parse(POLICY + 'budget = "20000 h"\n')
    assert (refused.value.line, refused.value.field) == (10, "ces.c.budget")
    assert "core-h / 30 d" in refused.value.hint
    kept = "[accounting]\nhistory = 691200\n[retention]\njobs = 0\nattempts = 691200\n"
    with pytest.raises(InvalidInput, match="costs are kept"):
        parse(POLICY + 'budget = "20000 core-h / 30 d"\n' + kept)


def test_a_budget_for_less_than_one_pilot_is_warned_about() -> None:
    def about_budgets(text: str) -> list[str]:
        return [warning for warning in warnings(parse(POLICY + text)) if "budget" in warning]

    [warning] = about_budgets('budget = "3.9 core-h / 30 d"\n')
    assert "4 core-h" in warning
    assert not about_budgets('budget = "4 core-h / 30 d"\n')


def test_may_burn_bounds_the_future_use_of_pilots() -> None:
    waiting = PilotBurn(4, 3600.0, None, None, None, may_run=True)
    assert may_burn(waiting, 0.0) == 4 * 3600
    assert may_burn(replace(waiting, wall=3601.0), 0.0) == 4 * 3660, "batch systems count minutes"
    running = replace(waiting, cores_from=1000.0)
    assert may_burn(running, 1500.0) == 4 * 3600
    assert may_burn(replace(running, booked_until=1400.0), 1500.0) == 4 * 3200
    assert may_burn(replace(running, booked_until=4600.0), 5000.0) == 4 * 400, "it overran its wall time"
    ended = replace(running, booked_until=1400.0, cores_until=1450.0, may_run=False)
    assert may_burn(ended, 9000.0) == 4 * 50
    assert may_burn(replace(waiting, may_run=False), 0.0) == 0, "it never had cores"


def test_room_by_hand() -> None:
    pilot = pilot_cost(4, 3600)
    waiting = PilotBurn(4, 3600.0, None, None, None, may_run=True)
    status = budget_status(Budget(100 * 3600, 30 * DAY), 80 * 3600, [waiting] * 3, pilot, 0.0)
    assert (status.used, status.committed, status.room) == (80 * 3600, 12 * 3600, 2)
    assert "no pilot" not in status.explain()
    spent = replace(status, used=85 * 3600.0)
    assert spent.room == 0
    assert spent.explain() == (
        "budget 100 core-h / 30 d: 85 core-h are used, pilots may use 12 more, and each further pilot up to 4:"
        " no pilot is submitted"
    )


@dataclass
class Simulated:
    """A pilot of the simulated month."""

    processors: int
    wall: float
    begin: float
    end: float
    """At most the wall time later."""
    booked: float | None = None


def used_in(costs: Costs, since: float) -> float:
    """As the store adds it up: the hour of `since` counts whole."""
    return sum(seconds.total for key, seconds in costs.items() if key.hour > since - HOUR)


@given(st.integers(0, 10**9))
def test_a_month_never_exceeds_the_budget(seed: int) -> None:
    rng = Random(seed)
    budget = Budget(rng.choice([50.0, 300.0, 1000.0]) * 3600, rng.choice([2.0, 24.0, 200.0]) * 3600)
    pilots: list[Simulated] = []
    live: list[Simulated] = []
    costs: Costs = {}
    now, wall, processors = 0.0, 3600.0, 1
    while now < 31 * DAY:
        if rng.random() < 0.05:
            # A new policy: pilots that were submitted before keep their size.
            wall, processors = rng.choice([600.0, 3599.0, 20000.0]), rng.choice([1, 2, 8])
        for pilot in live:
            _book(pilot, costs, now, rng)
        live = [pilot for pilot in live if pilot.booked is None or pilot.booked < pilot.end]
        burning = [
            PilotBurn(
                pilot.processors,
                pilot.wall,
                pilot.begin if pilot.begin <= now else None,
                pilot.booked,
                pilot.end if pilot.end <= now else None,
                may_run=now < pilot.end,
            )
            for pilot in live
        ]
        status = budget_status(
            budget, used_in(costs, now - budget.window), burning, pilot_cost(processors, wall), now
        )
        for _ in range(min(status.room, rng.randint(0, 10))):
            begin = now + rng.choice([0.0, 60.0, rng.expovariate(1 / 20000)])
            end = begin + rng.choice([wall, wall * rng.random(), rng.random() * 100])
            live.append(Simulated(processors, wall, begin, min(end, begin + wall)))
            pilots.append(live[-1])
        now += rng.choice([600.0, 7200.0, 20000.0, rng.random() * 40000])
    assert pilots
    instants = sorted({pilot.end for pilot in pilots})
    for instant in rng.sample(instants, min(100, len(instants))):
        begin = instant - budget.window
        burnt = sum(
            pilot.processors * max(0.0, min(pilot.end, instant) - max(pilot.begin, begin)) for pilot in pilots
        )
        assert burnt <= budget.core_seconds * (1 + 1e-9)


def _book(pilot: Simulated, costs: Costs, now: float, rng: Random) -> None:
    """Book a pilot up to now, or up to an earlier sign of life."""
    since = pilot.begin if pilot.booked is None else pilot.booked
    until = min(now, pilot.end)
    if until <= since or rng.random() < 0.3:
        return
    if until < pilot.end:
        until = since + (until - since) * rng.random()
    life = PilotLife(PilotId(1), "c", "", "", pilot.processors, pilot.begin, pilot.begin)
    add_costs(costs, book(life, since, until, ()))
    pilot.booked = until
