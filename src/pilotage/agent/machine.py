"""The state of one agent and its decisions. No input or output: messages go in and come out.

An agent pulls elements of the work queue and splits them into jobs. It holds an element until all of its masks are
posted. An element is split when its site has room for its jobs; until then it waits here, and other agents cannot
have it. Nothing is stored: the server knows the elements and the masks, and fences every message by the epoch.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from pilotage.core.workqueue.pull import SiteRoom
from pilotage.wire.agents import (
    MAX_PULL,
    ElementReference,
    ElementRelease,
    OfferedElement,
    SiteOfAgent,
    SyncRequest,
    SyncResponse,
)

MOST_HELD = 1000
"""Elements that an agent holds unsplit at most."""
MOST_TRIES = 3
"""Failed splits of one element before it is reported as one that cannot be split."""
DOWN = "down"
NORMAL = "normal"


class SyncResult(NamedTuple):
    """The result of one sync."""

    taken: tuple[OfferedElement, ...]
    """New elements."""
    stopped: tuple[int, ...]
    """Elements that are no longer the agent's."""


@dataclass(slots=True)
class AgentMachine:
    """One process of an agent."""

    nonce: str
    number: int = 1
    """The number of the next sync. The same number gets the same elements, so that a lost answer loses none."""
    draining: bool = False
    """The process ends: it takes no more elements."""
    is_drained: bool = False
    """An administrator drains the agent."""
    sites: dict[str, SiteOfAgent] = field(default_factory=dict)
    _held: dict[int, OfferedElement] = field(default_factory=dict)
    _unconfirmed: set[int] = field(default_factory=set)
    _releases: dict[int, ElementRelease] = field(default_factory=dict)
    _tries: dict[int, int] = field(default_factory=dict)
    _room: SiteRoom = field(default_factory=lambda: SiteRoom({}))
    _wants_to_pull: bool = True
    """The last sync could not pull, since the sites were not known."""
    _period_over_at: float = -inf

    @property
    def held(self) -> tuple[int, ...]:
        return tuple(self._held)

    def holds(self, offer: OfferedElement) -> bool:
        """Whether the element is still this agent's, as far as it knows."""
        known = self._held.get(offer.id)
        return known is not None and known.epoch == offer.epoch

    def next_sync_at(self) -> float:
        """When the next sync is due: at once if it has news, else when the period is over.

        News are elements to confirm or to give back, and slots that were not known.
        """
        has_news = self._unconfirmed or self._releases or self._wants_to_pull
        return -inf if has_news else self._period_over_at

    def sync_request(self) -> SyncRequest:
        pulls = not (self.draining or self.is_drained)
        return SyncRequest(
            self.nonce,
            number=self.number,
            want=max(0, min(MAX_PULL, MOST_HELD - len(self._held))) if pulls else 0,
            slots={site.name: site.slots for site in self.sites.values() if site.state == NORMAL},
            holding=[ElementReference(offer.id, offer.epoch) for offer in self._held.values()],
            releases=list(self._releases.values()),
            draining=self.draining,
        )

    def take_answer(self, sent: SyncRequest, answer: SyncResponse, sent_at: float) -> SyncResult:
        """Apply the answer to `sent`, the last request of `sync_request`."""
        self._period_over_at = sent_at + answer.period
        self.number = sent.number + 1
        for release in sent.releases:
            self._releases.pop(release.element, None)
        self._unconfirmed.clear()
        stopped = [element for element in answer.stop if self._held.pop(element, None) is not None]
        taken = [offer for offer in answer.elements if not self.holds(offer)]
        for offer in taken:
            self._held[offer.id] = offer
            self._unconfirmed.add(offer.id)
        before, self.sites = self.sites, {site.name: site for site in answer.sites}
        self._wants_to_pull = not sent.slots and any(site.state == NORMAL for site in answer.sites)
        self.is_drained = answer.drain
        self._count_room()
        if self.draining or self.is_drained:
            self._release_all("the agent drains")
        self._release_at_closed_sites()
        self._share({name for name, site in self.sites.items() if _has_fewer_slots(before.get(name), site)})
        return SyncResult(tuple(taken), tuple(stopped))

    def _count_room(self) -> None:
        """Jobs that wait against the slots that do not run. Sites that drain still get the jobs of held elements."""
        slots = {site.name: site.slots - site.running for site in self.sites.values() if site.state != DOWN}
        self._room = SiteRoom(slots, self._waiting())

    def _release_at_closed_sites(self) -> None:
        for offer in tuple(self._held.values()):
            site = self.sites.get(offer.site)
            if self.sites and (site is None or site.state == DOWN):
                self.give_back(offer, f"site {offer.site} is down" if site else f"no site {offer.site}")

    def _share(self, names: Container[str]) -> None:
        """Give back the elements that the slots of these sites no longer admit, since other agents have joined."""
        room = SiteRoom({site.name: site.slots for site in self.sites.values()}, self._waiting())
        for offer in self._in_order():
            if room.has_room(offer.site, offer.priority):
                room.add(offer.site, offer.priority, offer.jobs)
            elif offer.site in names:
                self.give_back(offer, f"other agents share site {offer.site}")

    def _waiting(self) -> dict[str, dict[int, int]]:
        """The agent's jobs that do not run, by site and priority."""
        return {
            site.name: {level[0]: level[1] for level in site.waiting}
            for site in self.sites.values()
            if site.waiting
        }

    def _in_order(self) -> list[OfferedElement]:
        """The held elements by priority, then age."""
        return sorted(self._held.values(), key=lambda offer: (-offer.priority, offer.id))

    def next_element(self) -> OfferedElement | None:
        """The held element to split now: by priority, then age, where its site has room. None: each has to wait."""
        if self.draining or self.is_drained:
            return None
        return next(
            (offer for offer in self._in_order() if self._room.has_room(offer.site, offer.priority)), None
        )

    def finish(self, offer: OfferedElement, jobs: int) -> None:
        """The element is split; `jobs` of its masks are new."""
        self._forget(offer)
        self._tries.pop(offer.id, None)
        self._room.add(offer.site, offer.priority, jobs)

    def drop(self, offer: OfferedElement) -> None:
        """The server says that the element is no longer this agent's."""
        self._forget(offer)

    def give_back(self, offer: OfferedElement, reason: str) -> None:
        """Return an element unsplit with the next sync."""
        if self.holds(offer):
            self._forget(offer)
            self._releases[offer.id] = ElementRelease(offer.id, offer.epoch, reason)

    def is_retry(self, offer: OfferedElement) -> bool:
        """Whether this process has tried the element before: it may have posted masks."""
        return offer.id in self._tries

    def may_retry(self, offer: OfferedElement) -> bool:
        """Count a failed split of a held element; whether it is tried again."""
        self._tries[offer.id] = self._tries.get(offer.id, 0) + 1
        return self._tries[offer.id] < MOST_TRIES

    def drain(self) -> None:
        """Take no more elements, and give back the held ones with the next sync."""
        self.draining = True
        # With a number of its own the server does not take the message for a repeated pull.
        self.number += 1
        self._release_all("the agent ends")

    def join(self, now: float) -> None:
        """The server has registered this process. The elements of an earlier registration are free."""
        self._period_over_at = now
        self._held.clear()
        self._unconfirmed.clear()
        self._releases.clear()
        self._wants_to_pull = True

    def _release_all(self, reason: str) -> None:
        for offer in tuple(self._held.values()):
            self.give_back(offer, reason)

    def _forget(self, offer: OfferedElement) -> None:
        if self.holds(offer):
            del self._held[offer.id]
            self._unconfirmed.discard(offer.id)


def _has_fewer_slots(before: SiteOfAgent | None, now: SiteOfAgent) -> bool:
    return before is not None and now.slots < before.slots
