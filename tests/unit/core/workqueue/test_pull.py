"""No site is exceeded by more than one element, and the order is that of priority and age."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.workqueue.pull import AdmittedElement, Candidate, CandidateGroup, SiteRoom, admit

SITES = "ABCDE"


@dataclass(frozen=True)
class Waiting:
    """One group of the test."""

    priority: int
    sites: frozenset[str]
    jobs: tuple[int, ...]


groups = st.lists(
    st.builds(
        Waiting,
        st.integers(0, 4),
        st.frozensets(st.sampled_from(SITES)),
        st.lists(st.integers(1, 30), max_size=12).map(tuple),
    ),
    max_size=12,
)
slots = st.dictionaries(st.sampled_from(SITES), st.integers(0, 80))
held = st.dictionaries(st.sampled_from(SITES), st.dictionaries(st.integers(0, 4), st.integers(0, 60)))


def candidates(waiting: list[Waiting], rng: Random) -> tuple[list[CandidateGroup], dict[int, Waiting]]:
    """The groups with ids in random order over all groups."""
    ids = list(range(sum(len(group.jobs) for group in waiting)))
    rng.shuffle(ids)
    built: list[CandidateGroup] = []
    by_id: dict[int, Waiting] = {}
    for group in waiting:
        own = sorted(ids.pop() for _ in group.jobs)
        by_id.update(dict.fromkeys(own, group))
        members = [Candidate(number, jobs) for number, jobs in zip(own, group.jobs, strict=True)]
        first = own[0] if own else 0
        built.append(CandidateGroup(group.priority, group.sites, first, iter(members)))
    return built, by_id


def copied(jobs: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
    return {site: dict(levels) for site, levels in jobs.items()}


@given(groups, slots, held, st.integers(0, 40), st.integers(0, 9))
def test_every_admission_had_room(
    waiting: list[Waiting],
    slots: dict[str, int],
    held: dict[str, dict[int, int]],
    limit: int,
    seed: int,
) -> None:
    built, by_id = candidates(waiting, Random(seed))
    room = SiteRoom(slots, copied(held))
    admitted = admit(built, room, limit, Random(seed))
    assert len(admitted) <= limit
    assert len({admission.element for admission in admitted}) == len(admitted)
    counts = copied(held)
    for admission in admitted:
        group = by_id[admission.element]
        assert admission.site in group.sites
        levels = counts.setdefault(admission.site, {})
        # Before the element, and only before: the one element may exceed the slots.
        assert sum(jobs for level, jobs in levels.items() if level >= group.priority) < slots[admission.site]
        levels[group.priority] = levels.get(group.priority, 0) + admission.jobs
    assert {site: levels for site, levels in counts.items() if levels} == {
        site: levels for site, levels in room.jobs.items() if levels
    }


@given(groups, slots, held, st.integers(0, 9))
def test_everything_left_has_no_room(
    waiting: list[Waiting], slots: dict[str, int], held: dict[str, dict[int, int]], seed: int
) -> None:
    built, by_id = candidates(waiting, Random(seed))
    room = SiteRoom(slots, copied(held))
    admitted = {admission.element for admission in admit(built, room, 10**6, Random(seed))}
    for element, group in by_id.items():
        if element not in admitted:
            assert not any(SiteRoom(slots, room.jobs).has_room(site, group.priority) for site in group.sites)


@given(groups, slots, st.integers(0, 9))
def test_priority_then_age(waiting: list[Waiting], slots: dict[str, int], seed: int) -> None:
    built, by_id = candidates(waiting, Random(seed))
    admitted = admit(built, SiteRoom(slots), 10**6, Random(seed))
    order = [(-by_id[admission.element].priority, admission.element) for admission in admitted]
    assert order == sorted(order)


class Unread(Iterator[Candidate]):
    """A group that must not be read."""

    def __next__(self) -> Candidate:
        raise AssertionError("read, though no site has room")


def test_a_group_without_room_is_not_read() -> None:
    room = SiteRoom({"A": 10}, {"A": {5: 10}})
    unread = [CandidateGroup(priority, frozenset("AB"), 1, Unread()) for priority in (5, 4, 0)]
    above = CandidateGroup(6, frozenset("A"), 9, iter([Candidate(9, 1)]))
    assert admit([*unread, above], room, 10, Random(1)) == [AdmittedElement(9, "A", 1)]


def test_the_site_is_drawn() -> None:
    rng = Random(4)
    drawn = set()
    for _ in range(40):
        group = CandidateGroup(0, frozenset("ABC"), 1, iter([Candidate(1, 1)]))
        [admission] = admit([group], SiteRoom(dict.fromkeys("ABD", 5)), 5, rng)
        drawn.add(admission.site)
    assert drawn == {"A", "B"}
