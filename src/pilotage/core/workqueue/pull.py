"""The admission of elements to an agent: by priority, then age of the request, then age, while sites have room.

An element is admitted at a site where the jobs of the same or a higher priority are fewer than the slots. So the last
element may exceed the slots, and work of a low priority never keeps work of a high one away. Elements of a
request with the same locations are alike but for their age: they form a *group*. The groups are merged by a heap,
and a group without room costs one look, however many elements it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from random import Random
from typing import NamedTuple


class Candidate(NamedTuple):
    """One element that waits."""

    id: int
    """A smaller one is older."""
    jobs: int


@dataclass(slots=True)
class CandidateGroup:
    """The waiting elements of one request with one set of locations."""

    priority: int
    sites: frozenset[str]
    """Where its elements may run."""
    first: int
    """The id of its oldest element. Nothing else is read of a group for which no site has room."""
    candidates: Iterator[Candidate]
    """The oldest first."""
    request: int = 0
    """The number of the request; at equal priority the smaller number goes first."""


class AdmittedElement(NamedTuple):
    """An element and the site at which it counts until its jobs run."""

    element: int
    site: str
    jobs: int


@dataclass(slots=True)
class SiteRoom:
    """The jobs of one agent by site and priority, against the slots of each site."""

    slots: Mapping[str, int]
    jobs: dict[str, dict[int, int]] = field(default_factory=dict)
    """Jobs that the agent holds and that do not run yet, by site and priority."""
    _refused: dict[str, int] = field(default_factory=dict)
    """The highest priority that each site has refused. It refuses all lower ones too."""

    def has_room(self, site: str, priority: int) -> bool:
        """Whether an element of `priority` is admitted at `site`. Jobs are only added, so a refusal is final."""
        if site not in self.slots or priority <= self._refused.get(site, priority - 1):
            return False
        held = sum(count for level, count in self.jobs.get(site, {}).items() if level >= priority)
        if held < self.slots[site]:
            return True
        self._refused[site] = priority
        return False

    def add(self, site: str, priority: int, jobs: int) -> None:
        levels = self.jobs.setdefault(site, {})
        levels[priority] = levels.get(priority, 0) + jobs

    def open_sites(self, priority: int) -> frozenset[str]:
        """The sites that still admit work of `priority`."""
        return frozenset(site for site in self.slots if self.has_room(site, priority))


def admit(groups: Iterable[CandidateGroup], room: SiteRoom, limit: int, rng: Random) -> list[AdmittedElement]:
    """Admit at most `limit` elements of groups of any priorities, each at a random site with room."""
    heap = _heads(groups, room)
    admitted: list[AdmittedElement] = []
    while heap and len(admitted) < limit:
        lowered, request, _, number, candidate, group, sites = heap[0]
        site = _draw_site(sites, group.priority, room, rng)
        if site is None:
            heappop(heap)
            continue
        if candidate is not None:
            room.add(site, group.priority, candidate.jobs)
            admitted.append(AdmittedElement(candidate.id, site, candidate.jobs))
        following = next(group.candidates, None)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (lowered, request, following.id, number, following, group, sites))
    return admitted


_Head = tuple[int, int, int, int, Candidate | None, CandidateGroup, list[str]]
"""In the order of admission: the priority with its sign changed, request, element, a number of its own.

None: the element is known by its id only.
"""


def _heads(groups: Iterable[CandidateGroup], room: SiteRoom) -> list[_Head]:
    """A heap of the first element of each group with room."""
    open_sites: dict[int, frozenset[str]] = {}
    heads: list[_Head] = []
    for number, group in enumerate(groups):
        open_now = open_sites.get(group.priority)
        if open_now is None:
            open_now = open_sites[group.priority] = room.open_sites(group.priority)
        sites = open_now & group.sites
        if sites:
            head = -group.priority, group.request, group.first, number
            heads.append((*head, None, group, sorted(sites)))
    heapify(heads)
    return heads


def _draw_site(sites: list[str], priority: int, room: SiteRoom, rng: Random) -> str | None:
    """A random site with room; None: no site has room. Drops the sites without room from `sites`."""
    while sites:
        place = int(rng.random() * len(sites))
        site = sites[place]
        if room.has_room(site, priority):
            return site
        sites[place] = sites[-1]
        sites.pop()
    return None
