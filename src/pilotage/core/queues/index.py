"""The waiting jobs in memory: proposes which job an offer is given; SQL disposes.

Owned by one thread. Rebuilt from the store at start; changed by the use cases together with the rows, and reset
queue by queue if their transaction fails. Of each queue it knows how many jobs wait with each UserPriority, and
the lowest ids of those (*heads*), which it has the store fill up. Candidates are cached for each *kind* of offer:
two offers are of one kind if no queue can tell them apart without its Requirements, so CPU time and memory count
by the bucket that they reach.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from pilotage.core.ids import JobId, QueueId
from pilotage.core.queues.draws import FIRST, Rule, draw_class
from pilotage.core.queues.fit import (
    Condition,
    Offer,
    RequirementsHold,
    first_failure,
    static_failure,
    with_sizes,
)
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.members import Members
from pilotage.core.shares.priorities import Priorities

PREFETCH = 256
"""So many heads are read from the store at once."""

KINDS = 512
"""So many kinds of offer are remembered; the one unused for longest is forgotten first."""

Heads = Callable[[QueueId, int, int, int], Sequence[JobId]]
"""(queue, UserPriority, after this id, at most n) → ids of waiting jobs, ascending."""

Entity = tuple[str, str]


@dataclass(slots=True)
class _Class:
    """The waiting jobs of one queue with one UserPriority."""

    count: int = 0
    heads: list[JobId] = field(default_factory=list)
    read_to: int = 0
    """All waiting jobs up to this id are in `heads` or were proposed."""


@dataclass(slots=True)
class Entry:
    """One task queue with waiting jobs."""

    id: QueueId
    identity: QueueIdentity
    entity: Entity
    """Whose share it draws on: (owner, group), or ("", group) where the group has JOB_SHARING."""
    admitted: bool = True
    """Whether the policy still knows its group and owner: if not, its jobs stay, and none of them starts."""
    priority: float = 0.0
    """As of the last `settle`, or of when it began to wait."""
    waiting: int = 0
    weight: int = 0
    """Sum of UserPriority of the waiting jobs."""
    classes: dict[int, _Class] = field(default_factory=dict)

    @property
    def background(self) -> bool:
        """Only UserPriority 0 waits here."""
        return not self.weight

    def count(self, user_priority: int, part: _Class, change: int) -> None:
        """So many more jobs wait in `part`."""
        part.count += change
        self.waiting += change
        self.weight += change * user_priority


@dataclass(slots=True)
class _Kind:
    """The queues that fit one kind of offer, by CPU bucket and priority; Requirements not yet asked."""

    offer: Offer
    plain: dict[int, dict[float, Members[QueueId]]] = field(default_factory=dict)
    special: set[QueueId] = field(default_factory=set)
    """Queues that must be looked at one by one: with Requirements, or background."""


@dataclass(frozen=True, slots=True)
class Proposal:
    job: JobId
    queue: QueueId
    user_priority: int


@dataclass(frozen=True, slots=True)
class NoMatch:
    """How many queues with waiting jobs fell at which condition first."""

    fallen: dict[Condition, int]


def refusal(entry: Entry, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit]) -> Condition | None:
    """Why a queue with waiting jobs gets nothing of `offer` at any draw; None if it takes part."""
    if not entry.admitted:
        return Condition.MEMBERSHIP
    failed = first_failure(entry.identity, offer, holds)
    if failed is None and any(limit.concerns(entry.identity) for limit in closed):
        return Condition.LIMIT
    return failed


def taking_part(fitting: Iterable[Entry], holds: RequirementsHold, closed: Sequence[Limit]) -> list[Entry]:
    """Of queues that fit an offer but for their Requirements: those that take part in its draw.

    Background ones are left out while another one of their entity is there.
    """
    there = [
        entry
        for entry in fitting
        if (not entry.identity.requirements or holds(entry.identity.requirements))
        and not (closed and any(limit.concerns(entry.identity) for limit in closed))
    ]
    background = [entry for entry in there if entry.background]
    if not background:
        return there
    foreground = {entry.entity for entry in there if not entry.background}
    return [entry for entry in there if not entry.background or entry.entity not in foreground]


class QueueIndex:
    """All task queues with waiting jobs, and the draw among them."""

    def __init__(
        self,
        heads: Heads,
        *,
        rule: Rule,
        cpu_buckets: Sequence[int],
        memory_buckets: Sequence[int],
        priorities: Priorities[QueueId],
    ) -> None:
        self.entries: dict[QueueId, Entry] = {}
        self.priorities = priorities
        self._heads = heads
        self.rule = rule
        self._cpu_buckets = list(cpu_buckets)
        self._memory_buckets = list(memory_buckets)
        self._kinds: OrderedDict[Offer, _Kind] = OrderedDict()

    # --- what the use cases tell

    def add(self, entry: Entry) -> None:
        """A queue that may have waiting jobs; one that is known already stays as it is."""
        self._tell_apart(entry.identity)
        self.entries.setdefault(entry.id, entry)

    def jobs_added(self, queue: QueueId, user_priority: int, first: JobId, count: int) -> None:
        """New jobs with ids from `first` on wait in `queue`; the store has them already.

        Their ids may be below some that were read: submissions are made in chunks, side by side.
        """
        entry = self.entries[queue]
        before = self._standing(entry)
        part = entry.classes.setdefault(user_priority, _Class())
        entry.count(user_priority, part, count)
        if first <= part.read_to:
            del part.heads[bisect_left(part.heads, first) :]
            part.read_to = JobId(first - 1)
        self._moved(entry, before)

    def job_returned(self, queue: QueueId, user_priority: int, job: JobId) -> None:
        """A job waits again."""
        entry = self.entries[queue]
        before = self._standing(entry)
        part = entry.classes.setdefault(user_priority, _Class())
        if job <= part.read_to:
            if job in part.heads:
                return
            insort(part.heads, job)
        entry.count(user_priority, part, 1)
        self._moved(entry, before)

    def job_gone(self, queue: QueueId, user_priority: int, job: JobId) -> None:
        """A waiting job waits no longer, but was not proposed: it was killed, or finished late."""
        entry = self.entries.get(queue)
        part = entry.classes.get(user_priority) if entry else None
        if entry is None or part is None:
            return
        before = self._standing(entry)
        if job <= part.read_to:
            place = bisect_left(part.heads, job)
            if place == len(part.heads) or part.heads[place] != job:
                return
            del part.heads[place]
        entry.count(user_priority, part, -min(1, part.count))
        self._moved(entry, before)

    def reset(self, queue: QueueId, counts: dict[int, int]) -> None:
        """Start again with one queue, from the store: how many jobs wait with each UserPriority."""
        entry = self.entries[queue]
        before = self._standing(entry)
        entry.classes, entry.waiting, entry.weight = {}, 0, 0
        for weight, count in counts.items():
            entry.count(weight, entry.classes.setdefault(weight, _Class()), count)
        self._moved(entry, before)

    def settle(self) -> Iterator[None]:
        """Take up the priorities of all entities in which something has changed; may be paused after each queue."""
        for queue, priority in self.priorities.settle():
            entry = self.entries.get(queue)
            if entry is not None and entry.waiting:
                self.set_priority(queue, priority)
                yield

    def set_priority(self, queue: QueueId, priority: float) -> None:
        """Move a queue to another priority in the kinds that it fits, without asking again which these are."""
        entry = self.entries[queue]
        if priority == entry.priority:
            return
        before = self._standing(entry)
        entry.priority = priority
        if before is None or before[0]:
            return
        for kind in self._kinds.values():
            if self._displace(kind, entry, before):
                self._insert(kind, entry)

    def remove(self, queue: QueueId) -> None:
        """Forget a queue without jobs."""
        entry = self.entries.get(queue)
        if entry is not None:
            self.reset(queue, {})
            del self.entries[queue]

    # --- the match

    def propose(
        self, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit], rng: Random
    ) -> Proposal | None:
        """Draw a queue that fits, then a job in it, and take that job out of the index.

        A queue that turns out to have no jobs in the store is set right and another one drawn.
        """
        kind = self._kind(offer)
        while True:
            if kind.special or closed:
                queue = self._draw_with_care(kind, holds, closed, rng)
            else:
                queue = self._draw_plain(kind, rng)
            if queue is None:
                return None
            proposal = self._take(self.entries[queue], rng)
            if proposal is not None:
                return proposal

    def explain(self, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit]) -> NoMatch:
        """Why `offer` finds nothing, by the same conditions as the match. Cost: the number of queues."""
        fallen: dict[Condition, int] = {}
        for entry in self.entries.values():
            if entry.waiting:
                failed = refusal(entry, offer, holds, closed) or Condition.BACKGROUND
                fallen[failed] = fallen.get(failed, 0) + 1
        return NoMatch(fallen)

    def candidates(self, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit]) -> list[Entry]:
        """All queues that fit now, background ones left out as the draw leaves them out."""
        return self._fitting(self._kind(offer), holds, closed)

    def _draw_plain(self, kind: _Kind, rng: Random) -> QueueId | None:
        if not kind.plain:
            return None
        if self.rule == "document":
            by_priority = kind.plain[max(kind.plain)]
        elif len(kind.plain) == 1:
            by_priority = next(iter(kind.plain.values()))
        else:
            return self._draw_over_buckets(kind, rng)
        classes = [(priority, len(members)) for priority, members in by_priority.items()]
        winner = classes[draw_class(classes, self.rule, rng)][0]
        return by_priority[winner].any(rng)

    def _draw_over_buckets(self, kind: _Kind, rng: Random) -> QueueId:
        groups = [
            (priority, members)
            for by_priority in kind.plain.values()
            for priority, members in by_priority.items()
        ]
        classes = [(priority, len(members)) for priority, members in groups]
        return groups[draw_class(classes, self.rule, rng)][1].any(rng)

    def _draw_with_care(
        self, kind: _Kind, holds: RequirementsHold, closed: Sequence[Limit], rng: Random
    ) -> QueueId | None:
        fitting = self._fitting(kind, holds, closed)
        if not fitting:
            return None
        if self.rule == "document":
            highest = max(entry.identity.cpu_time for entry in fitting)
            fitting = [entry for entry in fitting if entry.identity.cpu_time == highest]
        return fitting[draw_class([(entry.priority, 1) for entry in fitting], self.rule, rng)].id

    def _fitting(self, kind: _Kind, holds: RequirementsHold, closed: Sequence[Limit]) -> list[Entry]:
        return taking_part(self._of_kind(kind), holds, closed)

    def _of_kind(self, kind: _Kind) -> list[Entry]:
        entries = self.entries
        found = [
            entries[queue]
            for by_priority in kind.plain.values()
            for members in by_priority.values()
            for queue in members
        ]
        found += [entries[queue] for queue in kind.special]
        return found

    def fitting(self, offer: Offer) -> list[Entry] | None:
        """The queues that fit `offer` but for their Requirements; None if no such offer is remembered."""
        kind = self._kinds.get(self.kind_of(offer))
        return None if kind is None else self._of_kind(kind)

    def _take(self, entry: Entry, rng: Random) -> Proposal | None:
        before = self._standing(entry)
        weights = [(weight, part.count) for weight, part in entry.classes.items() if part.count]
        weight = weights[draw_class([(float(w), n) for w, n in weights], self.rule, rng)][0]
        part = entry.classes[weight]
        if len(part.heads) < min(FIRST, part.count):
            self._read_heads(entry, weight, part)
        if not part.heads:
            self._moved(entry, before)
            return None
        job = part.heads.pop(rng.randrange(min(FIRST, len(part.heads))))
        entry.count(weight, part, -1)
        self._moved(entry, before)
        return Proposal(job, entry.id, weight)

    def _read_heads(self, entry: Entry, weight: int, part: _Class) -> None:
        more = self._heads(entry.id, weight, part.read_to, PREFETCH)
        part.heads.extend(more)
        if more:
            part.read_to = more[-1]
        if len(more) < PREFETCH:
            entry.count(weight, part, len(part.heads) - part.count)

    # --- kinds of offer

    def kind_of(self, offer: Offer) -> Offer:
        """The offer that stands for all that no queue can tell from this one."""
        cpu = self._floor(self._cpu_buckets, offer.cpu_time)
        # 1 stands for "known, and below every bucket"; 0 for "not known".
        memory = (self._floor(self._memory_buckets, offer.memory) or 1) if offer.memory else 0
        return with_sizes(offer, cpu, memory)

    def _tell_apart(self, identity: QueueIdentity) -> None:
        """Queues made under an earlier policy, or above the last memory bucket, have values of their own."""
        for buckets, value in (
            (self._cpu_buckets, identity.cpu_time),
            (self._memory_buckets, identity.memory),
        ):
            place = bisect_left(buckets, value)
            if value and (place == len(buckets) or buckets[place] != value):
                buckets.insert(place, value)
                self._kinds.clear()

    @staticmethod
    def _floor(buckets: Sequence[int], value: float) -> int:
        place = bisect_right(buckets, value)
        return buckets[place - 1] if place else 0

    def _kind(self, offer: Offer) -> _Kind:
        key = self.kind_of(offer)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(key)
            for entry in self.entries.values():
                standing = self._standing(entry)
                if standing is not None:
                    self._place(kind, entry, standing)
            if len(self._kinds) > KINDS:
                self._kinds.popitem(last=False)
        else:
            self._kinds.move_to_end(key)
        return kind

    @staticmethod
    def _standing(entry: Entry) -> tuple[bool, float] | None:
        """How a queue stands in the kinds: (must be looked at one by one, priority); None without jobs."""
        if not entry.waiting or not entry.admitted:
            return None
        return (bool(entry.identity.requirements) or entry.background, entry.priority)

    def _moved(self, entry: Entry, before: tuple[bool, float] | None) -> None:
        if entry.admitted:
            identity = entry.identity
            self.priorities.set(entry.id, identity.owner, identity.group, entry.weight, entry.waiting)
            if before is None and entry.waiting:
                entry.priority = self.priorities.of(entry.id, identity.owner, identity.group)
        after = self._standing(entry)
        if before == after:
            return
        for kind in self._kinds.values():
            if before is not None:
                self._displace(kind, entry, before)
            if after is not None:
                self._place(kind, entry, after)

    @staticmethod
    def _place(kind: _Kind, entry: Entry, standing: tuple[bool, float]) -> None:
        if static_failure(entry.identity, kind.offer) is not None:
            return
        if standing[0]:
            kind.special.add(entry.id)
        else:
            QueueIndex._insert(kind, entry)

    @staticmethod
    def _insert(kind: _Kind, entry: Entry) -> None:
        by_priority = kind.plain.setdefault(entry.identity.cpu_time, {})
        by_priority.setdefault(entry.priority, Members()).add(entry.id)

    @staticmethod
    def _displace(kind: _Kind, entry: Entry, standing: tuple[bool, float]) -> bool:
        """Whether it was there."""
        special, priority = standing
        if special:
            found = entry.id in kind.special
            kind.special.discard(entry.id)
            return found
        by_priority = kind.plain.get(entry.identity.cpu_time, {})
        members = by_priority.get(priority)
        if members is None or not members.discard(entry.id):
            return False
        if not members:
            del by_priority[priority]
            if not by_priority:
                del kind.plain[entry.identity.cpu_time]
        return True


def load(index: QueueIndex, entries: Iterable[tuple[Entry, dict[int, int]]]) -> None:
    """Fill an empty index from the store."""
    for entry, counts in entries:
        index.add(entry)
        index.reset(entry.id, counts)
