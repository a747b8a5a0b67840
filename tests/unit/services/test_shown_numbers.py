"""The numbers that decide how many pilots a CE gets are the very numbers that people see.

In random pools the orders of an iteration and of a cycle are made once more from the numbers that `ce list` and
`director --explain` show. Each stored fact and each field that changes a decision changes the shown facts too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest
from msgspec import structs

from pilotage.core.provisioning.demand import DemandQueue, DemandSums
from pilotage.core.provisioning.iteration import CeLoad, IterationFacts, decide, room_for_pilots
from pilotage.core.provisioning.submit_pools import PoolLoad, PoolVerdict
from pilotage.core.queues.fit import Offer
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.director.ce_status import summaries
from pilotage.services.director.demand import Iteration, post_orders, prepare, read_counts
from pilotage.services.director.iteration_report import report
from pilotage.store.tables import ces
from pilotage.store.tables.ces import CeProgress
from pilotage.wire.ces import CeSummary
from pilotage.wire.director import DirectorReport
from tests.unit.services.bench import POLICY, Paper
from tests.unit.services.test_director_iteration import CES, DIRECTOR, Place

POOLS = 6
PARAMETERS = {
    "pilotsPerIteration": "pilots_per_iteration",
    "lowestCPUBoost": "lowest_cpu_boost",
    "extraPilotFraction": "extra_pilot_fraction",
    "extraPilots": "extra_pilots",
    "PrivatePilotFraction": "private_pilot_fraction",
}


def shown_ces(place: Place) -> dict[str, CeSummary]:
    """The rows of `ce list`."""
    bench = place.bench
    return {ce.name: ce for ce in summaries(bench.pool.policy, bench.connection, bench.now)}


def shown_room(ce: CeSummary) -> int:
    """The pilots for which a CE has room, by the numbers of `ce list`."""
    assert ce.max_waiting is not None
    assert ce.max_running is not None
    return room_for_pilots(ce.waiting, ce.running + ce.orphans, ce.max_waiting, ce.max_running)


def told(work: Iteration, queue: int | None = None) -> DirectorReport:
    return report(work, seed=0, number=None, queue=queue, limit=1000)


def set_progress(place: Place, ce: str, **changes: Any) -> None:
    bench = place.bench
    progress = replace(ces.by_name(bench.connection, ce).progress, **changes)
    bench.do(lambda tx: ces.save_progress(tx.connection, ce, progress))


def random_place(folder: Path, rng: Random) -> Place:
    """A pool with random limits, pilots that wait and run, batch jobs without a pilot, and waiting jobs."""
    place, limits = Place(folder), re.compile(r"(max_\w+) = \d+")
    place.apply(POLICY + limits.sub(lambda found: f"{found[1]} = {rng.randint(1, 40)}", CES) + DIRECTOR)
    bench = place.bench
    for owner in ("alice", "bob"):
        bench.submit(rng.randint(1, 8), cpu_time=rng.choice((500, 50000)), owner=owner)
    place.act(rng.getrandbits(32))
    for intent in place.intents:
        for index in range(rng.randint(0, intent.order.pilots)):
            Paper(bench, intent.secret, index)
    for name in place.directors:
        set_orphans(place, name, rng.choice((0, rng.randint(1, 20))))
    for owner in ("alice", "bob"):
        bench.submit(rng.randint(0, 30) + 1, cpu_time=rng.choice((500, 50000)), owner=owner)
    return place


def set_orphans(place: Place, ce: str, number: int) -> None:
    set_progress(place, ce, orphans=number, orphans_since=place.bench.now - 5.0 if number else None)


def facts_as_shown(work: Iteration, explained: DirectorReport, seen: dict[str, CeSummary]) -> IterationFacts:
    """The facts of an iteration, with each number in place of which one is shown."""
    rows = {row.queue: row for row in explained.queues}
    queues = [
        replace(
            queue, priority=rows[queue.id].priority, jobs=rows[queue.id].jobs, waiting=rows[queue.id].waiting
        )
        for queue in work.facts.queues
    ]
    loads = {ce.name: ce for ce in work.facts.ces}
    shown = [
        replace(
            loads[row.name],
            room=loads[row.name].room if row.closed else shown_room(seen[row.name]),
            closed=row.closed,
            pilot_types=frozenset(row.pilot_types),
            pool=row.pool,
        )
        for row in explained.ces
    ]
    made = [(row.pool, len(row.orders)) for row in explained.queues]
    pools = {
        row.name: PoolLoad(
            row.name,
            row.total,
            enabled=row.verdict != PoolVerdict.DISABLED,
            handled=row.verdict != PoolVerdict.UNHANDLED,
            submissions=row.submissions - sum(number for pool, number in made if pool == row.name),
        )
        for row in explained.pools
    }
    parameters = {ours: explained.parameters[name] for name, ours in PARAMETERS.items()}
    settings = structs.replace(work.facts.settings, **parameters)
    return IterationFacts(
        settings, work.facts.default_pools, explained.parameters["maxCPU"], queues, shown, pools
    )


@pytest.mark.parametrize("number", range(POOLS))
def test_the_orders_follow_from_the_shown_numbers(tmp_path: Path, number: int) -> None:
    seed = SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    rng = Random(seed)
    place = random_place(tmp_path, rng)
    work = place.compute(number)
    explained, seen = told(work), shown_ces(place)
    again = list(decide(facts_as_shown(work, explained, seen), work.fitting, Random(number)))
    assert [decision.orders for decision in again] == [decision.orders for decision in work.decisions]
    for row in explained.ces:
        assert row.closed or row.room + row.ordered == shown_room(seen[row.name]), row
    # Batch jobs may have outlived their pilots since: the cycle of a CE decides once more about its room.
    place.bench.do(lambda tx: post_orders(place.bench.pool, tx, work))
    for name in place.directors:
        set_orphans(place, name, rng.choice((0, rng.randint(1, 20))))
    before = shown_ces(place)
    place.cycle()
    after = shown_ces(place)
    for row in explained.ces:
        if not row.closed:
            submitted = after[row.name].waiting - before[row.name].waiting
            assert submitted == min(row.ordered, shown_room(before[row.name])), row


def other(value: Any, now: float) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 3
        case float() | None:
            return now + 300.0
        case str():
            return f"{value}x"
        case frozenset():
            return frozenset()
    raise AssertionError(f"give another value of {type(value)}")


def decided(work: Iteration) -> list[object]:
    return [work.decisions, [(ce.room, ce.closed, ce.full, ce.rank) for ce in work.facts.ces]]


def test_each_stored_fact_that_changes_a_decision_is_shown(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.apply(POLICY + CES.replace("= 60", "= 40") + DIRECTOR)
    bench = place.bench
    bench.submit(60, cpu_time=500)
    changing = set()
    usual, seen = decided(place.compute(1)), shown_ces(place)
    first = ces.by_name(bench.connection, "batch").progress
    for field in fields(CeProgress):
        set_progress(place, "batch", **{field.name: other(getattr(first, field.name), bench.now)})
        if decided(place.compute(1)) != usual:
            changing.add(field.name)
            assert shown_ces(place) != seen, f"{field.name} decides, and `ce list` does not show it"
        set_progress(place, "batch", **{field.name: getattr(first, field.name)})
    assert {"orphans", "unreachable", "not_before"} <= changing


ONE_POOL = CES.replace('pool = "Slow"\n', "").replace("= 50", "= 30")
IDENTITY = {"id", "name", "slot"}
"""They tell which object it is."""
FACTS: dict[type, str] = {CeLoad: "ces", DemandQueue: "queues", PoolLoad: "pools"}


def prepared(place: Place) -> Iteration:
    """An iteration before its decisions."""
    bench = place.bench
    counts = read_counts(bench.connection, bench.pool.policy, {}, bench.now)
    return next(step for step in prepare(bench.pool, counts, {}, bench.now) if step is not None)


def with_others(facts: IterationFacts, kind: type, field: str, now: float) -> Iterator[IterationFacts]:
    """The facts with another value of a field, in one object of its kind after the other."""
    for number in range(len(getattr(facts, FACTS[kind]))):
        changed = deepcopy(facts)
        kept = getattr(changed, FACTS[kind])
        one = list(kept.values() if isinstance(kept, dict) else kept)[number]
        value = getattr(one, field)
        has_time = isinstance(value, Offer | QueueIdentity)
        fresh = replace(value, cpu_time=value.cpu_time + 7) if has_time else other(value, now)
        object.__setattr__(one, field, fresh)
        changed.sums = DemandSums.of(changed.queues)
        yield changed


def explanation(work: Iteration, facts: IterationFacts) -> list[DirectorReport]:
    """All that is told of the decisions of an iteration, if these had been its facts."""
    queues = {queue.id: queue for queue in facts.queues}
    decisions = [replace(decision, queue=queues[decision.queue.id]) for decision in work.decisions]
    shown = replace(work, facts=facts, decisions=decisions)
    return [told(shown)] + [told(shown, queue.id) for queue in facts.queues]


def run(work: Iteration, facts: IterationFacts) -> Iteration:
    done = replace(work, facts=deepcopy(facts), decisions=[], orders={}, refusals={})
    for _ in done.decide(Random(1)):
        pass
    return done


def by_rank(place: Place) -> None:
    place.apply(POLICY + ONE_POOL + DIRECTOR + "[director.pools.Batch]\nEnableListMatch = true\n")


def without_room(place: Place) -> None:
    for name in place.directors:
        set_orphans(place, name, 100)


@pytest.mark.parametrize("kind", FACTS)
def test_each_field_of_the_facts_is_told(tmp_path: Path, kind: type) -> None:
    """A new fact fails here until an explanation tells it, in one of three pools at least."""
    place = Place(tmp_path)
    place.apply(POLICY + ONE_POOL + DIRECTOR)
    for number in range(6):
        place.bench.submit(2, cpu_time=500 * (number + 1), owner=("alice", "bob")[number % 2])
    place.bench.submit(2, grid_middlewares=("slurm",))
    untold, deciding = {field.name for field in fields(kind)} - IDENTITY, set()
    for change in (lambda place: None, by_rank, without_room):
        change(place)
        work = prepared(place)
        usual = run(work, work.facts)
        for field in {field.name for field in fields(kind)} - IDENTITY:
            for facts in with_others(work.facts, kind, field, place.bench.now):
                orders = [one.orders for one in run(work, facts).decisions]
                deciding |= {field} if orders != [one.orders for one in usual.decisions] else set()
            for facts in with_others(usual.facts, kind, field, place.bench.now):
                if explanation(usual, facts) != explanation(usual, usual.facts):
                    untold.discard(field)
    assert deciding
    assert not untold, f"{sorted(untold)} of {kind.__name__} are told nowhere; {sorted(deciding)} decide"
