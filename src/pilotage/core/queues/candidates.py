"""The queues that wait, and the draws among those that fit a kind of offer (offer_kinds.py).

A kind has a field of its queues that wait (race.py), from which draws are made until the priorities are others. Queues
that have begun to wait since then run against the winner, and so do those that must be looked at by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from pilotage.core.queues.draws import Rule
from pilotage.core.queues.fit import Condition, Offer, RequirementsHold
from pilotage.core.queues.indexed_queue import Entity, IndexedQueue, QueueStanding, eligible_queues
from pilotage.core.queues.offer_classes import OfferClass, OfferClasses
from pilotage.core.queues.vectorised_matching import FITS, ORDER, Slots
from pilotage.core.queues.weighted_draw import Sampler, draw_after

LATE = 16
"""When so many queues have begun to wait since the field of a kind was made, it is made anew."""

MOST_ARRIVALS = 10_000

FORGOTTEN = 1000
"""When so many queues more have been forgotten than are known, all get new slots."""

_OUT, _PLAIN, _SPECIAL = QueueStanding.OUT, QueueStanding.PLAIN, QueueStanding.SPECIAL


class Candidates:
    """All queues with waiting jobs, and the kinds of offer seen lately."""

    def __init__(
        self, cpu_buckets: Sequence[int], memory_buckets: Sequence[int], rule: Rule, rng: Random
    ) -> None:
        self.offer_classes = OfferClasses(cpu_buckets, memory_buckets)
        self._rule: Rule = rule
        self._rng = rng
        # For arrays of numbers; begins by chance as well.
        self._numbers = np.random.Generator(np.random.PCG64(rng.getrandbits(128)))
        self._standing: NDArray[np.int8] = np.zeros(256, dtype=np.int8)
        self._priority: NDArray[np.float64] = np.zeros(256)
        self._cpu_time: NDArray[np.int64] = np.zeros(256, dtype=np.int64)
        """By slot, as those above."""
        self._version = 0
        self.clear()

    def clear(self) -> None:
        """Forget all queues and kinds."""
        self.offer_classes.clear()
        self._known = 0
        self._entries: list[IndexedQueue | None] = []
        """By slot; None: it has been forgotten."""
        self._of_entity: dict[Entity, dict[int, IndexedQueue]] = {}
        self._arrivals: list[IndexedQueue] = []
        self._specials = 0
        """How many are special now."""
        self._standing_changes = 0
        """So often has a queue begun to wait, or changed between plain and special."""

    # --- the queues

    def add(self, entry: IndexedQueue) -> None:
        """A queue that may have waiting jobs."""
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
        """Forget a queue without jobs."""
        self._entries[entry.slot] = None
        self._known -= 1
        self._standing[entry.slot] = _OUT
        del self._of_entity[entry.entity][entry.slot]

    def update_standing(self, entry: IndexedQueue) -> None:
        """A queue stands otherwise than before: it has begun or ceased to wait, or is background now."""
        self._specials -= entry.standing is _SPECIAL
        entry.standing = entry.current_standing()
        self._specials += entry.standing is _SPECIAL
        self._standing[entry.slot] = entry.standing
        if entry.standing is not _OUT:
            self._standing_changes += 1
            self._priority[entry.slot] = entry.priority
            self._arrivals.append(entry)
            if len(self._arrivals) > MOST_ARRIVALS:
                self.invalidate_samplers()

    def set_priority(self, entry: IndexedQueue) -> None:
        """Its priority is another one; taken up with the next `settled`."""
        self._priority[entry.slot] = entry.priority

    def invalidate_samplers(self) -> None:
        """Fields that were made with earlier priorities are void."""
        self._version += 1
        # Nobody looks back beyond a version.
        self._arrivals.clear()

    # --- those of a kind

    def waiting_queues(self, kind: OfferClass) -> list[IndexedQueue]:
        """The queues of a kind that have waiting jobs now, Requirements not yet asked."""
        self.offer_classes.refresh_members(kind)
        slots = kind.slots[self._standing[kind.slots] != _OUT]
        return [entry for slot in slots.tolist() if (entry := self._entries[slot]) is not None]

    def count_refusals(self, offer: Offer) -> tuple[dict[Condition, int], list[IndexedQueue]]:
        """How many admitted queues with waiting jobs fall at which condition first; and those that do not."""
        slots = np.flatnonzero(self._standing != _OUT)
        failed = self.offer_classes.matching.failures(offer, slots)
        numbers = np.bincount(failed, minlength=FITS)[:FITS]
        fallen = {ORDER[place]: int(numbers[place]) for place in np.flatnonzero(numbers)}
        left = [self._entries[slot] for slot in slots[failed == FITS].tolist()]
        return fallen, [entry for entry in left if entry is not None]

    # --- the draw

    def draw(self, kind: OfferClass, holds: RequirementsHold) -> IndexedQueue | None:
        """One of the queues that take part, by the rule; None if there is none."""
        if kind.version != self._version:
            self._rebuild_sampler(kind)
        elif kind.arrivals_seen != len(self._arrivals):
            self._add_new_queues(kind)
        if kind.special:
            return self._draw_with_special(kind, holds)
        found = self._draw_plain(kind)
        return None if found is None else found[0]

    def peek(self, kind: OfferClass) -> IndexedQueue | None:
        """The queue that the next draw is likely to give; None: not known."""
        if kind.sampler is None:
            return None
        if kind.next_draw is None:
            kind.next_draw = kind.sampler.draw(self._rng, self._numbers)
        slot: int = kind.members[kind.next_draw[0]]
        return self._entries[slot]

    def _draw_plain(self, kind: OfferClass) -> tuple[IndexedQueue, float] | None:
        """A plain queue and its time."""
        while kind.sampler is not None:
            place, time = kind.next_draw or kind.sampler.draw(self._rng, self._numbers)
            kind.next_draw = None
            entry = self._entries[kind.members[place]]
            if entry is None or entry.standing is not _PLAIN:
                left = self._standing[kind.members] == _PLAIN
                if not left.any():
                    self._rebuild_sampler(kind)
                    continue
                self._set_members(kind, kind.members[left], kind.weights[left])
                place, time = draw_after(kind.weights, self._rule, self._numbers, time)
                entry = self._entries[kind.members[place]]
                assert entry is not None
            if kind.newcomers:
                late = [one for one in kind.newcomers if one.standing is _PLAIN]
                if late:
                    return self._draw_against(entry, time, late, len(kind.members))
            return entry, time
        return None

    def _draw_against(
        self, winner: IndexedQueue, time: float, others: Sequence[IndexedQueue], behind: int
    ) -> tuple[IndexedQueue, float]:
        """Who wins when `winner`, at its time out of so many, runs against `others` too (not empty)."""
        weights = np.array([entry.priority for entry in others])
        place, best = draw_after(weights, self._rule, self._numbers, 0.0)
        if best < time:
            return others[place], best
        # Nobody has a priority: everyone is equally likely.
        if math.isinf(time) and self._rng.random() * (behind + len(others)) >= behind:
            return others[place], time
        return winner, time

    def _draw_with_special(self, kind: OfferClass, holds: RequirementsHold) -> IndexedQueue | None:
        there = self._special_taking_part(kind, holds)
        found = self._draw_plain(kind)
        if not there:
            return found[0] if found else None
        if self._rule == "document":
            highest = max(entry.identity.cpu_time for entry in there)
            if found is not None and kind.cpu_time > highest:
                return found[0]
            there = [entry for entry in there if entry.identity.cpu_time == highest]
            if kind.cpu_time < highest:
                found = None
        if found is None:
            return self._draw_against(there[0], math.inf, there, 0)[0]
        return self._draw_against(*found, there, len(kind.members))[0]

    def _special_taking_part(self, kind: OfferClass, holds: RequirementsHold) -> list[IndexedQueue]:
        """Of the queues that must be looked at by themselves: those that take part."""
        waiting = [entry for entry in kind.special if entry.standing is _SPECIAL]
        there = eligible_queues(waiting, holds, ())
        return [
            entry for entry in there if not (entry.background and self._has_foreground(kind, entry.entity))
        ]

    def _has_foreground(self, kind: OfferClass, entity: Entity) -> bool:
        """Whether a plain queue of `entity` takes part."""
        slots = kind.slots
        for slot, entry in self._of_entity[entity].items():
            if entry.standing is _PLAIN:
                place = int(slots.searchsorted(slot))
                if place < len(slots) and slots[place] == slot:
                    return True
        return False

    def _rebuild_sampler(self, kind: OfferClass) -> None:
        """Make the field, of the queues and with the priorities of now."""
        self.offer_classes.refresh_members(kind)
        kind.version, kind.arrivals_seen = self._version, len(self._arrivals)
        if kind.standing_changes == self._standing_changes:
            # The same queues as before, but for those that have ceased to wait.
            plain = self._standing[kind.members] == _PLAIN
            members = kind.members if plain.all() else kind.members[plain]
            if len(members):
                self._set_members(kind, members, self._priority[members])
                return
        kind.standing_changes = self._standing_changes
        standing = self._standing[kind.slots]
        kind.newcomers, kind.special, kind.cpu_time = [], [], 0
        if self._specials:
            special = kind.slots[standing == _SPECIAL].tolist()
            kind.special = [entry for slot in special if (entry := self._entries[slot]) is not None]
        members = kind.slots[standing == _PLAIN]
        if len(members) and self._rule == "document":
            buckets = self._cpu_time[members]
            kind.cpu_time = int(buckets.max())
            members = members[buckets == kind.cpu_time]
        self._set_members(kind, members, self._priority[members])

    def _set_members(self, kind: OfferClass, members: Slots, weights: NDArray[np.float64]) -> None:
        kind.members, kind.weights = members, weights
        kind.sampler = Sampler(weights, self._rule) if len(members) else None
        kind.next_draw = None

    def _add_new_queues(self, kind: OfferClass) -> None:
        """Take up the queues that have begun to wait since the field was made."""
        new = self._arrivals[kind.arrivals_seen :]
        kind.arrivals_seen = len(self._arrivals)
        self.offer_classes.refresh_members(kind)
        if (
            len(new) > LATE
            or any(self._needs_rebuild(kind, entry) for entry in new)
            or len(kind.newcomers) > LATE
        ):
            self._rebuild_sampler(kind)

    def _needs_rebuild(self, kind: OfferClass, entry: IndexedQueue) -> bool:
        """Whether the field is wrong now that `entry` waits; if not, it is taken up beside it."""
        place = int(kind.slots.searchsorted(entry.slot))
        if place == len(kind.slots) or kind.slots[place] != entry.slot:
            return False
        if entry.standing is _SPECIAL:
            if entry not in kind.special:
                kind.special.append(entry)
            return False
        if entry in kind.newcomers or not len(kind.members):
            return True
        if self._rule == "document" and entry.identity.cpu_time != kind.cpu_time:
            return entry.identity.cpu_time > kind.cpu_time
        kind.newcomers.append(entry)
        return bool((kind.members == entry.slot).any())
