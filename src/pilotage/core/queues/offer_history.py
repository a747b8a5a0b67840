"""The offers that pilots made lately. `why` reports from them which offers refuse a queue, and which would fit.

Two offers share a record if every queue treats them alike, Requirements aside, and their numbers of processors are
equal (`QueueIndex.history_key`). Owned by one thread; `recent` returns copies for other threads. Nothing here decides
whether a queue fits: the predicate does (fit.py).
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

MAX_RECORDS = 512
"""Records kept; the least recently offered is evicted first."""

PILOTS = 64
"""Pilots and hosts kept per record. Slot counts are therefore lower bounds."""

FRESH = 1.0
"""Seconds for which one offer stands for all offers of its record."""

RECENT = 86400.0
"""Seconds after its last offer at which a record no longer counts."""

Origin = TypeVar("Origin")


@dataclass(slots=True)
class OfferRecord(Generic[Origin]):
    """Equivalent offers of pilots. `origin` holds the facts from which `offer` was made."""

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
    """The pilots that made such offers, and the instant of each one's last; the latest at the end."""
    hosts: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """The hosts of its pilots."""
    evicted: bool = False
    """No longer in `OfferStats`."""
    newest_pilot: float = 0.0
    """When the latest of its pilots was started."""

    def is_fresh(self, now: float) -> bool:
        """Whether it is still in `OfferStats`, with an offer younger than FRESH."""
        return not self.evicted and 0 <= now - self.refreshed < FRESH

    def record_take(self, pilot: int, host: str, given: bool, now: float) -> None:
        """Count an offer of a pilot; `given`: it was answered with jobs."""
        self.last = now
        self.takes += 1
        self.given += given
        pilots = self.pilots
        pilots[pilot] = now
        pilots.move_to_end(pilot)
        if len(pilots) > PILOTS:
            pilots.popitem(last=False)
        if host not in self.hosts:
            self.hosts[host] = None
            if len(self.hosts) > PILOTS:
                self.hosts.popitem(last=False)

    def revert_take(self, given: bool) -> None:
        """Undo `record_take`."""
        self.takes -= 1
        self.given -= given


class OfferStats(Generic[Origin]):
    """All records by their key, the latest offered at the end."""

    def __init__(self) -> None:
        self._records: OrderedDict[Offer, OfferRecord[Origin]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def refresh(
        self, key: Offer, offer: Offer, origin: Origin, now: float, *, started: float = 0.0
    ) -> OfferRecord[Origin]:
        """Set the present offer of the record `key`, and return it. `started`: when its pilot was started."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = OfferRecord(offer, origin, now, now)
            if len(self._records) > MAX_RECORDS:
                self._records.popitem(last=False)[1].evicted = True
        self._records.move_to_end(key)
        record.offer, record.origin, record.refreshed = offer, origin, now
        record.newest_pilot = max(record.newest_pilot, started)
        return record

    def restorer(self, key: Offer) -> Callable[[], None]:
        """A function that undoes later calls of `refresh` for the record `key`."""
        record = self._records.get(key)
        if record is None:
            # `recent` drops a new record without takes.
            return lambda: None
        before = (record.offer, record.origin, record.refreshed, record.newest_pilot)

        def restore() -> None:
            record.offer, record.origin, record.refreshed, record.newest_pilot = before

        return restore

    def recent(self, now: float) -> list[OfferRecord[Origin]]:
        """Copies of the records of the last day, the most used first; older ones are removed."""
        for key, record in list(self._records.items()):
            # A clock that stepped back makes nothing old.
            if now - record.last > RECENT or record.takes <= 0:
                record.evicted = True
                del self._records[key]
        copies = [
            replace(record, pilots=OrderedDict(record.pilots), hosts=OrderedDict(record.hosts))
            for record in self._records.values()
        ]
        return sorted(copies, key=lambda record: -record.takes)

    def rekey(self, offer_of: Callable[[Offer, Origin], Offer], key_of: Callable[[Offer], Offer]) -> None:
        """Replace each offer by its pilots' offer under a new policy. Records with equal new keys are merged."""
        old, self._records = self._records, OrderedDict()
        for record in old.values():
            record.offer = offer_of(record.offer, record.origin)
            key = key_of(record.offer)
            same = self._records.pop(key, None)
            if same is not None:
                same.evicted = True
                record.takes, record.given = record.takes + same.takes, record.given + same.given
                record.first, record.newest_pilot = (
                    min(record.first, same.first),
                    max(record.newest_pilot, same.newest_pilot),
                )
                record.pilots = OrderedDict(
                    sorted({**same.pilots, **record.pilots}.items(), key=lambda p: p[1])
                )
                record.hosts = OrderedDict({**same.hosts, **record.hosts})
                for kept in (record.pilots, record.hosts):
                    while len(kept) > PILOTS:
                        kept.popitem(last=False)
            self._records[key] = record


@dataclass(frozen=True, slots=True)
class KnownOffer:
    """A recent offer, or the possible offer of a pilot at a CE with known capacity.

    Slots are counted once: of a CE with known capacity from its possible offer, elsewhere from the pilots seen.
    """

    offer: Offer
    holds: RequirementsHold
    """Whether Requirements are true for it."""
    possible: bool = False
    """No pilot has made it: a pilot at the CE would."""
    counted: bool = True
    """Whether its slots count. False where a possible offer stands for the CE."""
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
    """The number of jobs of `queue` that can run at once in offers that it fits, by site.

    A pilot with offers in several records counts once, with the largest.
    """
    by_site: dict[str, int] = {}
    largest: dict[int, tuple[int, str]] = {}
    for known_offer in fitting:
        if not known_offer.counted:
            continue
        count, site = concurrent_jobs(queue, known_offer.offer), known_offer.offer.site
        if known_offer.possible:
            by_site[site] = by_site.get(site, 0) + count
        for pilot in known_offer.pilots:
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
    """The number of known offers that refuse it there, by condition; an offer may count under several."""
    takes: dict[Condition, int]
    """How often such offers were made."""
    known: int
    """Known offers of the site, all refused."""


def refusals(queue: QueueIdentity, known: Sequence[KnownOffer]) -> list[SiteRefusals]:
    """The conditions at which each site refuses `queue`, for sites where all known offers do. Ordered by site."""
    by_site: dict[str, list[KnownOffer]] = {}
    for known_offer in known:
        by_site.setdefault(known_offer.offer.site, []).append(known_offer)
    return list(_refused_by_site(queue, by_site))


def _refused_by_site(queue: QueueIdentity, by_site: dict[str, list[KnownOffer]]) -> Iterator[SiteRefusals]:
    for site, offers in sorted(by_site.items()):
        conditions: dict[Condition, int] = {}
        takes: dict[Condition, int] = {}
        for known_offer in offers:
            failed = known_offer.failures(queue)
            if not failed:
                break
            for condition in failed:
                conditions[condition] = conditions.get(condition, 0) + 1
                takes[condition] = takes.get(condition, 0) + known_offer.takes
        else:
            yield SiteRefusals(site, conditions, takes, len(offers))
