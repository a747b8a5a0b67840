"""The offer classes seen lately, and the queues that fit each of them, waiting or not.

Two offers share a class if every queue treats them alike, Requirements aside. CPU time and memory count by the bucket
that they reach. Processors, wall time and disk count by the largest number needed by a queue that the offer has. The
queues of a class are matched once (vectorised_matching.py); later queues are matched when the class is next used.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pilotage.core.queues.fit import Offer, with_sizes
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.indexed_queue import IndexedQueue
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.vectorised_matching import OTHERS, SIZES, Slots, VectorisedMatching
from pilotage.core.queues.weighted_draw import Sampler

MAX_CLASSES = 1024
"""Offer classes kept; the least recently used is evicted first."""

MAX_BOUND_CLASSES = 16384
"""The same for offers bound to one owner, which hold the queues of that owner only."""

MAX_BASE_OFFERS = 1024
"""Base offers kept: each is shared by classes that differ only in size."""

_NO_SLOTS: Slots = np.zeros(0, dtype=np.int64)
_NO_WEIGHTS: NDArray[np.float64] = np.zeros(0)


@dataclass(slots=True)
class BaseOffer:
    """The queues that fit some offers, sizes not checked."""

    offer: Offer
    slots: Slots = field(default_factory=lambda: _NO_SLOTS)
    checked: int = 0
    """Number of queues checked, of all queues or of its owner's."""


@dataclass(slots=True)
class OfferClass:
    """One class of offers under some closed limits."""

    offer: Offer
    closed_limits: tuple[Limit, ...]
    base: BaseOffer
    slots: Slots = field(default_factory=lambda: _NO_SLOTS)
    """The queues that fit, Requirements not checked, ascending."""
    checked: int = 0
    """Number of queues of its base offer checked."""
    members: Slots = field(default_factory=lambda: _NO_SLOTS)
    """The plain queues among them that waited when the sampler was built."""
    weights: NDArray[np.float64] = field(default_factory=lambda: _NO_WEIGHTS)
    """Their priorities then."""
    sampler: Sampler | None = None
    """Draws among `members`; None: there are none, or it must be rebuilt."""
    next_draw: tuple[int, float] | None = None
    """The winner of the next draw, as an index into `members`, and its time."""
    cpu_time: int = 0
    """Under the document's rule: the CPU bucket of `members`, the highest one."""
    newcomers: list[IndexedQueue] = field(default_factory=list)
    """Plain queues that have begun to wait since then."""
    special: list[IndexedQueue] = field(default_factory=list)
    """Queues that are checked one by one."""
    version: int = -1
    """Version of the priorities that the sampler was built with."""
    standing_changes: int = -1
    """How many queues had begun to wait when the members were last looked up among all that fit."""
    evicted: bool = False
    """No longer kept up to date: get the class again."""
    arrivals_seen: int = 0


