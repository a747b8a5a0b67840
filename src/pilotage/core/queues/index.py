"""The waiting jobs in memory: proposes which job an offer is given; SQL disposes.

Owned by one thread. Rebuilt from the store at start; changed by the use cases together with the rows, and reset
queue by queue if their transaction fails. Of each queue it knows how many jobs wait with each UserPriority, and
the first of those (*heads*), which it has the store fill up. Which queue is drawn is the matter of candidates.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from pilotage.core.ids import JobId, QueueId
from pilotage.core.queues.candidates import Candidates
from pilotage.core.queues.draws import FIRST, Rule, draw_class
from pilotage.core.queues.fit import Condition, Offer, RequirementsHold, with_sizes
from pilotage.core.queues.index_delta import IndexDelta
from pilotage.core.queues.indexed_queue import (
    Head,
    HeadsWanted,
    IndexedQueue,
    PriorityLevel,
    QueueStanding,
    refusal,
    taking_part,
)
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.offer_classes import OfferClass
from pilotage.core.shares.priorities import Priorities

FIRST_PREFETCH, LARGEST_PREFETCH = 16, 128
"""So many heads are read from the store at once, of a queue that is drawn for the first time and of a busy one."""

_PLAIN = QueueStanding.PLAIN

MOST_FOLLOWING = 256
"""For so many draws the next one is looked at."""

Heads = Callable[[Sequence[HeadsWanted]], Sequence[Sequence[Head]]]
"""For each that is wanted the waiting jobs, by rising id."""

_Short = tuple[IndexedQueue, int, PriorityLevel]
"""Of a queue, a UserPriority, and its jobs: the heads are to be read."""


class Proposal(NamedTuple):
    head: Head
    entry: IndexedQueue
    user_priority: int

    @property
    def job(self) -> JobId:
        return JobId(self.head[0])

    @property
    def queue(self) -> QueueId:
        return self.entry.id


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
        rng: Random,
        shared: bool = False,
    ) -> None:
        """`shared`: other servers have indexes of the same jobs. What is done to this one is noted, and what is done
        to those comes by `others`; counts then follow these notes alone, and heads are but what was last read.
        """
        self.notes: IndexDelta | None = IndexDelta() if shared else None
        self.entries: dict[QueueId, IndexedQueue] = {}
        self.of_owner: dict[str, dict[QueueId, IndexedQueue]] = {}
        self._stranded: dict[QueueId, IndexedQueue] = {}
        """Those that the policy does not admit."""
        self._priorities = priorities
        self._changed: set[IndexedQueue] = set()
        """Queues of whose waiting jobs the priorities have not been told yet."""
        self._candidates = Candidates(cpu_buckets, memory_buckets, rule, rng)
        self._kinds = self._candidates.kinds
        self.sizes = self._kinds.sizes
        self._following: deque[OfferClass] = deque(maxlen=MOST_FOLLOWING)
        """Those of the last draws: they are likely to be asked for again."""
        self._heads = heads
        self.rule = rule

    @property
    def priorities(self) -> Priorities[QueueId]:
        """Of all entities, told of every change."""
        for entry in self._changed:
            self._tell(entry)
        self._changed.clear()
        return self._priorities

    # --- what the use cases tell

    def add(self, entry: IndexedQueue) -> None:
        """A queue that may have waiting jobs; one that is known already stays as it is."""
        if entry.id not in self.entries:
            self.entries[entry.id] = entry
            self.of_owner.setdefault(entry.identity.owner, {})[entry.id] = entry
            self._candidates.enter(entry)
            if not entry.admitted:
                self._stranded[entry.id] = entry

    def jobs_added(self, queue: QueueId, user_priority: int, first: JobId, count: int) -> None:
        """New jobs with ids from `first` on wait in `queue`; the store has them already.

        Their ids may be below some that were read: submissions are made in chunks, side by side.
        """
        if self.notes is not None:
            self.notes.back.append((queue, user_priority, first, count))
        self._wait_from(queue, user_priority, first, count)

    def _wait_from(self, queue: QueueId, user_priority: int, first: int, count: int) -> None:
        """`count` jobs more wait, none of them with an id below `first`."""
        entry = self.entries[queue]
        part = entry.classes.setdefault(user_priority, PriorityLevel())
        entry.count(user_priority, part, count)
        if first <= part.read_to:
            del part.heads[bisect_left(part.heads, (first,)) :]
            part.read_to = first - 1
        self._moved(entry)

    def jobs_found(self, queue: QueueId, user_priority: int, first: JobId, count: int) -> None:
        """So many more jobs were found to wait in `queue`, the first of them `first`; read by rising ids."""
        entry = self.entries[queue]
        part = entry.classes.get(user_priority)
        if part is None:
            part = entry.classes[user_priority] = PriorityLevel(read_to=first - 1)
        entry.count(user_priority, part, count)
        self._moved(entry)

    def job_returned(self, queue: QueueId, user_priority: int, head: Head) -> None:
        """A job waits again."""
        if self.notes is not None:
            self.notes.back.append((queue, user_priority, head[0], 1))
            self._wait_from(queue, user_priority, head[0], 1)
            return
        entry, job = self.entries[queue], head[0]
        part = entry.classes.setdefault(user_priority, PriorityLevel())
        if job <= part.read_to:
            place = bisect_left(part.heads, (job,))
            if place < len(part.heads) and part.heads[place][0] == job:
                return
            part.heads.insert(place, head)
        entry.count(user_priority, part, 1)
        self._moved(entry)

    def job_gone(self, queue: QueueId, user_priority: int, job: JobId) -> None:
        """A waiting job waits no longer, but was not proposed: it was killed, or finished late."""
        if self.notes is not None:
            # Also of one that this index has not heard of yet: the others may know it.
            self.notes.gone.append((queue, user_priority, job, 0))
        entry = self.entries.get(queue)
        part = entry.classes.get(user_priority) if entry else None
        if entry is None or part is None:
            return
        if self.notes is not None:
            self._gone(queue, user_priority, job, 0)
            return
        if job <= part.read_to:
            place = bisect_left(part.heads, (job,))
            if place == len(part.heads) or part.heads[place][0] != job:
                return
            del part.heads[place]
        entry.count(user_priority, part, -min(1, part.count))
        self._moved(entry)

    def others(self, notes: IndexDelta) -> None:
        """Follow what was done to the index of another server; of queues that this one knows."""
        for queue, user_priority, first, count in notes.back:
            self._wait_from(queue, user_priority, first, count)
        for queue, user_priority, job, last_event in notes.gone:
            self._gone(queue, user_priority, job, last_event)

    def _gone(self, queue: QueueId, user_priority: int, job: int, last_event: int) -> None:
        entry = self.entries[queue]
        part = entry.classes.get(user_priority)
        if part is None:
            return
        place = bisect_left(part.heads, (job,))
        head = part.heads[place] if place < len(part.heads) else (0,)
        # Of another event: it has come back already, as this server knows and the other did not.
        if head[0] == job and last_event in (0, head[3]):
            del part.heads[place]
        entry.count(user_priority, part, -min(1, part.count))
        self._moved(entry)

    def lost(self, queue: QueueId, user_priority: int, job: JobId) -> None:
        """What was proposed is another server's: it counts until that one's note comes.

        What stands behind it is read again: that may be given away as well.
        """
        assert self.notes is not None
        gone = self.notes.gone
        for place in range(len(gone) - 1, -1, -1):
            if gone[place][2] == job:
                del gone[place]
                break
        self._wait_from(queue, user_priority, job, 1)

    def reset(
        self, queue: QueueId, counts: Mapping[int, int], behind: Mapping[int, int] | None = None
    ) -> None:
        """Start again with one queue, from the store: how many jobs wait with each UserPriority, and optionally an
        id behind which all of these are.
        """
        entry = self.entries[queue]
        entry.classes, entry.waiting, entry.weight = {}, 0, 0
        for weight, count in counts.items():
            part = entry.classes[weight] = PriorityLevel(read_to=behind.get(weight, 0) if behind else 0)
            entry.count(weight, part, count)
        self._moved(entry)

    def take_over(self, entry: IndexedQueue, before: IndexedQueue) -> None:
        """A queue that was added, with what `before`, its entry in another index, knows of its waiting jobs."""
        entry.classes, entry.waiting, entry.weight = before.classes, before.waiting, before.weight
        self._moved(entry)

    def clear(self) -> None:
        """Forget all queues."""
        for queue in list(self.entries):
            self.remove(queue)
        self._following.clear()
        self._candidates.clear()

    def settle(self) -> Iterator[None]:
        """Take up the priorities of all entities in which something has changed; may be paused after each queue."""
        for queue, priority in self.priorities.settle():
            entry = self.entries.get(queue)
            if entry is not None and entry.waiting:
                entry.priority = priority
                self._candidates.weigh(entry)
                yield
        self._candidates.settled()

    def set_priority(self, queue: QueueId, priority: float) -> None:
        """Of a queue that waits."""
        entry = self.entries[queue]
        entry.priority = priority
        self._candidates.weigh(entry)
        self._candidates.settled()

    def remove(self, queue: QueueId) -> None:
        """Forget a queue without jobs."""
        entry = self.entries.get(queue)
        if entry is not None:
            self.reset(queue, {})
            self._candidates.leave(entry)
            self._stranded.pop(queue, None)
            del self.entries[queue]
            of_owner = self.of_owner[entry.identity.owner]
            del of_owner[queue]
            if not of_owner:
                del self.of_owner[entry.identity.owner]

    # --- the match

    def propose(
        self, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit], rng: Random
    ) -> Proposal | None:
        """Draw a queue that fits, then a job in it, and take that job out of the index.

        A queue that turns out to have no jobs in the store is set right and another one drawn.
        """
        return self.propose_of(self.kind(offer, closed), holds, rng)

    def kind(self, offer: Offer, closed: Sequence[Limit] = ()) -> OfferClass:
        """The kind of `offer` while these limits let nothing start; good until it is `forgotten`."""
        return self._kinds.of(self._kinds.kind_of(offer), closed)

    def propose_of(self, kind: OfferClass, holds: RequirementsHold, rng: Random) -> Proposal | None:
        """As `propose`; `holds` is asked only where the kind has queues with Requirements."""
        while True:
            entry = self._candidates.draw(kind, holds)
            if entry is None:
                return None
            proposal = self._take(entry, rng)
            if proposal is not None:
                self._following.append(kind)
                return proposal

    def lots(self, kind: OfferClass, holds: RequirementsHold, draws: int) -> dict[str, int]:
        """By owner: how many of so many draws their queues win. No job is taken; nobody wins if nothing fits."""
        won: dict[str, int] = {}
        for _ in range(draws):
            entry = self._candidates.draw(kind, holds)
            if entry is None:
                break
            owner = entry.identity.owner
            won[owner] = won.get(owner, 0) + 1
        return won

    def waiting_of(self, owner: str) -> int:
        """How many jobs of this owner wait."""
        return sum(entry.waiting for entry in self.of_owner.get(owner, {}).values())

    def read_ahead(self) -> None:
        """Read the heads that the next draws are likely to take: now, so that they need not wait for them."""
        short: dict[tuple[QueueId, int], _Short] = {}
        for kind in self._following:
            entry = self._candidates.look_ahead(kind)
            if entry is not None:
                for weight, part in entry.classes.items():
                    if len(part.heads) < FIRST and part.short:
                        short[entry.id, weight] = (entry, weight, part)
        self._following.clear()
        if short:
            self._read_heads(list(short.values()))

    def explain(self, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit]) -> NoMatch:
        """Why `offer` finds nothing, by the same conditions as the match."""
        fallen, left = self._candidates.refused(offer)
        for entry in left:
            failed = refusal(entry, offer, holds, closed) or Condition.BACKGROUND
            fallen[failed] = fallen.get(failed, 0) + 1
        stranded = sum(1 for entry in self._stranded.values() if entry.waiting)
        return NoMatch({Condition.MEMBERSHIP: stranded, **fallen} if stranded else fallen)

    def candidates(
        self, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit]
    ) -> list[IndexedQueue]:
        """All queues that fit now, background ones left out as the draw leaves them out."""
        kind = self._kinds.of(self._kinds.kind_of(offer), closed)
        return taking_part(self._candidates.waiting(kind), holds, ())

    def fitting(self, offer: Offer) -> list[IndexedQueue] | None:
        """The queues that fit `offer` but for their Requirements; None if no such offer is remembered."""
        kind = self._kinds.known(self._kinds.kind_of(offer))
        return None if kind is None else self._candidates.waiting(kind)

    def kind_of(self, offer: Offer) -> Offer:
        """The offer that stands for all that no queue can tell from this one."""
        return self._kinds.kind_of(offer)

    def noted_as(self, offer: Offer) -> Offer:
        """As `kind_of`, but with its processors: by those slots are counted (kinds.py)."""
        kind = self._kinds.kind_of(offer)
        return with_sizes(kind, kind.cpu_time, offer.processors, kind.memory)

    def _take(self, entry: IndexedQueue, rng: Random) -> Proposal | None:
        classes = entry.classes
        weight = next(iter(classes)) if len(classes) == 1 else self._draw_weight(entry, rng)
        part = classes[weight]
        heads = part.heads
        if part.short:
            self._read_heads([(entry, weight, part)])
        if not heads:
            self._moved(entry)
            return None
        known = len(heads)
        head = heads.pop(int(rng.random() * (known if known < FIRST else FIRST)))
        part.count -= 1
        entry.waiting -= 1
        entry.weight -= weight
        if entry.standing is _PLAIN and entry.weight:
            self._changed.add(entry)
        else:
            self._moved(entry)
        if self.notes is not None:
            self.notes.gone.append((entry.id, weight, head[0], head[3]))
        return Proposal(head, entry, weight)

    def _draw_weight(self, entry: IndexedQueue, rng: Random) -> int:
        """The UserPriority of the job that is given."""
        weights = [(weight, part.count) for weight, part in entry.classes.items() if part.count]
        return weights[draw_class(weights, self.rule, rng)][0]

    def _read_heads(self, short: Sequence[_Short]) -> None:
        wanted = []
        for entry, weight, part in short:
            most = part.prefetch = min(max(FIRST_PREFETCH, part.prefetch * 2), LARGEST_PREFETCH)
            wanted.append(HeadsWanted(entry.id, weight, part.read_to, most))
        for (entry, weight, part), one, more in zip(short, wanted, self._heads(wanted), strict=True):
            part.heads.extend(more)
            if more:
                part.read_to = more[-1][0]
            if len(more) < one.most:
                entry.count(weight, part, len(part.heads) - part.count)

    def _moved(self, entry: IndexedQueue) -> None:
        """The waiting jobs of a queue have changed."""
        if not entry.admitted:
            return
        stands = entry.stands()
        if stands is entry.standing:
            self._changed.add(entry)
            return
        begins = not entry.standing
        self._changed.discard(entry)
        self._tell(entry)
        if begins:
            identity = entry.identity
            entry.priority = self._priorities.of(entry.id, identity.owner, identity.group)
        self._candidates.stands(entry)

    def _tell(self, entry: IndexedQueue) -> None:
        """Have the priorities know what waits in a queue."""
        identity = entry.identity
        self._priorities.set(entry.id, identity.owner, identity.group, entry.weight, entry.waiting)
