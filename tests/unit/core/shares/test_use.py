"""The ledger of use against exact integration of the attempts that it was made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.core.shares.use import (
    DAY,
    HOUR,
    HOURS_KEPT,
    MINUTE,
    MINUTES_KEPT,
    Entity,
    Ledger,
    Outage,
    Use,
    columns_of,
)

BEGIN = 1_700_000_000.0
HISTORY = 40.0 * DAY
NOTHING = Use({}, {})


@dataclass(frozen=True)
class Attempt:
    owner: str
    group: str
    started: float
    ended: float | None
    cores: int = 1

    @property
    def entity(self) -> Entity:
        return self.owner, self.group


def charge(ledger: Ledger, attempts: Iterable[Attempt], until: float) -> list[tuple[int, int]]:
    rows = [(one.owner, one.group, one.started, one.ended, one.cores) for one in attempts]
    return ledger.charge([columns_of(ledger, rows[:2]), columns_of(ledger, rows[2:])], until)


def ledger_of(
    attempts: Iterable[Attempt],
    until: float,
    *,
    begin: float = BEGIN,
    history: float = HISTORY,
    outages: Sequence[Outage] = (),
) -> Ledger:
    ledger = Ledger(begin, history, list(outages))
    charge(ledger, attempts, until)
    return ledger


def up_time(begin: float, end: float, outages: Iterable[Outage]) -> float:
    down = sum(max(0.0, min(end, up) - max(begin, down)) for down, up in outages)
    return max(0.0, end - begin) - down


def used(attempts: Iterable[Attempt], begin: float, end: float, outages: Sequence[Outage] = ()) -> Use:
    """Seconds of jobs and cores, exactly."""
    jobs: dict[Entity, float] = {}
    cores: dict[Entity, float] = {}
    for one in attempts:
        first, last = max(begin, one.started), min(end, end if one.ended is None else one.ended)
        if (seconds := up_time(first, last, outages) if first < last else 0.0) > 0:
            jobs[one.entity] = jobs.get(one.entity, 0.0) + seconds
            cores[one.entity] = cores.get(one.entity, 0.0) + seconds * one.cores
    return Use(jobs, cores)


def assert_near(found: Use, seconds: Use, length: float, error: Use = NOTHING) -> None:
    """That averages over `length` seconds are those of `seconds`, but for so many `error` seconds of each."""
    for ours, exact, bound in (
        (found.jobs, seconds.jobs, error.jobs),
        (found.cores, seconds.cores, error.cores),
    ):
        for entity in ours.keys() | exact.keys():
            difference = abs(ours.get(entity, 0.0) * length - exact.get(entity, 0.0))
            assert difference <= bound.get(entity, 0.0) + 1e-3, (entity, difference)


def bucket_at(instant: float, as_of: float) -> tuple[float, float]:
    """The bucket in which an edge falls: as fine as is kept that far back."""
    back = as_of - instant
    span = MINUTE if back <= MINUTES_KEPT else HOUR if back <= HOURS_KEPT else DAY
    start = instant // span * span
    return start, min(start + span, as_of)


entities = st.tuples(st.sampled_from(["ann", "bob", "cleo"]), st.sampled_from(["physics", "home"]))
lengths = st.one_of(
    st.just(0.0), st.floats(-DAY, 0), st.floats(0, 300), st.floats(0, 3 * HOUR), st.floats(0, 15 * DAY)
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Attempt], list[Outage], float]:
    """Attempts, outages, and until when they are charged."""
    whole = draw(st.sampled_from([10 * MINUTE, 3 * HOUR, 2 * DAY, 12 * DAY, 30 * DAY]))
    until = BEGIN + whole - draw(st.floats(0, 300))
    attempts = []
    for _ in range(draw(st.integers(0, 8))):
        owner, group = draw(entities)
        started = BEGIN + draw(st.one_of(st.floats(-DAY, whole), st.floats(max(0, whole - 2 * HOUR), whole)))
        if draw(st.booleans()):
            started = started // MINUTE * MINUTE
        ended = draw(st.one_of(st.none(), lengths.map(lambda length, started=started: started + length)))
        attempts.append(Attempt(owner, group, started, ended, draw(st.sampled_from([1, 1, 8]))))
    edges = sorted(draw(st.lists(st.floats(0, whole), max_size=6, unique=True)))
    outages = [(BEGIN + down, BEGIN + up) for down, up in zip(edges[::2], edges[1::2], strict=False)]
    return attempts, outages, until


# --- what is charged


@given(histories(), st.lists(st.floats(0, 1), max_size=12), st.booleans())
@settings(max_examples=2 * settings().max_examples)
def test_charges_step_by_step_equal_one_of_all(
    history: tuple[list[Attempt], list[Outage], float], steps: list[float], forget: bool
) -> None:
    """A rebuild equals the increments, whatever was forgotten or seen only later meanwhile."""
    attempts, outages, until = history
    ledger = Ledger(BEGIN, HISTORY, outages)
    for step in [*sorted(steps), 1.0]:
        now = BEGIN + (until - BEGIN) * step
        # As the store tells it: attempts that ended since, and those that run, whose end nobody knows.
        told = [
            Attempt(
                *one.entity,
                one.started,
                None if one.ended is None or one.ended > now else one.ended,
                one.cores,
            )
            for one in attempts
            if one.started <= now and (one.ended is None or one.ended > ledger.as_of)
        ]
        charge(ledger, told, now)
        if forget:
            ledger.forget_old()
    ledger.forget_old()
    rebuilt = ledger_of(attempts, until, outages=outages)
    rebuilt.forget_old()
    assert ledger.as_of == rebuilt.as_of == until
    for span, buckets in ledger.levels.items():
        for start in buckets.keys() | rebuilt.levels[span].keys():
            ours, theirs = (amounts(one, span, start) for one in (ledger, rebuilt))
            for entity in ours.keys() | theirs.keys():
                assert np.allclose(ours.get(entity, 0), theirs.get(entity, 0), atol=1e-3), (
                    span,
                    start,
                    entity,
                )


def amounts(ledger: Ledger, span: int, start: int) -> dict[Entity, tuple[float, float]]:
    bucket = ledger.levels[span].get(start)
    if bucket is None:
        return {}
    columns = zip(bucket.places, bucket.jobs, bucket.cores, strict=True)
    return {ledger.entities[place]: (jobs, cores) for place, jobs, cores in columns}


@given(histories())
@settings(max_examples=2 * settings().max_examples)
def test_each_bucket_holds_exactly_what_was_used_in_it(
    history: tuple[list[Attempt], list[Outage], float],
) -> None:
    attempts, outages, until = history
    ledger = ledger_of(attempts, until, outages=outages)
    for span, buckets in ledger.levels.items():
        oldest = max(BEGIN, (until - ledger.kept(span)) // span * span)
        starts = {int(instant // span * span) for instant in np.arange(oldest, until, span)} | set(buckets)
        for start in starts:
            exact = used(attempts, max(oldest, start), min(start + span, until), outages)
            found = amounts(ledger, span, start)
            jobs = {entity: jobs for entity, (jobs, _) in found.items()}
            cores = {entity: cores for entity, (_, cores) in found.items()}
            assert_near(Use(jobs, cores), exact, 1.0)


def test_the_buckets_that_changed_are_told() -> None:
    ledger = Ledger(BEGIN, HISTORY)
    at = (BEGIN // DAY + 1) * DAY + 10 * HOUR
    charge(ledger, [Attempt("ann", "home", at - 100, at - 20)], at)
    assert {start for span, start in charge(ledger, [Attempt("ann", "home", at - 20, None)], at + 90)} == {
        at,
        at + 60,
        at // DAY * DAY,
    }
    assert charge(ledger, [], at + 300) == []
    assert ledger.as_of == at + 300


@pytest.mark.parametrize("ended", [BEGIN + 100, BEGIN + 50, BEGIN - 10**6])
def test_an_attempt_that_ended_as_it_began_or_before_has_used_nothing(ended: float) -> None:
    ledger = ledger_of([Attempt("ann", "home", BEGIN + 100, ended)], BEGIN + HOUR)
    assert ledger.over(HOUR) == NOTHING
    assert not any(ledger.levels.values())


def test_an_open_attempt_is_charged_up_to_now_and_once() -> None:
    ledger = Ledger(BEGIN, HISTORY)
    for step in range(1, 31):
        charge(ledger, [Attempt("ann", "home", BEGIN + 600, None, 4)], BEGIN + step * 97)
    at = BEGIN + 30 * 97
    charge(ledger, [Attempt("ann", "home", BEGIN + 600, at + 30, 4)], at + 600)
    found = ledger.between(BEGIN, at + 600)
    whole = at + 600 - BEGIN
    assert found.jobs["ann", "home"] * whole == pytest.approx(at + 30 - BEGIN - 600)
    assert found.cores["ann", "home"] * whole == pytest.approx(4 * (at + 30 - BEGIN - 600))


def test_a_late_owner_has_use_from_its_first_attempt_on() -> None:
    ledger = ledger_of([Attempt("ann", "home", BEGIN, None)], BEGIN + 2 * HOUR)
    for number in range(50):
        charge(
            ledger,
            [Attempt("ann", "home", BEGIN, None), Attempt(f"o{number}", "physics", ledger.as_of, None, 2)],
            ledger.as_of + MINUTE,
        )
    found = ledger.over(100 * MINUTE)
    assert found.jobs["ann", "home"] == pytest.approx(1)
    assert found.jobs["o7", "physics"] == pytest.approx(0.01)
    assert found.of_groups("jobs") == pytest.approx({"home": 1, "physics": 0.5})
    assert found.of_groups("cores") == pytest.approx({"home": 1, "physics": 1})
    assert found.of_owners("home", "cores") == pytest.approx({"ann": 1})
    assert found.of_owners("gone", "jobs") == {}


# --- what is asked


@given(histories(), st.integers(0, 180), st.integers(1, 180))
@settings(max_examples=4 * settings().max_examples)
def test_between_minutes_of_the_last_three_hours_use_is_exact(
    history: tuple[list[Attempt], list[Outage], float], back: int, minutes: int
) -> None:
    attempts, outages, until = history
    ledger = ledger_of(attempts, until, outages=outages)
    begin = max(BEGIN // MINUTE, until // MINUTE - back) * MINUTE
    end = min(begin + minutes * MINUTE, until)
    assert_near(
        ledger.between(begin, end),
        used(attempts, max(begin, BEGIN), end, outages),
        max(1.0, up_time(begin, end, outages)),
    )


@given(histories(), st.floats(60, 30 * DAY))
@settings(max_examples=6 * settings().max_examples)
def test_over_any_slice_use_is_known_but_for_the_bucket_at_its_far_edge(
    history: tuple[list[Attempt], list[Outage], float], span: float
) -> None:
    attempts, outages, until = history
    ledger = ledger_of(attempts, until, outages=outages)
    begin = ledger.look_back(span)
    assert up_time(begin, until, outages) == pytest.approx(span, abs=1e-3)
    exact = used(attempts, max(begin, BEGIN), until, outages)
    edge = used(attempts, *bucket_at(begin, until), outages)
    assert_near(ledger.over(span), exact, span, edge)


@given(histories(), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=4 * settings().max_examples)
def test_between_any_instants_use_is_known_but_for_the_buckets_at_the_edges(
    history: tuple[list[Attempt], list[Outage], float], one: float, two: float
) -> None:
    attempts, outages, until = history
    ledger = ledger_of(attempts, until, outages=outages)
    begin, end = sorted((BEGIN + one * (until - BEGIN), BEGIN + two * (until - BEGIN)))
    exact = used(attempts, begin, end, outages)
    edges = [used(attempts, *bucket_at(edge, until), outages) for edge in (begin, end)]
    error = Use(
        {key: sum(edge.jobs.get(key, 0.0) for edge in edges) for edge in edges for key in edge.jobs},
        {key: sum(edge.cores.get(key, 0.0) for edge in edges) for edge in edges for key in edge.cores},
    )
    assert_near(ledger.between(begin, end), exact, max(1.0, up_time(begin, end, outages)), error)


def test_between_reversed_instants_there_is_no_use() -> None:
    ledger = ledger_of([Attempt("ann", "home", BEGIN, None)], BEGIN + DAY)
    assert ledger.between(BEGIN + HOUR, BEGIN) == NOTHING
    assert ledger.between(BEGIN + HOUR, BEGIN + HOUR) == NOTHING


def touched(ledger: Ledger, span: float) -> int:
    return sum(1 for _ in ledger._cover(ledger.look_back(span), ledger.as_of))


@pytest.mark.parametrize("into_the_day", [0, 1, 30_000.5, DAY - 1])
def test_a_months_slice_touches_about_as_many_buckets_as_an_hours(into_the_day: float) -> None:
    until = (BEGIN // DAY + 60) * DAY + into_the_day
    ledger = ledger_of([Attempt("ann", "home", BEGIN, None)], until, history=400 * DAY)
    for span in (HOUR, DAY, 7 * DAY, 30 * DAY, 55 * DAY):
        # At most a whole hour of minutes, a whole day of hours and the days at the near edge, and again at the far
        # edge as fine as is kept there.
        near = 60 + 24
        far = 60 if span <= MINUTES_KEPT else 24 if span <= HOURS_KEPT else 1
        assert touched(ledger, span) <= near + far + span // DAY
    assert touched(ledger, 30 * DAY) <= 2 * touched(ledger, HOUR) + 30


def test_old_buckets_are_forgotten_and_nothing_that_a_slice_needs() -> None:
    until = BEGIN + 60 * DAY
    attempts = [Attempt("ann", "home", BEGIN, None), Attempt("bob", "home", BEGIN + 19 * DAY, None, 2)]
    ledger = ledger_of(attempts, BEGIN + DAY / 2)
    while ledger.as_of < until:
        charge(ledger, attempts, min(until, ledger.as_of + 7 * HOUR))
        ledger.forget_old()
        for span, buckets in ledger.levels.items():
            assert len(buckets) <= ledger.kept(span) / span + 2
    assert ledger.forget_old() == []
    for span in (HOUR, 7 * DAY, 30 * DAY, HISTORY):  # type: ignore[assignment]
        assert ledger.over(span).jobs["ann", "home"] == pytest.approx(1)
        assert ledger.over(span).cores["bob", "home"] == pytest.approx(2)


def test_forget_old_returns_the_forgotten_buckets() -> None:
    ledger = ledger_of([Attempt("ann", "home", BEGIN, None)], BEGIN + DAY)
    before = {(span, start) for span, buckets in ledger.levels.items() for start in buckets}
    charge(ledger, [Attempt("ann", "home", BEGIN, BEGIN + DAY)], BEGIN + 60 * DAY)
    gone = ledger.forget_old()
    assert set(gone) == before
    assert not any(ledger.levels.values())


# --- time that does not count


def test_down_time_is_charged_to_nobody_and_not_looked_back_upon() -> None:
    down = BEGIN // HOUR * HOUR + 10 * HOUR
    up = down + 2 * HOUR
    attempts = [
        Attempt("ann", "home", down - HOUR, None),  # runs across it
        Attempt("bob", "home", down - HOUR / 2, down + HOUR),  # ends within it
        Attempt("cleo", "home", down + HOUR, up - HOUR),  # all within it
    ]
    ledger = ledger_of(attempts, up + HOUR / 2, outages=[(down, up)])
    assert ledger.look_back(HOUR) == down - HOUR / 2
    found = ledger.over(HOUR)
    assert found.jobs == pytest.approx({("ann", "home"): 1, ("bob", "home"): 0.5})
    assert ledger.look_back(HOUR / 4) == up + HOUR / 4


def test_several_outages_are_passed_over() -> None:
    outages = [(BEGIN + hour * HOUR, BEGIN + hour * HOUR + 3000) for hour in range(1, 20)]
    ledger = Ledger(BEGIN + 20 * HOUR, HISTORY, outages)
    for span in (1, 600, 601, 1200, 6000, 12000):
        assert up_time(ledger.look_back(span), ledger.as_of, outages) == pytest.approx(span)


def test_an_outage_that_nothing_is_charged_after_yet_is_not_looked_back_upon() -> None:
    ledger = ledger_of([Attempt("ann", "home", BEGIN, None)], BEGIN + DAY)
    ledger.outages.append((BEGIN + DAY, BEGIN + 2 * DAY))
    assert ledger.look_back(HOUR) == BEGIN + DAY - HOUR
    ledger.outages[-1] = (BEGIN + DAY - 60, BEGIN + 2 * DAY)  # a minute was charged that is now known as lost
    assert ledger.look_back(HOUR) == BEGIN + DAY - 60 - HOUR


def test_a_step_of_the_clock_forward_is_charged_to_nobody() -> None:
    """It stands in the books as an outage: the averages of before and after are not thinned by it."""
    ledger = ledger_of([Attempt("ann", "home", BEGIN, None)], BEGIN + DAY)
    ledger.outages.append((BEGIN + DAY, BEGIN + 2 * DAY))
    charge(ledger, [Attempt("ann", "home", BEGIN, None)], BEGIN + 2 * DAY + 60)
    for span in (HOUR, DAY):
        # Within the bucket at the far edge use is taken as even: of a day of this slice at most an hour's part.
        assert ledger.over(span).jobs["ann", "home"] == pytest.approx(
            1, rel=HOUR / span if span > HOUR else 1e-6
        )
    assert ledger.between(BEGIN + DAY, BEGIN + 2 * DAY) == NOTHING


def test_a_step_of_the_clock_back_charges_nothing_until_time_has_caught_up() -> None:
    """What the ledger cannot know it does not charge twice; the store has it made anew besides."""
    running = [Attempt("ann", "home", BEGIN, None)]
    ledger = ledger_of(running, BEGIN + DAY)
    before = ledger.over(HOUR)
    assert charge(ledger, running, BEGIN + DAY - HOUR) == []
    assert ledger.as_of == BEGIN + DAY
    assert ledger.over(HOUR) == before
    charge(ledger, running, BEGIN + DAY + HOUR)
    assert ledger.over(2 * HOUR).jobs["ann", "home"] == pytest.approx(1)


def test_a_rebuild_of_many_attempts_by_portions_equals_the_whole() -> None:
    rng = Random(5)
    attempts = []
    for _ in range(3000):
        started = BEGIN + rng.uniform(0, 30 * DAY)
        owner = f"o{rng.randrange(200)}"
        attempts.append(
            Attempt(owner, "home", started, started + rng.expovariate(1 / HOUR), rng.choice([1, 8]))
        )
    until = BEGIN + 30 * DAY
    ledger = Ledger(BEGIN // DAY * DAY, HISTORY)
    rows = [(one.owner, one.group, one.started, one.ended, one.cores) for one in attempts]
    ledger.charge((columns_of(ledger, rows[at : at + 700]) for at in range(0, 3000, 700)), until)
    begin = BEGIN // DAY * DAY
    assert_near(ledger.between(begin, until), used(attempts, begin, until), until - begin)
