"""Which queues fit which kind of offer, kept by change.

Two offers are of one kind if no queue can tell them apart without its Requirements, so CPU time and memory count by
the bucket that they reach.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pilotage.core.ids import QueueId
from pilotage.core.queues.entry import Entry, Standing
from pilotage.core.queues.fit import Offer, static_failure, with_sizes
from pilotage.core.queues.identity import QueueIdentity
from pilotage.core.queues.weighted import Weighted

KINDS = 512
"""So many kinds of offer are remembered; the one unused for longest is forgotten first."""

BOUND_KINDS = 4096
"""The same for offers that are bound to one owner, whose kinds hold that owner's queues only."""


@dataclass(slots=True)
class Kind:
    """The queues that fit one kind of offer, Requirements not yet asked."""

    offer: Offer
    plain: dict[int, Weighted[QueueId]] = field(default_factory=dict)
    """By CPU bucket."""
    special: set[QueueId] = field(default_factory=set)
    """Queues that must be looked at one by one."""

    def queues(self) -> Iterator[QueueId]:
        """The plain ones."""
        for pool in self.plain.values():
            for members in pool.classes.values():
                yield from members

    def place(self, entry: Entry, standing: Standing) -> None:
        """Take up a queue, if it fits."""
        if static_failure(entry.identity, self.offer) is not None:
            return
        if standing.special:
            self.special.add(entry.id)
        else:
            self._insert(entry, standing)

    def displace(self, entry: Entry, standing: Standing) -> bool:
        """Whether it was there."""
        if standing.special:
            found = entry.id in self.special
            self.special.discard(entry.id)
            return found
        cpu_time = entry.identity.cpu_time
        pool = self.plain.get(cpu_time)
        if pool is None or not pool.discard(entry.id, standing.of_class):
            return False
        if not pool:
            del self.plain[cpu_time]
        return True

    def reclass(self, entry: Entry, before: Standing, after: Standing) -> None:
        """Its priority is of another class: that changes nothing about whether it fits."""
        if self.displace(entry, before):
            self._insert(entry, after)

    def _insert(self, entry: Entry, standing: Standing) -> None:
        pool = self.plain.get(entry.identity.cpu_time)
        if pool is None:
            pool = self.plain[entry.identity.cpu_time] = Weighted()
        pool.add(entry.id, standing.of_class)


class Candidates:
    """The kinds of offer seen lately.

    Offers that are bound to one owner are kept apart by that owner: there are as many kinds of them as owners times
    nodes, but each concerns the owner's queues only.
    """

    def __init__(self, cpu_buckets: Sequence[int], memory_buckets: Sequence[int]) -> None:
        self._cpu_buckets = list(cpu_buckets)
        self._memory_buckets = list(memory_buckets)
        self._open: OrderedDict[Offer, Kind] = OrderedDict()
        self._bound: OrderedDict[Offer, Kind] = OrderedDict()
        """Each in the order of their last use."""
        self._of_owner: dict[str | None, dict[Offer, Kind]] = {}

    def kind_of(self, offer: Offer) -> Offer:
        """The offer that stands for all that no queue can tell from this one."""
        cpu = _floor(self._cpu_buckets, offer.cpu_time)
        # 1 stands for "known, and below every bucket"; 0 for "not known".
        memory = (_floor(self._memory_buckets, offer.memory) or 1) if offer.memory else 0
        return with_sizes(offer, cpu, memory)

    def tell_apart(self, identity: QueueIdentity) -> None:
        """Queues made under an earlier policy, or above the last memory bucket, have values of their own."""
        for buckets, value in (
            (self._cpu_buckets, identity.cpu_time),
            (self._memory_buckets, identity.memory),
        ):
            place = bisect_left(buckets, value)
            if value and (place == len(buckets) or buckets[place] != value):
                buckets.insert(place, value)
                self.clear()

    def clear(self) -> None:
        """Forget all kinds."""
        self._open.clear()
        self._bound.clear()
        self._of_owner.clear()

    def __len__(self) -> int:
        return len(self._open) + len(self._bound)

    def known(self, offer: Offer) -> Kind | None:
        """The kind of `offer`, if it is remembered."""
        return self._of_owner.get(offer.only_owner, {}).get(self.kind_of(offer))

    def of(self, offer: Offer, entries: Callable[[str | None], Iterable[Entry]]) -> Kind:
        """The kind of `offer`; if it is new it is filled from `entries`, of one owner or (None) of all."""
        key = self.kind_of(offer)
        kinds, most = (self._open, KINDS) if key.only_owner is None else (self._bound, BOUND_KINDS)
        kind = kinds.get(key)
        if kind is not None:
            kinds.move_to_end(key)
            return kind
        kind = kinds[key] = Kind(key)
        self._of_owner.setdefault(key.only_owner, {})[key] = kind
        for entry in entries(key.only_owner):
            standing = entry.standing
            if standing is not None:
                kind.place(entry, standing)
        if len(kinds) > most:
            self._forget(kinds.popitem(last=False)[0])
        return kind

    def moved(self, entry: Entry, before: Standing | None, after: Standing | None) -> None:
        """A queue stands otherwise than before: it has begun or ceased to wait, or is background now."""
        for kind in self._concerned(entry):
            if before is not None:
                kind.displace(entry, before)
            if after is not None:
                kind.place(entry, after)

    def reclassed(self, entry: Entry, before: Standing, after: Standing) -> None:
        """The priority of a queue is of another class."""
        for kind in self._concerned(entry):
            kind.reclass(entry, before, after)

    def _concerned(self, entry: Entry) -> Iterator[Kind]:
        for owner in (None, entry.identity.owner):
            yield from self._of_owner.get(owner, {}).values()

    def _forget(self, key: Offer) -> None:
        kinds = self._of_owner[key.only_owner]
        del kinds[key]
        if not kinds:
            del self._of_owner[key.only_owner]


def _floor(buckets: Sequence[int], value: float) -> int:
    place = bisect_right(buckets, value)
    return buckets[place - 1] if place else 0
