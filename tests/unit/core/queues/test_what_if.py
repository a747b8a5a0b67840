"""The changes that `unblocks` proposes, against the predicate asked by hand, on generated queues and offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.queues.fit import Offer, concurrent_jobs, fits
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.offer_history import KnownOffer, count_slots
from pilotage.core.queues.what_if import MOST_VALUES, Buckets, Unblock, unblocks
from tests.unit.core.queues.offers import CPU_BUCKETS, DISK_BUCKETS, MEMORY_BUCKETS, identities, offers

BUCKETS = Buckets(CPU_BUCKETS, MEMORY_BUCKETS, DISK_BUCKETS)
NUMBERS = {
    "cpu_time": CPU_BUCKETS,
    "memory": (0, *MEMORY_BUCKETS),
    "disk": (0, *DISK_BUCKETS),
    "processors": range(1, 9),
}
NAMES = {
    "sites": ["here", "there", "elsewhere"],
    "banned_sites": ["here", "there"],
    "grid_ces": ["ce1", "ce2"],
    "platforms": ["el8", "el9"],
    "tags": ["gpu", "ssd"],
    "pilot_types": ["generic", "private"],
}


def yes(_: QueueIdentity) -> bool:
    return True


def no(_: QueueIdentity) -> bool:
    return False


@st.composite
def known_offers(draw: st.DrawFn) -> KnownOffer:
    holds = draw(st.sampled_from([yes, yes, no]))
    offer = replace(draw(offers()), closed=draw(st.sampled_from([False, False, False, True])))
    if draw(st.booleans()):
        return KnownOffer(offer, holds, possible=True)
    pilots = tuple(draw(st.sets(st.integers(1, 6), max_size=3)))
    return KnownOffer(offer, holds, counted=draw(st.booleans()), pilots=pilots)


def near(queue: QueueIdentity) -> st.SearchStrategy[list[KnownOffer]]:
    """Offers that refuse the queue at little: purely random ones refuse it at many conditions."""
    fitting = Offer(
        site=min(queue.sites - queue.banned_sites, default="elsewhere"),
        ce=min(queue.grid_ces, default="ce1"),
        cpu_time=300000.0,
        setup=queue.setup,
        platforms=queue.platforms,
        tags=queue.tags,
        processors=8,
        memory=20000,
        disk=50000,
    )
    wrong = st.sampled_from([*range(len(WRONG))]).flatmap(
        lambda kind: st.lists(
            st.sampled_from([*WRONG[kind], *WRONG[kind], {}, {"closed": True}]), min_size=1, max_size=6
        )
    )

    def known(changes: list[dict[str, Any]], holds: list[Any]) -> list[KnownOffer]:
        return [
            KnownOffer(replace(fitting, **one), holds[place % len(holds)], pilots=(place % 4,))
            for place, one in enumerate(changes)
        ]

    return st.builds(known, wrong, st.lists(st.sampled_from([yes, yes, no]), min_size=1, max_size=3))


WRONG: list[list[dict[str, Any]]] = [
    [{"site": "here"}, {"site": "there"}, {"site": "elsewhere"}],
    [{"ce": "ce1"}, {"ce": "ce2"}],
    [{"cpu_time": 600.0}, {"cpu_time": 5500.0}, {"cpu_time": 51000.0}, {"cpu_time": 10.0}],
    [{"setup": "other"}, {"setup": "test"}, {"setup": ""}],
    [{"platforms": frozenset({"el7"})}, {"platforms": frozenset({"el7", "el8"})}, {"platforms": frozenset()}],
    [{"tags": frozenset()}, {"tags": frozenset({"gpu"})}, {"tags": frozenset({"ssd"})}],
    [
        {"tags": frozenset({"gpu", "ssd"}), "required_tags": frozenset({name for name in names})}
        for names in (["gpu"], ["ssd"], ["gpu", "ssd"])
    ],
    [{"processors": count} for count in (1, 2, 3, 5)],
    [{"memory": memory} for memory in (100, 600, 1100, 1900, 2500, 4100)],
    [{"disk": disk} for disk in (100, 1030, 21000)],
    [
        {"memory": memory, "processors": count}
        for memory, count in ((1100, 1), (2500, 5), (4100, 2), (600, 8))
    ],
    [
        {"job_types": frozenset({"Merge", "Skim"})},
        {"job_types": frozenset({"User"})},
        {"job_types": frozenset()},
    ],
    [{"only_owner": "carol"}, {"pilot_type": "private"}],
]
"""What refuses a queue at one condition mostly; offers that differ in the same thing meet."""

queues = identities().flatmap(
    lambda queue: st.sampled_from(
        [
            queue,
            replace(queue, memory=8000),
            replace(queue, disk=20480),
            replace(queue, cpu_time=300000, processors=8),
            replace(queue, requirements=""),
        ]
    )
)
queues_and_offers = queues.flatmap(
    lambda queue: st.tuples(
        st.just(queue),
        st.builds(lambda one, other: one + other, near(queue), st.lists(known_offers(), max_size=2)),
    )
)


def opened(queue: QueueIdentity, changed: QueueIdentity, known: Sequence[KnownOffer]) -> tuple[int, ...]:
    return tuple(
        place
        for place, one in enumerate(known)
        if not fits(queue, one.offer, one.holds) and fits(changed, one.offer, one.holds)
    )


def changed_queue(queue: QueueIdentity, attribute: str, value: object) -> QueueIdentity:
    changes: dict[str, Any] = {attribute: value}
    return replace(queue, **changes)


def all_changes(queue: QueueIdentity) -> Iterator[tuple[str, str, QueueIdentity]]:
    """Every single change there is in the generated world, numbers left out."""
    for attribute, names in NAMES.items():
        before = getattr(queue, attribute)
        for name in names:
            add = attribute in ("sites", "grid_ces", "platforms", "pilot_types") and before
            after = before | {name} if add else before - {name}
            if attribute == "tags" and name not in before:
                after = before | {name}
            if after != before and not (before and not after and attribute != "tags" and add):
                yield attribute, name, changed_queue(queue, attribute, after)
    for attribute, values in (("setup", ["", "test", "other"]), ("job_type", ["User", "Merge", "Skim"])):
        for value in values:
            if value != getattr(queue, attribute):
                yield attribute, value, changed_queue(queue, attribute, value)
    if queue.requirements:
        yield "requirements", "", replace(queue, requirements="")
    if queue.host_requirements:
        yield "host_requirements", "", replace(queue, host_requirements="")
    if queue.output_se:
        yield "output_se", "", replace(queue, output_se="")
    if queue.force_generic:
        yield "force_generic", "0", replace(queue, force_generic=False)


def named(found: Iterable[Unblock]) -> dict[tuple[str, str], Unblock]:
    return {(one.change.attribute, str(one.change.value)): one for one in found}


def test_dropping_the_platform_opens_offers_of_other_platforms_too() -> None:
    queue = QueueIdentity("alice", "physics", platforms=frozenset({"el8"}))
    fitting = Offer(site="here", ce="ce1", cpu_time=300000.0, processors=1, memory=2000)
    known = [
        KnownOffer(replace(fitting, platforms=platforms), yes, pilots=(place,))
        for place, platforms in enumerate((frozenset({"el7"}), frozenset[str]()))
    ]
    [dropped] = [opening for opening in unblocks(queue, known, BUCKETS) if opening.change.value == ""]
    assert dropped.offers == (0, 1)


@given(queues_and_offers)
def test_each_proposed_change_opens_the_offers_that_the_predicate_finds(
    case: tuple[QueueIdentity, list[KnownOffer]],
) -> None:
    queue, known = case
    for one in unblocks(queue, known, BUCKETS):
        assert one.offers == opened(queue, one.change.identity, known)
        assert one.sites == count_slots(one.change.identity, [known[place] for place in one.offers])
        assert one.slots == sum(one.sites.values()) > 0
        differing = [
            name
            for name in QueueIdentity.__dataclass_fields__
            if getattr(queue, name) != getattr(one.change.identity, name)
        ]
        assert differing == [one.change.attribute], "a single change"


@given(queues_and_offers)
def test_no_single_change_that_opens_slots_is_left_out(case: tuple[QueueIdentity, list[KnownOffer]]) -> None:
    queue, known = case
    found = named(unblocks(queue, known, BUCKETS))
    for attribute, value, changed in all_changes(queue):
        places = opened(queue, changed, known)
        if count_slots(changed, [known[place] for place in places]):
            assert (attribute, value) in found, (attribute, value)


@given(queues_and_offers)
def test_smaller_values_of_a_number_are_proposed_only_if_they_open_more(
    case: tuple[QueueIdentity, list[KnownOffer]],
) -> None:
    queue, known = case
    found = unblocks(queue, known, BUCKETS)
    for attribute, values in NUMBERS.items():
        ours = sorted(
            (one for one in found if one.change.attribute == attribute),
            key=lambda one: -int(one.change.value),
        )
        assert len(ours) <= MOST_VALUES
        assert [one.slots for one in ours] == sorted({one.slots for one in ours})
        possible = []
        for value in values:
            if value < getattr(queue, attribute):
                changed = changed_queue(queue, attribute, value)
                if count_slots(changed, [known[place] for place in opened(queue, changed, known)]):
                    possible.append(value)
        assert bool(ours) == bool(possible)
        if ours and attribute != "memory":
            assert ours[0].change.value == max(possible)
        elif ours:
            assert int(ours[0].change.value) == max(possible)


@given(queues_and_offers)
def test_most_slots_come_first(case: tuple[QueueIdentity, list[KnownOffer]]) -> None:
    found = [one.slots for one in unblocks(*case, BUCKETS)]
    assert found == sorted(found, reverse=True)


def test_the_words_are_those_of_a_job_description() -> None:
    queue = QueueIdentity(
        "alice", "physics", memory=16000, sites=frozenset({"here"}), tags=frozenset({"gpu"})
    )
    offer = Offer("here", "ce1", 300000.0, tags=frozenset({"gpu"}), processors=4, memory=3500)
    known = [
        KnownOffer(offer, yes, pilots=(1, 2)),
        KnownOffer(replace(offer, memory=9000), yes, pilots=(3,)),
        KnownOffer(replace(offer, site="there", memory=64000), yes, possible=True),
        KnownOffer(replace(offer, tags=frozenset(), memory=64000), yes, pilots=(4,)),
    ]
    buckets = Buckets(CPU_BUCKETS, (1000, 2000, 3000, 4000, 8000, 16000), DISK_BUCKETS)
    assert [(one.change.text, one.slots, one.sites) for one in unblocks(queue, known, buckets)] == [
        ("memory <= 2000 MB", 6, {"here": 6}),
        ("memory <= 3000 MB", 5, {"here": 5}),
        ("site there allowed too", 4, {"there": 4}),
        ("without the tag gpu", 4, {"here": 4}),
        ("memory <= 8000 MB", 1, {"here": 1}),
    ]


def test_a_pilot_counts_once_with_its_largest_offer_and_not_where_a_possible_one_stands() -> None:
    queue = QueueIdentity("alice", "physics")
    large = Offer("here", "ce1", 1000.0, processors=8)
    small = replace(large, processors=2)
    assert concurrent_jobs(queue, small) == 2
    assert count_slots(
        queue, [KnownOffer(small, yes, pilots=(1, 2)), KnownOffer(large, yes, pilots=(1,))]
    ) == {"here": 10}
    possible = KnownOffer(large, yes, possible=True)
    assert count_slots(queue, [KnownOffer(small, yes, counted=False, pilots=(1, 2)), possible]) == {"here": 8}


def test_closed_and_foreign_offers_propose_no_change() -> None:
    queue = QueueIdentity("alice", "physics")
    closed = KnownOffer(Offer("here", "ce1", 1000.0, closed=True), yes, possible=True)
    of_bob = KnownOffer(Offer("here", "ce1", 1000.0, only_owner="bob"), yes, possible=True)
    assert unblocks(queue, [closed, of_bob], BUCKETS) == []


def test_a_smaller_value_that_opens_no_more_is_not_named() -> None:
    queue = QueueIdentity("alice", "physics", memory=4000)
    offer = Offer("here", "ce1", 300000.0, memory=2500)
    known = [KnownOffer(offer, yes, pilots=(1,)), KnownOffer(replace(offer, memory=1500), yes, pilots=(1,))]
    assert [one.change.text for one in unblocks(queue, known, BUCKETS)] == ["memory <= 2000 MB"]


def test_less_disk_is_proposed_where_a_node_has_less_free() -> None:
    queue = QueueIdentity("alice", "physics", disk=4096)
    offer = Offer("here", "ce1", 300000.0, processors=4, disk=3500)
    known = [
        KnownOffer(offer, yes, pilots=(1, 2)),
        KnownOffer(replace(offer, site="there"), yes, possible=True),
        KnownOffer(replace(offer, processors=1, disk=100), yes, pilots=(3,)),
    ]
    buckets = Buckets(CPU_BUCKETS, MEMORY_BUCKETS, (512, 1024, 3000, 4096))
    assert [(one.change.text, one.slots, one.sites) for one in unblocks(queue, known, buckets)] == [
        ("no disk asked for", 13, {"here": 9, "there": 4}),
        ("disk <= 512 MB", 12, {"here": 8, "there": 4}),
        ("disk <= 3000 MB", 3, {"here": 2, "there": 1}),
    ]


def test_two_missing_tags_are_no_single_change_and_each_platform_of_a_node_is_one() -> None:
    offer = Offer("here", "ce1", 300000.0, platforms=frozenset({"el7", "el8"}))
    two_tags = QueueIdentity("alice", "physics", tags=frozenset({"gpu", "ssd"}))
    assert unblocks(two_tags, [KnownOffer(offer, yes, pilots=(1,))], BUCKETS) == []
    wants_two = replace(offer, tags=frozenset({"gpu", "ssd"}), required_tags=frozenset({"gpu", "ssd"}))
    assert unblocks(QueueIdentity("a", "b"), [KnownOffer(wants_two, yes, pilots=(1,))], BUCKETS) == []
    el9 = QueueIdentity("alice", "physics", platforms=frozenset({"el9"}))
    found = unblocks(el9, [KnownOffer(offer, yes, pilots=(1,))], BUCKETS)
    assert [one.change.text for one in found] == ["platform el7 allowed too", "platform el8 allowed too"]
