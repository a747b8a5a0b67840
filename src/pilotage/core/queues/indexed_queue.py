"""One task queue with waiting jobs, as the index knows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from random import Random
from typing import Any, NamedTuple

from pilotage.core.ids import QueueId
from pilotage.core.queues.draws import Rule, draw_class, orders_strictly
from pilotage.core.queues.fit import Condition, Offer, RequirementsHold, first_failure
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.limits import Limit

Entity = tuple[str, str]

Head = tuple[Any, ...]
"""A waiting job as the store reads it; its id comes first."""


class HeadsRequest(NamedTuple):
    """A request for at most `limit` waiting jobs of a queue and UserPriority, with ids above `after`."""

    queue: QueueId
    user_priority: int
    after: int
    limit: int


class QueueStanding(IntEnum):
    """How a queue stands among the candidates."""

    OUT = 0
    """It takes part in no draw."""
    PLAIN = 1
    SPECIAL = 2
    """It is checked by itself at each draw: it has Requirements, or only background jobs."""


# Looked up once: reading an attribute of an enumeration is slow.
_OUT, _PLAIN, _SPECIAL = QueueStanding.OUT, QueueStanding.PLAIN, QueueStanding.SPECIAL


@dataclass(slots=True)
class PriorityLevel:
    """The waiting jobs of one queue with one UserPriority."""

    count: int = 0
    heads: list[Head] = field(default_factory=list)
    """The jobs with the lowest ids, ascending."""
    read_up_to: int = 0
    """All waiting jobs up to this id are in `heads` or were proposed."""
    prefetch: int = 0
    """Size of the last fetch of heads."""


@dataclass(slots=True, eq=False)
class IndexedQueue:
    """One task queue with waiting jobs."""

    id: QueueId
    identity: QueueIdentity
    entity: Entity
    """Whose share it draws on: (owner, group), or ("", group) where the group has JOB_SHARING."""
    admitted: bool = True
    """Whether the policy still knows its group and owner: if not, its jobs stay, and none of them starts."""
    priority: float = 0.0
    """Its priority at the last `apply_priorities`, or when it began to wait."""
    waiting: int = 0
    priority_sum: int = 0
    """Sum of UserPriority of the waiting jobs."""
    levels: dict[int, PriorityLevel] = field(default_factory=dict)
    slot: int = -1
    """Its number in the index."""
    standing: QueueStanding = QueueStanding.OUT
    """Its standing as the candidates know it."""
    order_place: int | None = None
    """Its highest UserPriority as the order among its owner's queues knows it (own_order.py)."""

    @property
    def background(self) -> bool:
        """Only UserPriority 0 waits here."""
        return not self.priority_sum

    def current_standing(self) -> QueueStanding:
        """How it stands now."""
        if not self.waiting or not self.admitted:
            return _OUT
        return _SPECIAL if not self.priority_sum or self.identity.match_text else _PLAIN

    def highest_priority(self) -> int | None:
        """The highest UserPriority of its waiting jobs; None: it takes part in no draw."""
        if self.standing is _OUT:
            return None
        return max(priority for priority, level in self.levels.items() if level.count)

    def draw_user_priority(self, rule: Rule, rng: Random) -> int:
        """The UserPriority of the job that is given. Some jobs must wait."""
        if len(self.levels) == 1:
            return next(iter(self.levels))
        weights = [(priority, level.count) for priority, level in self.levels.items() if level.count]
        return max(weights)[0] if orders_strictly(rule) else weights[draw_class(weights, rule, rng)][0]

    def first_waiting(self) -> dict[int, int]:
        """An id below which no job waits, by UserPriority. Another thread may change the heads meanwhile."""
        return {
            priority: next((int(head[0]) for head in level.heads[:1]), level.read_up_to + 1)
            for priority, level in list(self.levels.items())
            if level.count
        }

    def add_count(self, user_priority: int, part: PriorityLevel, change: int) -> None:
        """Add `change` to the number of jobs that wait in `part`."""
        part.count += change
        self.waiting += change
        self.priority_sum += change * user_priority


def refusal(
    entry: IndexedQueue, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit]
) -> Condition | None:
    """Why a queue with waiting jobs gets nothing of `offer` at any draw; None if it takes part."""
    if not entry.admitted:
        return Condition.MEMBERSHIP
    failed = first_failure(entry.identity, offer, holds)
    if failed is None and any(limit.applies_to(entry.identity) for limit in closed):
        return Condition.LIMIT
    return failed


def waiting_by_site(queues: Iterable[IndexedQueue], sites: Iterable[str]) -> dict[str, int]:
    """The jobs that may run at each site by the site lists of their queues: conditions SITE and BANNED_SITE alone.

    The cost follows the number of queues, not that of sites.
    """
    unbound, corrections = 0, Counter[str]()
    for entry in queues:
        identity, waiting = entry.identity, entry.waiting
        if identity.sites:
            for site in identity.sites - identity.banned_sites:
                corrections[site] += waiting
            continue
        unbound += waiting
        for site in identity.banned_sites:
            corrections[site] -= waiting
    return {site: unbound + corrections[site] for site in sites}


def eligible_queues(
    fitting: Iterable[IndexedQueue], holds: RequirementsHold, closed: Sequence[Limit]
) -> list[IndexedQueue]:
    """Filter queues that fit an offer, Requirements not checked: return the queues in its draw.

    Background ones are left out while another one of their entity is there.
    """
    there = [
        entry
        for entry in fitting
        if (not entry.identity.match_text or holds(entry.identity))
        and not (closed and any(limit.applies_to(entry.identity) for limit in closed))
    ]
    background = [entry for entry in there if entry.background]
    if not background:
        return there
    foreground = {entry.entity for entry in there if not entry.background}
    return [entry for entry in there if not entry.background or entry.entity not in foreground]
