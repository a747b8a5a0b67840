"""The main reason why a queue waits, from the conditions and draws of the match itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pilotage.core.ids import QueueId
from pilotage.core.queues.draws import Rule
from pilotage.core.queues.fit import Condition, Offer, static_failure
from pilotage.core.queues.indexed_queue import IndexedQueue, eligible_queues
from pilotage.core.queues.limits import Limit
from pilotage.core.queues.offer_history import KnownOffer

COMPARED = 3
"""Fitting offers, the most used first, on which a queue is compared with other queues."""

STALE = 60.0
"""Seconds. If bound pilots go on asking for longer after the last free one, the queue waits for free pilots."""

NAMED = 3
"""Owners listed in the detail as served by bound pilots."""


class Reason(StrEnum):
    """In order of precedence: the first that holds is the main reason."""

    MEMBERSHIP = "membership"
    """The policy no longer knows its group, or its owner in it."""
    DRAINING = "draining"
    """The server gives out no new work."""
    NO_OFFER = "no-offer"
    """No pilot has asked lately, and there is no CE of known capacity."""
    NEEDS = "needs"
    """Every known offer refuses it; the detail names the conditions."""
    LIMIT = "limit"
    """All offers that it fits are closed by limits or start delays."""
    POOL = "pool"
    """It fits, but no submit pool takes its pilots; the detail names the pools."""
    BACKGROUND = "background"
    """Only UserPriority 0 waits in it, and other queues of its entity fit."""
    CPU_BUCKET = "cpu-bucket"
    """Under the document's rule queues of a higher CPU bucket go first."""
    SHARE = "share"
    """Nodes that it fits have asked since, and others were drawn."""
    PILOT = "pilot"
    """A pilot that it fits was asked for and has not called home yet."""
    CE = "ce"
    """Every CE that it fits gets no new pilots now. The detail has the state of each and its reason."""
    SLOTS = "slots"
    """It fits, and no node with room has asked. The detail names owners served by pilots that would have fitted."""


@dataclass(frozen=True, slots=True)
class WaitVerdict:
    reason: Reason
    detail: str = ""
    places: tuple[int, ...] = ()
    """The known offers behind the reason: of `needs` the nearest, of `share` and `cpu-bucket` the compared offer."""


@dataclass(frozen=True, slots=True)
class DrawCandidates:
    """The queues that take part in one draw."""

    entries: Sequence[IndexedQueue]
    ids: frozenset[QueueId]

    def first_bucket(self) -> int:
        """The highest CPU bucket, from which the document's rule draws."""
        return max(entry.identity.cpu_time for entry in self.entries)


def _no_pool_refuses(_: IndexedQueue) -> str:
    return ""


def _nothing_remembered(_: Offer) -> None:
    return None


