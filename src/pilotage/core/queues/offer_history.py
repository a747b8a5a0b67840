"""The offers that pilots made lately: `why` reads from them which refuse a queue, and which would fit.

Two offers are of one kind here if no queue can tell them apart without its Requirements and they have the same number
of processors (`QueueIndex.history_key`). Owned by
one thread; `recent` gives copies that others may read. Nothing here decides whether a queue fits: the predicate does
(fit.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from pilotage.core.queues.fit import (
    Condition,
    Offer,
    RequirementsHold,
    concurrent_jobs,
    failures,
    first_failure,
)
from pilotage.core.queues.identity import QueueIdentity

KINDS = 512
"""Records kept; the least recently offered is evicted first."""

PILOTS = 64
"""Pilots kept per record. Slot counts are therefore lower bounds."""

FRESH = 1.0
"""Seconds for which one offer stands for all of its kind."""

RECENT = 86400.0
"""Seconds after which a kind no longer counts."""

Origin = TypeVar("Origin")


@dataclass(slots=True)
class OfferRecord(Generic[Origin]):
    """One kind of offer. `origin` is what an offer of it was made of last."""

    offer: Offer
    origin: Origin
    first: float
    last: float
    takes: int = 0
    given: int = 0
    """Takes that were answered with jobs."""
    refreshed: float = 0.0
    """When `offer` was made."""
    pilots: OrderedDict[int, float] = field(default_factory=OrderedDict)
    """Who made it, and when last; the latest at the end."""
    evicted: bool = False
    """The book knows it no longer."""
    newest_pilot: float = 0.0
    """When the latest of its pilots was started."""

    def is_fresh(self, now: float) -> bool:
        """Whether it is in the book with an offer of just now."""
        return not self.evicted and 0 <= now - self.refreshed < FRESH

    def record_take(self, pilot: int, given: bool, now: float) -> None:
        """A pilot made an offer of this kind, and was given jobs or not."""
        self.last = now
        self.takes += 1
        self.given += given
        pilots = self.pilots
        pilots[pilot] = now
        pilots.move_to_end(pilot)
        if len(pilots) > PILOTS:
            pilots.popitem(last=False)

    def revert_take(self, given: bool) -> None:
        """Undo `record_take`."""
        self.takes -= 1
        self.given -= given


class OfferStats(Generic[Origin]):
    """All kinds by their key, the one made last at the end."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Offer, OfferRecord[Origin]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kinds)

    def refresh(
        self, key: Offer, offer: Offer, origin: Origin, now: float, *, started: float = 0.0
    ) -> OfferRecord[Origin]:
        """The kind `key`, for which `offer` stands from now on. `started`: when the pilot that makes it was."""
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = OfferRecord(offer, origin, now, now)
            if len(self._kinds) > KINDS:
                self._kinds.popitem(last=False)[1].evicted = True
        self._kinds.move_to_end(key)
        kind.offer, kind.origin, kind.refreshed = offer, origin, now
        kind.newest_pilot = max(kind.newest_pilot, started)
        return kind

    def recent(self, now: float) -> list[OfferRecord[Origin]]:
        """Copies of the kinds of the last day, the most used first; older ones are forgotten."""
        for key, kind in list(self._kinds.items()):
            # A clock that stepped back makes nothing old.
            if now - kind.last > RECENT or kind.takes <= 0:
                kind.evicted = True
                del self._kinds[key]
        copies = [replace(kind, pilots=OrderedDict(kind.pilots)) for kind in self._kinds.values()]
        return sorted(copies, key=lambda kind: -kind.takes)

    def rekey(self, offer_of: Callable[[Offer, Origin], Offer], key_of: Callable[[Offer], Offer]) -> None:
        """A new policy: what the same pilots would offer now. Kinds that have become one are added up."""
        old, self._kinds = self._kinds, OrderedDict()
        for kind in old.values():
            kind.offer = offer_of(kind.offer, kind.origin)
            key = key_of(kind.offer)
            same = self._kinds.pop(key, None)
            if same is not None:
                same.evicted = True
                kind.takes, kind.given = kind.takes + same.takes, kind.given + same.given
                kind.first, kind.newest_pilot = (
                    min(kind.first, same.first),
                    max(kind.newest_pilot, same.newest_pilot),
                )
                kind.pilots = OrderedDict(sorted({**same.pilots, **kind.pilots}.items(), key=lambda p: p[1]))
                while len(kind.pilots) > PILOTS:
                    kind.pilots.popitem(last=False)
            self._kinds[key] = kind


@dataclass(frozen=True, slots=True)
class KnownOffer:
    """A recent offer, or the possible offer of a pilot at a CE with known capacity.

    Slots are counted once: of a CE with known capacity from its possible offer, elsewhere from the pilots seen.
    """

    offer: Offer
    holds: RequirementsHold
    """Whether Requirements are true for it."""
    possible: bool = False
    """Nobody has made it: a pilot there would."""
    counted: bool = True
    """Whether its slots count: not so where a possible offer stands for the CE."""
    takes: int = 0
    given: int = 0
    first: float = 0.0
    last: float = 0.0
    pilots: tuple[int, ...] = ()

    def fits(self, queue: QueueIdentity) -> bool:
        return first_failure(queue, self.offer, self.holds) is None

    def failures(self, queue: QueueIdentity) -> tuple[Condition, ...]:
        return failures(queue, self.offer, self.holds)


def count_slots(queue: QueueIdentity, fitting: Iterable[KnownOffer]) -> dict[str, int]:
    """By site: how many jobs of `queue` run beside each other in offers that it fits.

    A pilot that made offers of several kinds counts once, with the largest.
    """
    by_site: dict[str, int] = {}
    largest: dict[int, tuple[int, str]] = {}
    for one in fitting:
        if not one.counted:
            continue
        count, site = concurrent_jobs(queue, one.offer), one.offer.site
        if one.possible:
            by_site[site] = by_site.get(site, 0) + count
        for pilot in one.pilots:
            if count > largest.get(pilot, (0, ""))[0]:
                largest[pilot] = (count, site)
    for count, site in largest.values():
        by_site[site] = by_site.get(site, 0) + count
    return {site: count for site, count in by_site.items() if count}


@dataclass(frozen=True, slots=True)
class SiteRefusals:
    """The conditions that a queue fails at one site."""

    site: str
    conditions: dict[Condition, int]
    """How many known offers it falls at there, by condition; one may have several."""
    takes: dict[Condition, int]
    """How often such offers were made."""
    known: int
    """Known offers of the site, all refused."""


def refusals(queue: QueueIdentity, known: Sequence[KnownOffer]) -> list[SiteRefusals]:
    """Of every site whose known offers all refuse `queue`: at which conditions. By site."""
    by_site: dict[str, list[KnownOffer]] = {}
    for one in known:
        by_site.setdefault(one.offer.site, []).append(one)
    return list(_refused_by_site(queue, by_site))


def _refused_by_site(queue: QueueIdentity, by_site: dict[str, list[KnownOffer]]) -> Iterator[SiteRefusals]:
    for site, offers in sorted(by_site.items()):
        conditions: dict[Condition, int] = {}
        takes: dict[Condition, int] = {}
        for one in offers:
            failed = one.failures(queue)
            if not failed:
                break
            for condition in failed:
                conditions[condition] = conditions.get(condition, 0) + 1
                takes[condition] = takes.get(condition, 0) + one.takes
        else:
            yield SiteRefusals(site, conditions, takes, len(offers))
