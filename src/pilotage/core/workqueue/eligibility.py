"""The sites where an element may run. The queue, the release and `why` all ask `obstacle`, the only rule."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from enum import StrEnum

from pilotage.core.datasets.facts import ELSEWHERE

Sites = frozenset[str]

ANYWHERE = "*"
"""The location of work that needs no data at the site."""


class Obstacle(StrEnum):
    """The first condition that keeps work from a site."""

    NOT_LISTED = "not in the request's list of sites"
    BANNED = "in the request's list of banned sites"
    INPUT_UNKNOWN = "the location of the input is not known"
    NO_INPUT = "the input is not there"
    NO_ADDRESS = "the input is not there, and has no address that can be read from elsewhere"
    NO_PARENT = "the parent data is not there"
    NO_PILEUP = "the pile-up data is not there"


@dataclass(frozen=True, slots=True)
class SiteRules:
    """A request's word about sites. It is joined to an element when a decision is made, so a change acts at once."""

    listed: Sites | None = None
    """None: the request names no list, so all sites. Empty: no site at all."""
    banned: Sites = frozenset()
    trust_input: bool = False
    """The input is read from elsewhere where it is absent, if it has an address for that."""
    trust_pileup: bool = False


@dataclass(frozen=True, slots=True)
class Locations:
    """Where the data of an element is. None: not known, which is never read as nowhere. `ANYWHERE` in it: all sites."""

    inputs: tuple[Sites | None, ...] = ()
    """One entry for each input. Several inputs must all be at a site."""
    parents: tuple[Sites | None, ...] = ()
    pileups: tuple[Sites | None, ...] = field(default=())


def obstacle(site: str, rules: SiteRules, data: Locations) -> Obstacle | None:
    """The first condition that keeps an element from `site`; None: it may run there."""
    if rules.listed is not None and site not in rules.listed:
        return Obstacle.NOT_LISTED
    if site in rules.banned:
        return Obstacle.BANNED
    if None in data.inputs or (None in data.parents and not rules.trust_input):
        return Obstacle.INPUT_UNKNOWN
    if rules.trust_input:
        if not all(
            site in places or not places.isdisjoint(_READABLE) for places in data.inputs if places is not None
        ):
            return Obstacle.NO_ADDRESS
    else:
        if not _has_all(site, data.inputs):
            return Obstacle.NO_INPUT
        if not _has_all(site, data.parents):
            return Obstacle.NO_PARENT
    if not rules.trust_pileup and not _has_all(site, data.pileups):
        return Obstacle.NO_PILEUP
    return None


_READABLE = frozenset({ANYWHERE, ELSEWHERE})


def eligible_sites(sites: Iterable[str], rules: SiteRules, data: Locations) -> Sites:
    """The sites among `sites` where an element may run."""
    return frozenset(site for site in sites if obstacle(site, rules, data) is None)


def _has_all(site: str, places: Iterable[Set[str] | None]) -> bool:
    return all(known is not None and (site in known or ANYWHERE in known) for known in places)
