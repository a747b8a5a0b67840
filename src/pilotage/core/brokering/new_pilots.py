"""A CE as the match knows it for pilots that have not started: the ad of their offers, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.match import CeFacts
from pilotage.core.brokering.pilot_ads import own_attributes
from pilotage.core.classads import UNDEFINED, ClassAd, Expression, Literal
from pilotage.core.glue.schema import ATTRIBUTES, is_dynamic
from pilotage.core.queues.fit import Offer

MEASURED: Final = frozenset(
    {
        "gluehostarchitectureplatformtype",
        "gluehostarchitecturesmpsize",
        "gluehostmainmemoryramsize",
        "gluehostmainmemoryvirtualsize",
        "gluehostoperatingsystemname",
        "gluehostoperatingsystemrelease",
        "gluehostoperatingsystemversion",
        "gluehostprocessorclockspeed",
        "gluehostprocessormodel",
        "gluehostprocessorvendor",
    }
)
"""Attributes that a pilot may find on its node, in lower case. Its other attributes are not of the GLUE schema."""

_NEVER_FOUND: Final = tuple(
    attribute.name
    for attribute in ATTRIBUTES
    if attribute.name.lower() not in MEASURED and not is_dynamic(attribute.name)
)
_UNDEFINED: Final = Literal(UNDEFINED)
_OF_NODE: Final = frozenset({"hostname", "platform"})


def facts_of_new_pilots(ad: CeAd, offer: Offer) -> CeFacts:
    """The facts for pilots that make `offer`. Hostname, Platform and findings of a pilot on its node are unknown.

    The offer of a pilot on a host of a known class has no other values than the class, the CE and the pilot have.
    So a GLUE attribute that none of them tells is undefined there, and not unknown.
    """
    own = own_attributes(offer)
    never = [name for name in _NEVER_FOUND if name.lower() not in ad.ad.index]
    return CeFacts(
        ad.name,
        _merged(ad.ad, own),
        _merged(ad.fixed, own),
        tuple(_merged(host.ad, own, never) for host in ad.hosts),
    )


def ad_of_new_pilots(ad: CeAd, offer: Offer) -> ClassAd:
    """The whole ad of a CE with the attributes of its new pilots, as Rank sees it."""
    return _merged(ad.ad, own_attributes(offer))


def _merged(ad: ClassAd, own: Iterable[tuple[str, Expression]], undefined: Iterable[str] = ()) -> ClassAd:
    attributes = {name.lower(): (name, value) for name, value in ad.attributes}
    for key in (*_OF_NODE, "memory", "disk"):
        attributes.pop(key, None)
    attributes |= {name.lower(): (name, value) for name, value in own}
    for name in undefined:
        attributes.setdefault(name.lower(), (name, _UNDEFINED))
    return ClassAd(tuple(attributes.values()))
