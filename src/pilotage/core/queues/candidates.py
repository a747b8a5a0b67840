"""The waiting queues, and draws among the queues that fit an offer class (offer_classes.py).

Each class has a sampler over its waiting queues (weighted_draw.py), valid until priorities change. Queues that began
to wait later are drawn against the sampler's winner. So are *special* queues, which are checked one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from pilotage.core.queues.draws import Rule, orders_strictly
from pilotage.core.queues.fit import Condition, Offer, RequirementsHold
from pilotage.core.queues.indexed_queue import Entity, IndexedQueue, QueueStanding, eligible_queues
from pilotage.core.queues.offer_classes import OfferClass, OfferClasses
from pilotage.core.queues.own_order import OwnOrder
from pilotage.core.queues.vectorised_matching import FITS, ORDER, Slots
from pilotage.core.queues.weighted_draw import Sampler, draw_after

LATE = 16
"""Rebuild a sampler after this many newcomers."""

MOST_ARRIVALS = 10_000

FORGOTTEN = 1000
"""Renumber all slots when unused ones exceed the used ones by this many."""

_OUT, _PLAIN, _SPECIAL = QueueStanding.OUT, QueueStanding.PLAIN, QueueStanding.SPECIAL


class Candidates:
    """All queues with waiting jobs, and the offer classes seen lately."""

    def __init__(
        self, cpu_buckets: Sequence[int], memory_buckets: Sequence[int], rule: Rule, rng: Random
    ) -> None:
        self.offer_classes = OfferClasses(cpu_buckets, memory_buckets)
        self.order = OwnOrder()
        self._rule: Rule = rule
        self._rng = rng
        # For arrays of numbers; begins by chance as well.
        self._numbers = np.random.Generator(np.random.PCG64(rng.getrandbits(128)))
        self._standing: NDArray[np.int8] = np.zeros(256, dtype=np.int8)
        self._priority: NDArray[np.float64] = np.zeros(256)
        self._cpu_time: NDArray[np.int64] = np.zeros(256, dtype=np.int64)
        """The CPU time by slot, like the two arrays above."""
        self._version = 0
        self.clear()

    def clear(self) -> None:
        """Remove all queues and offer classes."""
        self.offer_classes.clear()
        self._standing[:] = _OUT
        self._known = 0
        self._entries: list[IndexedQueue | None] = []
        """The queues by slot; None: the queue was removed."""
        self._of_entity: dict[Entity, dict[int, IndexedQueue]] = {}
        self._arrivals: list[IndexedQueue] = []
        self._specials = 0
        """How many are special now."""
        self._standing_changes = 0
        """How often a queue began to wait, or changed between plain and special."""

    # --- the queues

    def add(self, entry: IndexedQueue) -> None:
        """Add a queue that may have waiting jobs."""
        if len(self._entries) > 2 * self._known + FORGOTTEN:
            self._renumber()
        self._known += 1
        slot = entry.slot = self.offer_classes.add_queue(entry.identity)
        self._entries.append(entry)
        if slot >= len(self._standing):
            self._standing = np.concatenate([self._standing, np.zeros_like(self._standing)])
            self._priority = np.concatenate([self._priority, np.zeros_like(self._priority)])
            self._cpu_time = np.concatenate([self._cpu_time, np.zeros_like(self._cpu_time)])
        self._cpu_time[slot] = entry.identity.cpu_time
        self._of_entity.setdefault(entry.entity, {})[slot] = entry
        self._standing[slot] = _OUT

    def _renumber(self) -> None:
        entries = [entry for entry in self._entries if entry is not None]
        self.clear()
        for entry in entries:
            entry.standing = _OUT
            self.add(entry)
            self.update_standing(entry)

    def remove(self, entry: IndexedQueue) -> None:
        """Remove a queue without jobs."""
        self._entries[entry.slot] = None
        self._known -= 1
        self._standing[entry.slot] = _OUT
        del self._of_entity[entry.entity][entry.slot]

    def update_standing(self, entry: IndexedQueue) -> None:
        """Update the standing of a queue that began or ceased to wait, or became background."""
        self._specials -= entry.standing is _SPECIAL
        entry.standing = entry.current_standing()
        self._specials += entry.standing is _SPECIAL
        self._standing[entry.slot] = entry.standing
        self.order.update(entry)
        if entry.standing is not _OUT:
            self._standing_changes += 1
            self._priority[entry.slot] = entry.priority
            self._arrivals.append(entry)
            if len(self._arrivals) > MOST_ARRIVALS:
                self.invalidate_samplers()

    def set_priority(self, entry: IndexedQueue) -> None:
        """Set the priority of a queue. It counts from the next `invalidate_samplers`."""
        self._priority[entry.slot] = entry.priority

    def invalidate_samplers(self) -> None:
        """Invalidate all samplers, which were built with earlier priorities."""
        self._version += 1
        # Nobody looks back beyond a version.
        self._arrivals.clear()

    # --- queues of an offer class

    def waiting_queues(self, offer_class: OfferClass) -> list[IndexedQueue]:
        """The queues of a class that have waiting jobs now, Requirements not checked."""
        self.offer_classes.refresh_members(offer_class)
        slots = offer_class.slots[self._standing[offer_class.slots] != _OUT]
        return [entry for slot in slots.tolist() if (entry := self._entries[slot]) is not None]

    def count_refusals(self, offer: Offer) -> tuple[dict[Condition, int], list[IndexedQueue]]:
        """The number of admitted waiting queues by the first condition that each fails; and the rest, which fit."""
        slots = np.flatnonzero(self._standing != _OUT)
        failed = self.offer_classes.matching.failures(offer, slots)
        numbers = np.bincount(failed, minlength=FITS)[:FITS]
        refused_by = {ORDER[place]: int(numbers[place]) for place in np.flatnonzero(numbers)}
        left = [self._entries[slot] for slot in slots[failed == FITS].tolist()]
        return refused_by, [entry for entry in left if entry is not None]

    # --- the draw

    def draw(self, offer_class: OfferClass, holds: RequirementsHold) -> IndexedQueue | None:
        """One of the queues that take part, by the rule; None if there is none."""
        winner = self._draw(offer_class, holds)
        if winner is None or not orders_strictly(self._rule):
            return winner
        # The share decides whose turn it is. Its owner decides which of the own jobs comes first.
        for level in self.order.before(winner):
            fitting = [entry for entry in level if self._is_member(offer_class, entry)]
            first = eligible_queues(fitting, holds, ())
            if first:
                return self._draw_against(first[0], math.inf, first, 0)[0]
        return winner

    def _draw(self, offer_class: OfferClass, holds: RequirementsHold) -> IndexedQueue | None:
        if offer_class.version != self._version:
            self._rebuild_sampler(offer_class)
        elif offer_class.arrivals_seen != len(self._arrivals):
            self._add_new_queues(offer_class)
        if offer_class.special:
            return self._draw_with_special(offer_class, holds)
        winner = self._draw_plain(offer_class)
        return None if winner is None else winner[0]

    def peek(self, offer_class: OfferClass) -> IndexedQueue | None:
        """The queue that the next draw is likely to give; None: not known."""
        if offer_class.sampler is None:
            return None
        if offer_class.next_draw is None:
            offer_class.next_draw = offer_class.sampler.draw(self._rng, self._numbers)
        slot: int = offer_class.members[offer_class.next_draw[0]]
        return self._entries[slot]

    def _draw_plain(self, offer_class: OfferClass) -> tuple[IndexedQueue, float] | None:
        """A plain queue and its time."""
        while offer_class.sampler is not None:
            place, time = offer_class.next_draw or offer_class.sampler.draw(self._rng, self._numbers)
            offer_class.next_draw = None
            entry = self._entries[offer_class.members[place]]
            if entry is None or entry.standing is not _PLAIN:
                left = self._standing[offer_class.members] == _PLAIN
                if not left.any():
                    self._rebuild_sampler(offer_class)
                    continue
                self._set_members(offer_class, offer_class.members[left], offer_class.weights[left])
                place, time = draw_after(offer_class.weights, self._rule, self._numbers, time)
                entry = self._entries[offer_class.members[place]]
                assert entry is not None
            if offer_class.newcomers:
                late = [newcomer for newcomer in offer_class.newcomers if newcomer.standing is _PLAIN]
                if late:
                    return self._draw_against(entry, time, late, len(offer_class.members))
            return entry, time
        return None

    def _draw_against(
        self, winner: IndexedQueue, time: float, others: Sequence[IndexedQueue], behind: int
    ) -> tuple[IndexedQueue, float]:
        """Draw `winner`, the first of `behind` queues at `time`, against `others` (not empty)."""
        weights = np.array([entry.priority for entry in others])
        place, best = draw_after(weights, self._rule, self._numbers, 0.0)
        if best < time:
            return others[place], best
        # Nobody has a priority: everyone is equally likely.
        if math.isinf(time) and self._rng.random() * (behind + len(others)) >= behind:
            return others[place], time
        return winner, time

    def _draw_with_special(self, offer_class: OfferClass, holds: RequirementsHold) -> IndexedQueue | None:
        there = self._special_taking_part(offer_class, holds)
        plain_winner = self._draw_plain(offer_class)
        if not there:
            return plain_winner[0] if plain_winner else None
        if self._rule == "dirac":
            highest = max(entry.identity.cpu_time for entry in there)
            if plain_winner is not None and offer_class.cpu_time > highest:
                return plain_winner[0]
            there = [entry for entry in there if entry.identity.cpu_time == highest]
            if offer_class.cpu_time < highest:
                plain_winner = None
        if plain_winner is None:
            return self._draw_against(there[0], math.inf, there, 0)[0]
        return self._draw_against(*plain_winner, there, len(offer_class.members))[0]

    def _special_taking_part(self, offer_class: OfferClass, holds: RequirementsHold) -> list[IndexedQueue]:
        """The special queues that take part."""
        waiting = [entry for entry in offer_class.special if entry.standing is _SPECIAL]
        there = eligible_queues(waiting, holds, ())
        return [
            entry
            for entry in there
            if not (entry.background and self._has_foreground(offer_class, entry.entity))
        ]

    def _has_foreground(self, offer_class: OfferClass, entity: Entity) -> bool:
        """Whether a plain queue of `entity` takes part."""
        return any(
            entry.standing is _PLAIN and self._is_member(offer_class, entry)
            for entry in self._of_entity[entity].values()
        )

    @staticmethod
    def _is_member(offer_class: OfferClass, entry: IndexedQueue) -> bool:
        """Whether a queue fits the offers of a class, Requirements not checked."""
        slots = offer_class.slots
        place = int(slots.searchsorted(entry.slot))
        return place < len(slots) and bool(slots[place] == entry.slot)

    def _rebuild_sampler(self, offer_class: OfferClass) -> None:
        """Build the sampler from the present queues and priorities."""
        self.offer_classes.refresh_members(offer_class)
        offer_class.version, offer_class.arrivals_seen = self._version, len(self._arrivals)
        if offer_class.standing_changes == self._standing_changes:
            # The same queues as before, without queues that ceased to wait.
            plain = self._standing[offer_class.members] == _PLAIN
            members = offer_class.members if plain.all() else offer_class.members[plain]
            if len(members):
                self._set_members(offer_class, members, self._priority[members])
                return
        offer_class.standing_changes = self._standing_changes
        standing = self._standing[offer_class.slots]
        offer_class.newcomers, offer_class.special, offer_class.cpu_time = [], [], 0
        if self._specials:
            special = offer_class.slots[standing == _SPECIAL].tolist()
            offer_class.special = [entry for slot in special if (entry := self._entries[slot]) is not None]
        members = offer_class.slots[standing == _PLAIN]
        if len(members) and self._rule == "dirac":
            buckets = self._cpu_time[members]
            offer_class.cpu_time = int(buckets.max())
            members = members[buckets == offer_class.cpu_time]
        self._set_members(offer_class, members, self._priority[members])

    def _set_members(self, offer_class: OfferClass, members: Slots, weights: NDArray[np.float64]) -> None:
        offer_class.members, offer_class.weights = members, weights
        offer_class.sampler = Sampler(weights, self._rule) if len(members) else None
        offer_class.next_draw = None

    def _add_new_queues(self, offer_class: OfferClass) -> None:
        """Add the queues that began to wait since the sampler was built."""
        new = self._arrivals[offer_class.arrivals_seen :]
        offer_class.arrivals_seen = len(self._arrivals)
        self.offer_classes.refresh_members(offer_class)
        if (
            len(new) > LATE
            or any(self._needs_rebuild(offer_class, entry) for entry in new)
            or len(offer_class.newcomers) > LATE
        ):
            self._rebuild_sampler(offer_class)

    def _needs_rebuild(self, offer_class: OfferClass, entry: IndexedQueue) -> bool:
        """Whether the sampler is wrong now that `entry` waits. If not, add `entry` to the newcomers."""
        if not self._is_member(offer_class, entry):
            return False
        if entry.standing is _SPECIAL:
            if entry not in offer_class.special:
                offer_class.special.append(entry)
            return False
        if entry in offer_class.newcomers or not len(offer_class.members):
            return True
        if self._rule == "dirac" and entry.identity.cpu_time != offer_class.cpu_time:
            return entry.identity.cpu_time > offer_class.cpu_time
        offer_class.newcomers.append(entry)
        return bool((offer_class.members == entry.slot).any())
