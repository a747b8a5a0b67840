"""Each core-second of a pilot is booked once, as payload, start-up, idle or lost, whatever the steps of the booking."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.ids import PilotId
from pilotage.core.pilots.cost import HOUR, CoreSeconds, CostKey, Costs, HeldCores, PilotLife, add_costs, book

NIGHT = 100 * HOUR


def life(processors: int = 4, **instants: float | None) -> PilotLife:
    begun = instants.pop("cores_from", NIGHT)
    assert begun is not None
    return PilotLife(
        PilotId(1), "cluster", "", "", processors, begun, instants.pop("called", begun), **instants
    )


def total(costs: Costs) -> CoreSeconds:
    everything = CoreSeconds()
    for seconds in costs.values():
        everything.add(seconds)
    return everything


def test_a_pilot_with_a_job_on_half_of_its_cores() -> None:
    held = [HeldCores("ada", "physics", 2, NIGHT + 100, NIGHT + 400)]
    costs = book(life(called=NIGHT + 60), NIGHT, NIGHT + 500, held)
    assert costs == {
        CostKey("cluster", NIGHT, "", ""): CoreSeconds(startup=240, idle=4 * 440 - 600),
        CostKey("cluster", NIGHT, "ada", "physics"): CoreSeconds(payload=600),
    }


def test_a_pilot_that_vanished_with_its_job() -> None:
    held = [HeldCores("ada", "physics", 4, NIGHT, NIGHT + 900)]
    costs = book(life(silent_from=NIGHT + 300), NIGHT, NIGHT + 900, held)
    assert total(costs) == CoreSeconds(payload=1200, lost=2400)


def test_a_pilot_that_never_called() -> None:
    assert total(book(life(called=None), NIGHT, NIGHT + 50, [])) == CoreSeconds(lost=200)


def test_a_pilot_that_came_back() -> None:
    held = [HeldCores("ada", "physics", 4, NIGHT + 600, None)]
    costs = book(life(silent_from=NIGHT + 100, silent_until=NIGHT + 500), NIGHT, NIGHT + 700, held)
    assert total(costs) == CoreSeconds(payload=400, idle=800, lost=1600)


def test_jobs_held_ahead_share_the_cores() -> None:
    held = [
        HeldCores("ada", "physics", 1, NIGHT, NIGHT + 100),
        HeldCores("bob", "physics", 3, NIGHT, NIGHT + 100),
        HeldCores("bob", "physics", 4, NIGHT, NIGHT + 100),
    ]
    costs = book(life(), NIGHT, NIGHT + 100, held)
    assert costs[CostKey("cluster", NIGHT, "ada", "physics")].payload == pytest.approx(50)
    assert costs[CostKey("cluster", NIGHT, "bob", "physics")].payload == pytest.approx(350)
    assert total(costs).total == pytest.approx(400)


def test_hours_are_booked_apart() -> None:
    held = [HeldCores("ada", "physics", 1, NIGHT, None)]
    costs = book(life(1), NIGHT + 3000, NIGHT + 2 * HOUR + 60, held)
    assert {key.hour: seconds.payload for key, seconds in costs.items() if seconds.payload} == {
        NIGHT: 600,
        NIGHT + HOUR: 3600,
        NIGHT + 2 * HOUR: 60,
    }


SPAN = 40
instants = st.integers(NIGHT + HOUR - SPAN // 2, NIGHT + HOUR + SPAN // 2)
attempts = st.builds(
    lambda owner, processors, begin, length: HeldCores(
        owner, "g", processors, begin, None if length is None else begin + length
    ),
    st.sampled_from(["ada", "bob"]),
    st.integers(1, 4),
    instants,
    st.one_of(st.none(), st.integers(0, SPAN)),
)


@st.composite
def lives(draw: st.DrawFn) -> PilotLife:
    begun = draw(instants)
    called = draw(st.one_of(st.none(), st.integers(begun, begun + 10)))
    silent_from = silent_until = None
    if called is not None and draw(st.booleans()):
        silent_from = called + draw(st.integers(0, 15))
        silent_until = draw(st.one_of(st.none(), st.integers(silent_from, silent_from + 10)))
    return life(
        draw(st.integers(1, 4)),
        cores_from=begun,
        called=called,
        silent_from=silent_from,
        silent_until=silent_until,
    )


def second_by_second(pilot: PilotLife, until: int, held: Sequence[HeldCores]) -> CoreSeconds:
    """The definition, for whole seconds."""
    seconds, cores = CoreSeconds(), pilot.processors
    for instant in range(int(pilot.cores_from), until):
        if pilot.called is None:
            seconds.lost += cores
        elif instant < pilot.called:
            seconds.startup += cores
        elif (
            pilot.silent_from is not None
            and instant >= pilot.silent_from
            and (pilot.silent_until is None or instant < pilot.silent_until)
        ):
            seconds.lost += cores
        else:
            used = sum(
                attempt.processors
                for attempt in held
                if attempt.begin <= instant and (attempt.end is None or instant < attempt.end)
            )
            seconds.payload += min(cores, used)
            seconds.idle += cores - min(cores, used)
    return seconds


@given(lives(), st.lists(attempts, max_size=6), st.integers(0, SPAN), st.lists(instants, max_size=5))
def test_every_core_second_is_booked_once_in_any_steps(
    pilot: PilotLife, held: list[HeldCores], length: int, steps: list[int]
) -> None:
    until = int(pilot.cores_from) + length
    expected = second_by_second(pilot, until, held)
    cuts = sorted(
        {int(pilot.cores_from), *(step for step in steps if pilot.cores_from < step < until), until}
    )
    booked: Costs = {}
    for begin, end in pairwise(cuts):
        # Only the attempts that a pass at `end` can know.
        add_costs(booked, book(pilot, begin, end, [one for one in held if one.begin <= end]))
    assert total(booked).total == pytest.approx(pilot.processors * length)
    for kind in ("payload", "startup", "idle", "lost"):
        assert getattr(total(booked), kind) == pytest.approx(getattr(expected, kind)), kind
    for key in booked:
        assert key.hour % HOUR == 0
        assert key.owner in ("", "ada", "bob")
