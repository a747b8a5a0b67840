"""The content of a document: sites of a grid, their CEs, and their downtimes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from pilotage.core.policy.batch_systems import BATCH_SYSTEMS

MAX_NAME = 255
LAST_INSTANT = 10_000_000_000.0
"""Seconds since 1970 (the year 2286): a later end is a mistake of units."""


@dataclass(frozen=True, slots=True)
class ListedSite:
    """A site of a document."""

    name: str
    unusable: str = ""
    """Why it takes no part in production; empty: it does."""


@dataclass(frozen=True, slots=True)
class ListedCe:
    """A CE of a document."""

    site: str
    host: str
    address: str
    flavour: str
    """Its service type or flavour in the document."""

    @property
    def type(self) -> str:
        """The type of CE that reaches it; empty: there is none."""
        return _ce_types().get(_letters(self.flavour), "")


@dataclass(frozen=True, slots=True)
class Downtime:
    """A declared downtime of CEs of a site."""

    site: str
    hosts: frozenset[str]
    """Hosts of its CEs that are concerned; empty: all."""
    start: float
    end: float
    """Seconds since 1970."""
    reason: str = ""


@dataclass(slots=True)
class Topology:
    """The content of one or several documents."""

    sites: dict[str, ListedSite] = field(default_factory=dict)
    ces: dict[tuple[str, str], ListedCe] = field(default_factory=dict)
    """The key is site and host."""
    downtimes: list[Downtime] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """A sentence for each record that was not understood, or has no effect here."""

    def add_site(self, site: ListedSite) -> None:
        """Add a site; a record that says it is unusable has precedence."""
        known = self.sites.get(site.name)
        if known is None or not known.unusable:
            self.sites[site.name] = site

    def add_downtime(self, label: str, down: Downtime) -> None:
        """Add a downtime; one whose times cannot be is left out with a sentence that begins with `label`."""
        if not 0 <= down.end < LAST_INSTANT:
            self.left_out.append(f"{label}: its end is no time of this age")
        elif down.start >= down.end:
            self.left_out.append(f"{label}: it ends before it begins")
        else:
            self.downtimes.append(down)

    def add_ce(self, ce: ListedCe) -> None:
        """Add a CE and, if no record tells of it, its site."""
        self.ces[ce.site, ce.host] = ce
        self.sites.setdefault(ce.site, ListedSite(ce.site))

    def ces_of(self, site: str) -> Iterator[ListedCe]:
        """The CEs of a site."""
        return (ce for ce in self.ces.values() if ce.site == site)

    def outages(self, site: str, now: float) -> list[Downtime]:
        """The downtimes of a site that have begun and not ended."""
        return [down for down in self.downtimes if down.site == site and down.start <= now < down.end]

    def outage(self, site: str, now: float) -> Downtime | None:
        """A downtime by which no CE of the site is up now; None: some are up.

        It is the last to end among downtimes of the whole site, else the first to end: one CE is then up again.
        Where no document lists the CEs of the site, each downtime counts as one of the whole site.
        """
        now_down = self.outages(site, now)
        hosts = {ce.host for ce in self.ces_of(site)}
        covered = frozenset[str]().union(*(down.hosts for down in now_down))
        whole = [down for down in now_down if not down.hosts or not hosts]
        if not whole and not (hosts and hosts <= covered):
            return None
        return max(whole, key=_end) if whole else min(now_down, key=_end)


def _end(down: Downtime) -> float:
    return down.end


def is_ce(flavour: str) -> bool:
    """Whether a service type of GOCDB or a flavour of CRIC is a computing element."""
    return (
        _letters(flavour) in _ce_types()
        or re.search(r"(^|\W)CE$", flavour.strip(), re.IGNORECASE) is not None
    )


def usable_name(name: object) -> str | None:
    """The name of a site or host; None: it is none that a policy takes."""
    return name if isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable() else None


@cache
def _ce_types() -> dict[str, str]:
    """The type of a CE of a policy, by the letters of its service type or flavour."""
    return {_letters(flavour): name for name, kind in BATCH_SYSTEMS.items() for flavour in kind.grid_flavours}


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())
