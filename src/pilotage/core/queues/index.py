"""The waiting jobs in memory: proposes which job an offer is given; SQL disposes.

Owned by one thread. Rebuilt from the store at start; changed by the use cases together with the rows, and reset
queue by queue if their transaction fails. For each queue and UserPriority it holds the number of waiting
jobs and the first of them (*heads*), read from the store when needed. candidates.py draws the queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from pilotage.core.ids import JobId, QueueId
from pilotage.core.queues.candidates import Candidates
from pilotage.core.queues.draws import FIRST, Rule
from pilotage.core.queues.fit import Condition, Offer, RequirementsHold, with_sizes
from pilotage.core.queues.index_delta import IndexDelta
from pilotage.core.queues.indexed_queue import (
    Head,
    HeadsRequest,
    IndexedQueue,
    PriorityLevel,
    QueueStanding,
    eligible_queues,
    refusal,
)
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.offer_classes import OfferClass
from pilotage.core.queues.own_part import OwnPart
from pilotage.core.queues.proposal import NoMatch, Proposal
from pilotage.core.shares.priorities import Priorities

FIRST_PREFETCH, LARGEST_PREFETCH = 16, 128
"""Heads read from the store per fetch: at a queue's first draw, and at most, in a busy queue."""

_PLAIN = QueueStanding.PLAIN

MOST_FOLLOWING = 256
"""Offer classes of the latest draws for which heads are prefetched."""

Heads = Callable[[Sequence[HeadsRequest]], Sequence[Sequence[Head]]]
"""For each request the waiting jobs, by ascending id."""

