"""The waiting jobs in memory: proposes which job an offer is given; SQL disposes.

Owned by one thread. Rebuilt from the store at start; changed by the use cases together with the rows, and reset
queue by queue if their transaction fails. Of each queue it knows how many jobs wait with each UserPriority, and
the lowest ids of those (*heads*), which it has the store fill up. Candidates are kept for each *kind* of offer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from pilotage.core.ids import JobId, QueueId
from pilotage.core.queues.candidates import Candidates, Kind
from pilotage.core.queues.draws import FIRST, Rule, draw_class
from pilotage.core.queues.entry import Entry, JobClass, Standing, refusal, taking_part
from pilotage.core.queues.fit import Condition, Offer, RequirementsHold
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.weighted import draw
from pilotage.core.shares.priorities import Priorities

PREFETCH = 256
"""So many heads are read from the store at once."""

Heads = Callable[[QueueId, int, int, int], Sequence[JobId]]
"""(queue, UserPriority, after this id, at most n) → ids of waiting jobs, ascending."""


@dataclass(frozen=True, slots=True)
class Proposal:
    job: JobId
    queue: QueueId
    user_priority: int


@dataclass(frozen=True, slots=True)
class NoMatch:
    """How many queues with waiting jobs fell at which condition first."""

    fallen: dict[Condition, int]


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
        self._of_owner: dict[str, dict[QueueId, Entry]] = {}
        self.priorities = priorities
        self._heads = heads
        self.rule = rule
        self._candidates = Candidates(cpu_buckets, memory_buckets)

    # --- what the use cases tell

    def add(self, entry: Entry) -> None:
        """A queue that may have waiting jobs; one that is known already stays as it is."""
        self._candidates.tell_apart(entry.identity)
        if entry.id not in self.entries:
            self.entries[entry.id] = entry
            self._of_owner.setdefault(entry.identity.owner, {})[entry.id] = entry

    def jobs_added(self, queue: QueueId, user_priority: int, first: JobId, count: int) -> None:
        """New jobs with ids from `first` on wait in `queue`; the store has them already.

        Their ids may be below some that were read: submissions are made in chunks, side by side.
        """
        entry = self.entries[queue]
        before = entry.standing
        part = entry.classes.setdefault(user_priority, JobClass())
        entry.count(user_priority, part, count)
        if first <= part.read_to:
            del part.heads[bisect_left(part.heads, first) :]
            part.read_to = JobId(first - 1)
        self._moved(entry, before)

    def job_returned(self, queue: QueueId, user_priority: int, job: JobId) -> None:
        """A job waits again."""
        entry = self.entries[queue]
        before = entry.standing
        part = entry.classes.setdefault(user_priority, JobClass())
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
        before = entry.standing
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
        before = entry.standing
        entry.classes, entry.waiting, entry.weight = {}, 0, 0
        for weight, count in counts.items():
            entry.count(weight, entry.classes.setdefault(weight, JobClass()), count)
        self._moved(entry, before)

    def settle(self) -> Iterator[None]:
        """Take up the priorities of all entities in which something has changed; may be paused after each queue."""
        for queue, priority in self.priorities.settle():
            entry = self.entries.get(queue)
            if entry is not None and entry.waiting:
                self.set_priority(queue, priority)
                yield

    def set_priority(self, queue: QueueId, priority: float) -> None:
        """Of a queue that waits."""
        entry = self.entries[queue]
        before = entry.standing
        entry.priority = priority
        after = entry.standing
        if before != after and before is not None and after is not None and not before.special:
            self._candidates.reclassed(entry, before, after)

    def remove(self, queue: QueueId) -> None:
        """Forget a queue without jobs."""
        entry = self.entries.get(queue)
        if entry is not None:
            self.reset(queue, {})
            del self.entries[queue]
            del self._of_owner[entry.identity.owner][queue]

    # --- the match

    def propose(
        self, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit], rng: Random
    ) -> Proposal | None:
        """Draw a queue that fits, then a job in it, and take that job out of the index.

        A queue that turns out to have no jobs in the store is set right and another one drawn.
        """
        kind = self._candidates.of(offer, self._of)
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
        return self._fitting(self._candidates.of(offer, self._of), holds, closed)

    def _draw_plain(self, kind: Kind, rng: Random) -> QueueId | None:
        if not kind.plain:
            return None
        pools = [kind.plain[max(kind.plain)]] if self.rule == "document" else list(kind.plain.values())
        return draw(pools, self.rule, self._priority, rng)

    def _priority(self, queue: QueueId) -> float:
        return self.entries[queue].priority

    def _draw_with_care(
        self, kind: Kind, holds: RequirementsHold, closed: Sequence[Limit], rng: Random
    ) -> QueueId | None:
        fitting = self._fitting(kind, holds, closed)
        if not fitting:
            return None
        if self.rule == "document":
            highest = max(entry.identity.cpu_time for entry in fitting)
            fitting = [entry for entry in fitting if entry.identity.cpu_time == highest]
        return fitting[draw_class([(entry.priority, 1) for entry in fitting], self.rule, rng)].id

    def _fitting(self, kind: Kind, holds: RequirementsHold, closed: Sequence[Limit]) -> list[Entry]:
        return taking_part(self._of_kind(kind), holds, closed)

    def _of_kind(self, kind: Kind) -> list[Entry]:
        found = [self.entries[queue] for queue in kind.queues()]
        found += [self.entries[queue] for queue in kind.special]
        return found

    def fitting(self, offer: Offer) -> list[Entry] | None:
        """The queues that fit `offer` but for their Requirements; None if no such offer is remembered."""
        kind = self._candidates.known(offer)
        return None if kind is None else self._of_kind(kind)

    def _take(self, entry: Entry, rng: Random) -> Proposal | None:
        before = entry.standing
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

    def _read_heads(self, entry: Entry, weight: int, part: JobClass) -> None:
        more = self._heads(entry.id, weight, part.read_to, PREFETCH)
        part.heads.extend(more)
        if more:
            part.read_to = more[-1]
        if len(more) < PREFETCH:
            entry.count(weight, part, len(part.heads) - part.count)

    def kind_of(self, offer: Offer) -> Offer:
        """The offer that stands for all that no queue can tell from this one."""
        return self._candidates.kind_of(offer)

    def _of(self, owner: str | None) -> Iterable[Entry]:
        """The queues of one owner, or all."""
        found = self.entries if owner is None else self._of_owner.get(owner, {})
        return found.values()

    def _moved(self, entry: Entry, before: Standing | None) -> None:
        """The waiting jobs of a queue have changed."""
        if entry.admitted:
            identity = entry.identity
            self.priorities.set(entry.id, identity.owner, identity.group, entry.weight, entry.waiting)
            if before is None and entry.waiting:
                entry.priority = self.priorities.of(entry.id, identity.owner, identity.group)
        after = entry.standing
        if before != after:
            self._candidates.moved(entry, before, after)


def load(index: QueueIndex, entries: Iterable[tuple[Entry, dict[int, int]]]) -> None:
    """Fill an empty index from the store."""
    for entry, counts in entries:
        index.add(entry)
        index.reset(entry.id, counts)