@dataclass(slots=True)
class WaitAnalysis:
    """All queues and all known offers of one instant. For one thread, and for one use."""

    entries: Sequence[IndexedQueue]
    known: Sequence[KnownOffer]
    """Offers of pilots, the most used first, then possible offers."""
    closed: Mapping[tuple[str, str], Sequence[Limit]]
    """The limits that are closed, by site and CE."""
    rule: Rule
    draining: bool = False
    coming: frozenset[str] = frozenset()
    """CEs with pilots that were asked for and have not called home."""
    closed_ces: Mapping[str, str] = field(default_factory=dict)
    """CE → why no pilots are submitted there now."""
    asked: int = 0
    """Number of calls of the predicate: the cost so far."""
    remembered: Callable[[Offer], Sequence[IndexedQueue] | None] = _nothing_remembered
    """Returns the queues that fit an offer by the index's cache, Requirements not checked; None: not cached."""
    refused_by_pools: Callable[[IndexedQueue], str] = _no_pool_refuses
    """Why no submit pool takes the pilots of a queue; empty: one does."""
    _draw_candidates: dict[int, DrawCandidates] = field(default_factory=dict)
    _buckets: dict[int, int] = field(default_factory=dict)

    def limits_on(self, entry: IndexedQueue, known_offer: KnownOffer) -> list[Limit]:
        """The closed limits that keep `entry` from an offer that it fits."""
        closed = self.closed.get((known_offer.offer.site, known_offer.offer.ce), ())
        return [limit for limit in closed if limit.applies_to(entry.identity)]

    def fitting(self, entry: IndexedQueue) -> list[int]:
        """Places in `known` of all offers that the queue fits, limits not checked."""
        self.asked += len(self.known)
        return [place for place, known_offer in enumerate(self.known) if known_offer.fits(entry.identity)]

    def draw_candidates(self, place: int) -> DrawCandidates:
        """The queues that take part in a draw for one known offer."""
        candidates = self._draw_candidates.get(place)
        if candidates is None:
            known_offer = self.known[place]
            closed = self.closed.get((known_offer.offer.site, known_offer.offer.ce), ())
            entries = eligible_queues(
                self._fitting_but_for_requirements(known_offer), known_offer.holds, closed
            )
            candidates = self._draw_candidates[place] = DrawCandidates(
                entries, frozenset(entry.id for entry in entries)
            )
        return candidates

    def _fitting_but_for_requirements(self, known_offer: KnownOffer) -> Sequence[IndexedQueue]:
        remembered = self.remembered(known_offer.offer)
        if remembered is not None:
            return remembered
        self.asked += len(self.entries)
        return [
            entry
            for entry in self.entries
            if entry.waiting and entry.admitted and static_failure(entry.identity, known_offer.offer) is None
        ]

    def verdict(self, entry: IndexedQueue, since: float) -> WaitVerdict:
        """The main reason why a queue that has waited since `since` waits."""
        if not entry.admitted:
            return WaitVerdict(Reason.MEMBERSHIP)
        if self.draining:
            return WaitVerdict(Reason.DRAINING)
        refused = self.refused_by_pools(entry)
        if not self.known:
            return WaitVerdict(Reason.POOL, refused) if refused else WaitVerdict(Reason.NO_OFFER)
        fitting, limits = self._open(entry, since)
        if fitting and refused and not any(self._asked_since(self.known[place], since) for place in fitting):
            return WaitVerdict(Reason.POOL, refused)
        if fitting:
            return self._among_others(entry, fitting, since)
        if limits:
            return WaitVerdict(Reason.LIMIT, "; ".join(sorted({limit_text(limit) for limit in limits})))
        return self._nearest(entry)

    def _open(self, entry: IndexedQueue, since: float) -> tuple[list[int], list[Limit]]:
        """Offers in whose draws the queue takes part, and closed limits.

        At least COMPARED offers if there are, and an offer made since `since` if there is one.
        """
        open_places: list[int] = []
        limits: list[Limit] = []
        asked = False
        for place, known_offer in enumerate(self.known):
            self.asked += 1
            if len(open_places) >= COMPARED and (asked or known_offer.possible or known_offer.last < since):
                continue
            if not known_offer.fits(entry.identity):
                continue
            closed = self.limits_on(entry, known_offer)
            limits += closed
            if not closed:
                open_places.append(place)
                asked = asked or self._asked_since(known_offer, since)
        return open_places, limits

    @staticmethod
    def _asked_since(known_offer: KnownOffer, since: float) -> bool:
        return not known_offer.possible and known_offer.last >= since

    def _among_others(self, entry: IndexedQueue, places: Sequence[int], since: float) -> WaitVerdict:
        compared = places[:COMPARED]
        there = [place for place in compared if entry.id in self.draw_candidates(place).ids]
        if not there:
            return WaitVerdict(Reason.BACKGROUND)
        bucket, lowest = min((self._first_bucket(place, entry), place) for place in there)
        if bucket > entry.identity.cpu_time:
            return WaitVerdict(Reason.CPU_BUCKET, f"{bucket} s", (lowest,))
        rivals = [place for place in there if self._has_rivals(place, entry)]
        asked = [self.known[place].last for place in places if self._asked_since(self.known[place], since)]
        bound = self._bound_to_others(entry, since)
        only_bound = (
            asked and max((known_offer.last for known_offer in bound), default=0.0) > max(asked) + STALE
        )
        if rivals and asked and not only_bound:
            # Offers of pilots come first in `known`, but not all were made since `since`.
            drawn = next(
                (place for place in rivals if self._asked_since(self.known[place], since)), rivals[0]
            )
            return WaitVerdict(Reason.SHARE, places=(drawn,))
        coming = sorted({self.known[place].offer.ce for place in places} & self.coming)
        if coming:
            return WaitVerdict(Reason.PILOT, ", ".join(coming))
        if all(self.known[place].offer.ce in self.closed_ces for place in compared):
            # Only the compared offers are known to fit so far.
            ces = {self.known[place].offer.ce for place in self._open_places(entry)}
            if ces <= self.closed_ces.keys():
                closures = [f"CE {ce} is {self.closed_ces[ce]}" for ce in sorted(ces)]
                return WaitVerdict(Reason.CE, "; ".join(closures))
        return WaitVerdict(Reason.SLOTS, _served(bound))

    def _open_places(self, entry: IndexedQueue) -> list[int]:
        """All offers that the queue fits and no limit keeps it from."""
        return [place for place in self.fitting(entry) if not self.limits_on(entry, self.known[place])]

    def _bound_to_others(self, entry: IndexedQueue, since: float) -> list[KnownOffer]:
        """Offers since `since` that would fit if their pilots were not bound to other owners."""
        self.asked += len(self.known)
        return [
            known_offer
            for known_offer in self.known
            if self._asked_since(known_offer, since)
            and known_offer.offer.only_owner is not None
            and known_offer.failures(entry.identity) == (Condition.OWNER,)
        ]

    def _first_bucket(self, place: int, entry: IndexedQueue) -> int:
        """The CPU bucket that is drawn from first."""
        if self.rule != "dirac":
            return entry.identity.cpu_time
        if place not in self._buckets:
            self._buckets[place] = self.draw_candidates(place).first_bucket()
        return self._buckets[place]

    def _has_rivals(self, place: int, entry: IndexedQueue) -> bool:
        own = entry.identity.cpu_time
        return any(
            rival.id != entry.id and (self.rule != "dirac" or rival.identity.cpu_time >= own)
            for rival in self.draw_candidates(place).entries
        )

    def _nearest(self, entry: IndexedQueue) -> WaitVerdict:
        """The conditions of the offers that refuse it at the fewest conditions. Open sites come before closed ones."""
        self.asked += len(self.known)
        failed = [known_offer.failures(entry.identity) for known_offer in self.known]
        distances = [(len(conditions), Condition.SITE_CLOSED in conditions) for conditions in failed]
        nearest = min(distances)
        # The job names the site: its closure is the cause, and another site is not asked for.
        if entry.identity.sites and (1, True) in distances:
            nearest = (1, True)
        places = tuple(place for place, distance in enumerate(distances) if distance == nearest)
        named = {condition for place in places for condition in failed[place]}
        return WaitVerdict(
            Reason.NEEDS, ", ".join(condition for condition in Condition if condition in named), places
        )


def _served(bound: Sequence[KnownOffer]) -> str:
    """The owners that these pilots serve, as text."""
    names = sorted({str(known_offer.offer.only_owner) for known_offer in bound})
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"pilots serve {', '.join(names[:NAMED])}{more}" if names else ""


def limit_text(limit: Limit) -> str:
    """Such as "job_type Merge at site cellar: at most 200 running, a start every 5 s"."""
    place = f" at site {limit.site}" if limit.site else f" at CE {limit.ce}" if limit.ce else ""
    parts = [] if limit.running is None else [f"at most {limit.running} running"]
    if limit.delay:
        parts.append(f"a start every {limit.delay:g} s")
    jobs = f"{limit.attribute} {limit.value}" if limit.value else "jobs of requests"
    return f"{jobs}{place}: {', '.join(parts)}"