class OfferClasses:
    """The offer classes of one index. A queue is known by its slot."""

    def __init__(self, cpu_buckets: Sequence[int], memory_buckets: Sequence[int]) -> None:
        self._cpu_buckets = list(cpu_buckets)
        self._memory_buckets = list(memory_buckets)
        self._processors: list[int] = []
        """The numbers of processors that queues need."""
        self._wall_times: list[int] = []
        """The wall times that queues need."""
        self._disks: list[int] = []
        """The sizes of disk that queues need."""
        self._unbound: OrderedDict[tuple[Offer, tuple[Limit, ...]], OfferClass] = OrderedDict()
        self._bound: OrderedDict[tuple[Offer, tuple[Limit, ...]], OfferClass] = OrderedDict()
        """Each in the order of their last use."""
        self.clear()

    def clear(self) -> None:
        """Remove all queues and classes."""
        self.evict_all()
        self.matching = VectorisedMatching()
        self._of_owner: dict[str, list[int]] = {}
        self._base_offers: OrderedDict[Offer, BaseOffer] = OrderedDict()

    def add_queue(self, identity: QueueIdentity) -> int:
        """Add a queue and return its slot."""
        self._add_boundaries(identity)
        slot = self.matching.add(identity)
        self._of_owner.setdefault(identity.owner, []).append(slot)
        return slot

    def bucket_sizes(
        self, cpu_time: float, processors: int, memory: int, wall_time: float, disk: int
    ) -> tuple[int, int, int, int, int]:
        """The sizes as queues distinguish them: equal for offers of one class."""
        buckets = self._cpu_buckets
        place = bisect_right(buckets, cpu_time)
        cpu = buckets[place - 1] if place else 0
        buckets = self._processors
        place = bisect_right(buckets, processors)
        cores = buckets[place - 1] if place else 0
        wall = 0
        if buckets := self._wall_times:
            place = bisect_right(buckets, wall_time)
            wall = buckets[place - 1] if place else 0
        # 1 stands for "known, and below every bucket"; 0 for "not known", and for a disk that no queue asks for.
        space = 0
        if disk and (buckets := self._disks):
            place = bisect_right(buckets, disk)
            space = buckets[place - 1] if place else 1
        if memory:
            buckets = self._memory_buckets
            place = bisect_right(buckets, memory)
            memory = (buckets[place - 1] if place else 0) or 1
        return cpu, cores, memory, wall, space

    def class_key(self, offer: Offer) -> Offer:
        """The representative of all offers that every queue treats alike."""
        sizes = self.bucket_sizes(offer.cpu_time, offer.processors, offer.memory, offer.wall_time, offer.disk)
        return with_sizes(offer, *sizes)

    def _add_boundaries(self, identity: QueueIdentity) -> None:
        """Queues made under an earlier policy, or above the last memory bucket, have values of their own."""
        for buckets, value in (
            (self._cpu_buckets, identity.cpu_time),
            (self._processors, identity.processors),
            (self._memory_buckets, identity.memory),
            (self._wall_times, identity.wall_time),
            (self._disks, identity.disk),
        ):
            place = bisect_left(buckets, value)
            if value and (place == len(buckets) or buckets[place] != value):
                buckets.insert(place, value)
                self.evict_all()

    def evict_all(self) -> None:
        for classes in (self._unbound, self._bound):
            while classes:
                evict(classes.popitem()[1])

    def __len__(self) -> int:
        return len(self._unbound) + len(self._bound)

    def get(self, key: Offer, closed: Sequence[Limit] = ()) -> OfferClass:
        """The class of `key` (from `class_key`) under these closed limits."""
        classes, most = (
            (self._unbound, MAX_CLASSES) if key.only_owner is None else (self._bound, MAX_BOUND_CLASSES)
        )
        place = (key, tuple(closed))
        offer_class = classes.get(place)
        if offer_class is not None:
            classes.move_to_end(place)
            return offer_class
        offer_class = classes[place] = OfferClass(key, place[1], self._base_offer(key))
        if len(classes) > most:
            evict(classes.popitem(last=False)[1])
        return offer_class

    def _base_offer(self, key: Offer) -> BaseOffer:
        whole = replace(key, cpu_time=0.0, memory=0, processors=0, wall_time=0.0, disk=0)
        place = self._base_offers.get(whole)
        if place is None:
            place = self._base_offers[whole] = BaseOffer(whole)
            if len(self._base_offers) > (MAX_BASE_OFFERS if key.only_owner is None else MAX_BOUND_CLASSES):
                self._base_offers.popitem(last=False)
        else:
            self._base_offers.move_to_end(whole)
        return place

    def get_cached(self, key: Offer) -> OfferClass | None:
        """The class of `key`, if it is cached."""
        return (self._unbound if key.only_owner is None else self._bound).get((key, ()))

    def fitting_slots(self, offer: Offer, closed: Sequence[Limit]) -> Slots:
        """The slots of the queues that fit `offer`, waiting or not, Requirements not checked."""
        offer_class = self.get(self.class_key(offer), closed)
        self.refresh_members(offer_class)
        return offer_class.slots

    def refresh_members(self, offer_class: OfferClass) -> None:
        """Match the queues that were added since the class was last refreshed."""
        place = offer_class.base
        if place.offer.only_owner is None:
            count = len(self.matching)
            if place.checked != count:
                self._match_new_queues(place, np.arange(place.checked, count), count)
        else:
            own = self._of_owner.get(place.offer.only_owner, [])
            if place.checked != len(own):
                self._match_new_queues(place, np.array(own[place.checked :], dtype=np.int64), len(own))
        if offer_class.checked != len(place.slots):
            new = self.matching.passing(offer_class.offer, place.slots[offer_class.checked :], SIZES)
            offer_class.checked = len(place.slots)
            if offer_class.closed_limits:
                new = new[~self.matching.limited_by(offer_class.closed_limits, new)]
            offer_class.slots = np.concatenate([offer_class.slots, new]) if len(offer_class.slots) else new

    def _match_new_queues(self, place: BaseOffer, new: Slots, count: int) -> None:
        place.checked = count
        place.slots = np.concatenate([place.slots, self.matching.passing(place.offer, new, OTHERS)])


def evict(offer_class: OfferClass) -> None:
    """Drop the arrays of a class, which callers may still hold."""
    (
        offer_class.evicted,
        offer_class.sampler,
        offer_class.next_draw,
        offer_class.checked,
        offer_class.version,
    ) = True, None, None, 0, -1
    offer_class.slots = offer_class.members = _NO_SLOTS
    offer_class.weights = _NO_WEIGHTS
