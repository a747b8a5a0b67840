"""An offer as a ClassAd, against which the Requirements of a job are evaluated."""

from __future__ import annotations

from collections.abc import Mapping

from pilotage.core.classads import ClassAd, Expression, ListOf, Literal
from pilotage.core.queues.fit import Offer

ATTRIBUTES = {
    "Site": "name of the site",
    "GridCE": "name of the CE",
    "Setup": "setup of the CE",
    "Hostname": "name of the node",
    "Platform": "platform of the node, as its pilot names it",
    "Platforms": "all platforms whose jobs it can run",
    "Tags": "what it offers",
    "Processors": "free cores",
    "Memory": "free memory in MB (2^20 bytes); undefined if not known",
    "CPUTime": "seconds of a reference core left",
    "PilotType": "generic or private",
}
"""Besides these, every attribute that the pilot found, a number where it reads as one."""


def offer_ad(offer: Offer, hostname: str, platform: str, attributes: Mapping[str, str]) -> ClassAd:
    """The ad; attributes of the node never replace one of `ATTRIBUTES`."""
    known: dict[str, Expression] = {
        "Site": Literal(offer.site),
        "GridCE": Literal(offer.ce),
        "Setup": Literal(offer.setup),
        "Hostname": Literal(hostname),
        "Platform": Literal(platform),
        "Platforms": _texts(offer.platforms),
        "Tags": _texts(offer.tags),
        "Processors": Literal(offer.processors),
        "CPUTime": Literal(float(offer.cpu_time)),
        "PilotType": Literal(offer.pilot_type),
    }
    if offer.memory:
        known["Memory"] = Literal(offer.memory)
    taken = {name.lower() for name in ATTRIBUTES}
    for name, text in attributes.items():
        if name.lower() not in taken:
            known[name] = Literal(_number_or_text(text))
    return ClassAd(tuple(known.items()))


def _texts(items: frozenset[str]) -> ListOf:
    return ListOf(tuple(Literal(item) for item in sorted(items)))


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