_Short = tuple[IndexedQueue, int, PriorityLevel]
"""A queue, a UserPriority and its level: heads must be read for it."""


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
        """`shared`: peers have indexes of the same jobs. Local changes are appended to `delta`, and
        `apply_peer_delta` replays theirs. Counts follow deltas alone; heads are a copy of the last read.
        """
        self.delta: IndexDelta | None = IndexDelta() if shared else None
        self.own_part: OwnPart | None = None
        """The jobs that this index draws first. None: there are no peers."""
        self.entries: dict[QueueId, IndexedQueue] = {}
        self.entries_by_owner: dict[str, dict[QueueId, IndexedQueue]] = {}
        self._not_admitted: dict[QueueId, IndexedQueue] = {}
        """Queues with an owner or group that the policy does not admit."""
        self._priorities = priorities
        self._unreported: dict[IndexedQueue, None] = {}
        """Queues with changes not yet passed to `_priorities`, in the order of the changes."""
        self._candidates = Candidates(cpu_buckets, memory_buckets, rule, rng)
        self._offer_classes = self._candidates.offer_classes
        self.bucket_sizes = self._offer_classes.bucket_sizes
        self.fitting_slots = self._offer_classes.fitting_slots
        self._recent_classes: deque[OfferClass] = deque(maxlen=MOST_FOLLOWING)
        """The classes of the latest draws: they are likely to be drawn from again."""
        # `read_heads` in services/pool/index_loading.py; it may write pending transitions first.
        self._heads = heads
        self.rule = rule

    @property
    def priorities(self) -> Priorities[QueueId]:
        """The priorities of all entities, with every change applied."""
        for entry in self._unreported:
            self._update_priorities(entry)
        self._unreported.clear()
        return self._priorities

    # --- changes

    def add_queue(self, entry: IndexedQueue) -> None:
        """Add a queue that may have waiting jobs; do nothing if it is known."""
        if entry.id not in self.entries:
            self.entries[entry.id] = entry
            self.entries_by_owner.setdefault(entry.identity.owner, {})[entry.id] = entry
            self._candidates.add(entry)
            if not entry.admitted:
                self._not_admitted[entry.id] = entry

    def add_jobs(self, queue: QueueId, user_priority: int, first: JobId, count: int) -> None:
        """New jobs with ids from `first` on wait in `queue`; the store has them already.

        Their ids may be below some that were read: submissions are made in chunks, side by side.
        """
        if self.delta is not None:
            self.delta.back.append((queue, user_priority, first, count))
        self._add_waiting(queue, user_priority, first, count)

    def _add_waiting(self, queue: QueueId, user_priority: int, first: int, count: int) -> None:
        """Count `count` more waiting jobs, all with ids of at least `first`."""
        entry = self.entries[queue]
        part = entry.levels.setdefault(user_priority, PriorityLevel())
        entry.add_count(user_priority, part, count)
        if first <= part.read_up_to:
            del part.heads[bisect_left(part.heads, (first,)) :]
            part.read_up_to = first - 1
        self._update_standing(entry)

    def load_jobs(self, queue: QueueId, user_priority: int, first: JobId, count: int) -> None:
        """Count `count` waiting jobs read from the store at start, by ascending id from `first`."""
        entry = self.entries[queue]
        part = entry.levels.get(user_priority)
        if part is None:
            part = entry.levels[user_priority] = PriorityLevel(read_up_to=first - 1)
        entry.add_count(user_priority, part, count)
        self._update_standing(entry)

    def return_job(self, queue: QueueId, user_priority: int, head: Head) -> None:
        """Put a job back: it waits again."""
        if self.delta is not None:
            self.delta.back.append((queue, user_priority, head[0], 1))
            self._add_waiting(queue, user_priority, head[0], 1)
            return
        entry, job = self.entries[queue], head[0]
        part = entry.levels.setdefault(user_priority, PriorityLevel())
        if job <= part.read_up_to:
            place = bisect_left(part.heads, (job,))
            if place < len(part.heads) and part.heads[place][0] == job:
                return
            part.heads.insert(place, head)
        entry.add_count(user_priority, part, 1)
        self._update_standing(entry)

    def remove_job(self, queue: QueueId, user_priority: int, job: JobId) -> None:
        """Remove a waiting job that was not proposed: it was killed, or it finished late."""
        if self.delta is not None:
            # Also for a job that this index does not know yet: peers may know it.
            self.delta.gone.append((queue, user_priority, job, 0))
        entry = self.entries.get(queue)
        part = entry.levels.get(user_priority) if entry else None
        if entry is None or part is None:
            return
        if self.delta is not None:
            self._remove_peer_job(queue, user_priority, job, 0)
            return
        if job <= part.read_up_to:
            place = bisect_left(part.heads, (job,))
            if place == len(part.heads) or part.heads[place][0] != job:
                return
            del part.heads[place]
        entry.add_count(user_priority, part, -min(1, part.count))
        self._update_standing(entry)

    def apply_peer_delta(self, notes: IndexDelta) -> None:
        """Replay the changes of a peer's index. All its queues must be known here."""
        for queue, user_priority, first, count in notes.back:
            self._add_waiting(queue, user_priority, first, count)
        for queue, user_priority, job, last_event in notes.gone:
            self._remove_peer_job(queue, user_priority, job, last_event)

    def _remove_peer_job(self, queue: QueueId, user_priority: int, job: int, last_event: int) -> None:
        entry = self.entries[queue]
        part = entry.levels.get(user_priority)
        if part is None:
            return
        place = bisect_left(part.heads, (job,))
        head = part.heads[place] if place < len(part.heads) else (0,)
        # Another event: the job has already returned, which the peer did not know.
        if head[0] == job and last_event in (0, head[3]):
            del part.heads[place]
        entry.add_count(user_priority, part, -min(1, part.count))
        self._update_standing(entry)

    def restore_lost_job(self, queue: QueueId, user_priority: int, job: JobId) -> None:
        """Count a proposed job again that a peer has taken; the peer's delta will remove it.

        The heads after it are read again, since peers may have taken them too.
        """
        assert self.delta is not None
        gone = self.delta.gone
        for place in range(len(gone) - 1, -1, -1):
            if gone[place][2] == job:
                del gone[place]
                break
        self._add_waiting(queue, user_priority, job, 1)

    def reset_queue(self, queue: QueueId, counts: Mapping[int, int]) -> None:
        """Replace the waiting jobs of a queue by the store's counts per UserPriority."""
        entry = self.entries[queue]
        entry.levels, entry.waiting, entry.priority_sum = {}, 0, 0
        for weight, count in counts.items():
            part = entry.levels[weight] = PriorityLevel()
            entry.add_count(weight, part, count)
        self._update_standing(entry)

    def copy_waiting(self, entry: IndexedQueue, before: IndexedQueue) -> None:
        """Copy the waiting jobs of `before`, the entry of the same queue in another index."""
        entry.levels, entry.waiting, entry.priority_sum = before.levels, before.waiting, before.priority_sum
        self._update_standing(entry)

    def clear(self) -> None:
        """Remove all queues."""
        for queue in list(self.entries):
            self.remove_queue(queue)
        self._recent_classes.clear()
        self._candidates.clear()

    def apply_priorities(self) -> Iterator[None]:
        """Apply the priorities of all changed entities. The caller may pause after each queue."""
        for queue, priority in self.priorities.recompute():
            entry = self.entries.get(queue)
            if entry is not None and entry.waiting:
                entry.priority = priority
                self._candidates.set_priority(entry)
                yield
        self._candidates.invalidate_samplers()

    def set_priority(self, queue: QueueId, priority: float) -> None:
        """Set the priority of a waiting queue."""
        entry = self.entries[queue]
        entry.priority = priority
        self._candidates.set_priority(entry)
        self._candidates.invalidate_samplers()

    def remove_queue(self, queue: QueueId) -> None:
        """Remove a queue without jobs."""
        entry = self.entries.get(queue)
        if entry is not None:
            self.reset_queue(queue, {})
            self._candidates.remove(entry)
            self._not_admitted.pop(queue, None)
            del self.entries[queue]
            of_owner = self.entries_by_owner[entry.identity.owner]
            del of_owner[queue]
            if not of_owner:
                del self.entries_by_owner[entry.identity.owner]

    # --- the match

    def offer_class(self, offer: Offer, closed: Sequence[Limit] = ()) -> OfferClass:
        """The class of `offer` under these closed limits. Valid until it is `evicted`."""
        return self._offer_classes.get(self._offer_classes.class_key(offer), closed)

    def propose(self, offer_class: OfferClass, holds: RequirementsHold, rng: Random) -> Proposal | None:
        """Draw a queue that fits, then a job in it, and take that job out of the index.

        A queue that turns out to have no jobs in the store is set right and another one drawn. `holds` is called only
        if the class has queues with Requirements.
        """
        while True:
            entry = self._candidates.draw(offer_class, holds)
            if entry is None:
                return None
            proposal = self._take_job(entry, rng)
            if proposal is not None:
                self._recent_classes.append(offer_class)
                return proposal

    def count_wins(self, offer_class: OfferClass, holds: RequirementsHold, draws: int) -> dict[str, int]:
        """The number of draws won by the queues of each owner. No job is taken; empty if nothing fits."""
        won: dict[str, int] = {}
        for _ in range(draws):
            entry = self._candidates.draw(offer_class, holds)
            if entry is None:
                break
            owner = entry.identity.owner
            won[owner] = won.get(owner, 0) + 1
        return won

    def waiting_jobs_of(self, owner: str) -> int:
        """How many jobs of this owner wait."""
        return sum(entry.waiting for entry in self.entries_by_owner.get(owner, {}).values())

    def prefetch_heads(self) -> None:
        """Read the heads that the next draws are likely to take, so that they need not wait."""
        short: dict[tuple[QueueId, int], _Short] = {}
        for offer_class in self._recent_classes:
            entry = self._candidates.peek(offer_class)
            if entry is not None:
                for weight, part in entry.levels.items():
                    if self._is_short(part):
                        short[entry.id, weight] = (entry, weight, part)
        self._recent_classes.clear()
        if short:
            self._read_heads(list(short.values()))

    def explain(self, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit]) -> NoMatch:
        """Why `offer` finds nothing, by the same conditions as the match."""
        fallen, left = self._candidates.count_refusals(offer)
        for entry in left:
            failed = refusal(entry, offer, holds, closed) or Condition.BACKGROUND
            fallen[failed] = fallen.get(failed, 0) + 1
        stranded = sum(1 for entry in self._not_admitted.values() if entry.waiting)
        return NoMatch({Condition.MEMBERSHIP: stranded, **fallen} if stranded else fallen)

    def candidates(
        self, offer: Offer, holds: RequirementsHold, closed: Sequence[Limit]
    ) -> list[IndexedQueue]:
        """All queues that take part in a draw now, without the background queues that it leaves out."""
        offer_class = self._offer_classes.get(self._offer_classes.class_key(offer), closed)
        return eligible_queues(self._candidates.waiting_queues(offer_class), holds, ())

    def cached_fitting(self, offer: Offer) -> list[IndexedQueue] | None:
        """The queues that fit `offer`, Requirements not checked; None if its class is not cached."""
        offer_class = self._offer_classes.get_cached(self._offer_classes.class_key(offer))
        return None if offer_class is None else self._candidates.waiting_queues(offer_class)

    def class_key(self, offer: Offer) -> Offer:
        """The representative of all offers that every queue treats alike."""
        return self._offer_classes.class_key(offer)

    def history_key(self, offer: Offer) -> Offer:
        """The `class_key` with the exact processors, which slot counts need (offer_history.py)."""
        key = self._offer_classes.class_key(offer)
        return with_sizes(key, key.cpu_time, offer.processors, key.memory, key.wall_time, key.disk)

    def _take_job(self, entry: IndexedQueue, rng: Random) -> Proposal | None:
        weight = entry.draw_user_priority(self.rule, rng)
        part = entry.levels[weight]
        heads, own = part.heads, self.own_part
        if self._is_short(part):
            self._read_heads([(entry, weight, part)])
        if not heads:
            self._update_standing(entry)
            return None
        chance = rng.random()
        place = int(chance * min(len(heads), FIRST)) if own is None else own.place_of_draw(heads, chance)
        head = heads.pop(place)
        part.count -= 1
        entry.waiting -= 1
        entry.priority_sum -= weight
        if entry.standing is _PLAIN and entry.priority_sum:
            self._unreported[entry] = None
            if not part.count:
                self._candidates.order.update(entry)
        else:
            self._update_standing(entry)
        if self.delta is not None:
            self.delta.gone.append((entry.id, weight, head[0], head[3]))
        return Proposal(head, entry, weight)

    def _is_short(self, part: PriorityLevel) -> bool:
        """Whether heads must be read before the next draw from `part`."""
        known, own = len(part.heads), self.own_part
        return known < part.count and (known < FIRST or (own is not None and own.is_short(part.heads)))

    def _read_heads(self, short: Sequence[_Short]) -> None:
        wanted = []
        for entry, weight, part in short:
            most = part.prefetch = min(max(FIRST_PREFETCH, part.prefetch * 2), LARGEST_PREFETCH)
            wanted.append(HeadsRequest(entry.id, weight, part.read_up_to, most))
        for (entry, weight, part), request, more in zip(short, wanted, self._heads(wanted), strict=True):
            part.heads.extend(more)
            if more:
                part.read_up_to = more[-1][0]
            if len(more) < request.limit:
                entry.add_count(weight, part, len(part.heads) - part.count)
                # Other servers may have taken all of its jobs. Then it takes part in no draw.
                self._update_standing(entry)

    def _update_standing(self, entry: IndexedQueue) -> None:
        """The waiting jobs of a queue have changed."""
        if not entry.admitted:
            return
        stands = entry.current_standing()
        if stands is entry.standing:
            self._unreported[entry] = None
            self._candidates.order.update(entry)
            return
        begins = not entry.standing
        self._unreported.pop(entry, None)
        self._update_priorities(entry)
        if begins:
            identity = entry.identity
            entry.priority = self._priorities.of(entry.id, identity.owner, identity.group)
        self._candidates.update_standing(entry)

    def _update_priorities(self, entry: IndexedQueue) -> None:
        """Pass the waiting jobs of a queue to the priorities."""
        identity = entry.identity
        self._priorities.set(entry.id, identity.owner, identity.group, entry.priority_sum, entry.waiting)
