"""An offer as a ClassAd, against which the Requirements of a job are evaluated. It speaks GLUE and Pilotage's names.

Pilotage's own names (`ATTRIBUTES`) come first, then the values that the CE fixes. The others are measured by the
pilot, else told of the node's class of hosts, else the minima over the CE's hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.classads import ClassAd, Expression, ListOf, Literal
from pilotage.core.classads.partial import Kind
from pilotage.core.glue.schema import BY_NAME
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
    "Disk": "free disk in MB (2^20 bytes); undefined if not known",
    "CPUTime": "seconds of a reference core left",
    "PilotType": "generic or private",
}
"""Besides these, the attributes of the CE's ad, and every one that the pilot found. A number where it reads as one."""

BATCH_HOST: Final = "BatchHost"
"""The attribute of a pilot with the name of its host in the batch system."""

_OWN: Final = frozenset(name.lower() for name in ATTRIBUTES)
_FREE: Final = "GlueCEStateFreeCPUs"
_PROVEN: Final = (
    ("GlueCEStateStatus", Literal("Production")),
    (_FREE, Literal(1)),
    ("GlueCEStateEstimatedResponseTime", Literal(0)),
    ("GlueCEStateWorstResponseTime", Literal(0)),
)
"""The CE starts jobs, the processors of the pilot are free for jobs, and a job starts there at once."""
_TEXTS: Final = frozenset(name for name, known in BY_NAME.items() if known.kind is Kind.STRING)


def node_ad(
    offer: Offer, ce: CeAd | None, hostname: str, platform: str, attributes: Mapping[str, str]
) -> ClassAd:
    """The part of a pilot's ad that stays while its offer shrinks: facts of its CE, its node and the pilot.

    The offer agrees with all that the CE's ad fixes, since pilots are submitted by it.
    """
    known: dict[str, tuple[str, Expression]] = {}
    fixed: Mapping[str, Expression] = {}
    if ce is not None:
        of_host = ce.of_host(*_host_names(hostname, attributes))
        known = {name.lower(): (name, value) for name, value in of_host.attributes}
        fixed = ce.fixed.index
    for name, text in attributes.items():
        key = name.lower()
        if key not in fixed:
            known[key] = (name, Literal(text if key in _TEXTS else _number_or_text(text)))
    if ce is not None:
        _add_proven(known)
    for key in _OWN:
        known.pop(key, None)
    own = (("Hostname", Literal(hostname)), ("Platform", Literal(platform)))
    return ClassAd((*known.values(), *own, *_lasting(offer)))


def _add_proven(known: dict[str, tuple[str, Expression]]) -> None:
    """Add the states of the CE that its running pilot proves, in place of unknown ones.

    The director submits while a state is not known. If it stayed undefined here, no such pilot would ever take its
    job. Nor would the pilot that occupies the last free processor.
    """
    for name, proven in _PROVEN:
        known.setdefault(name.lower(), (name, proven))
    if known[_FREE.lower()][1] == Literal(0):
        known[_FREE.lower()] = (_FREE, Literal(1))


def offer_ad(offer: Offer, node: ClassAd) -> ClassAd:
    """The ad of an offer; `node` is the `node_ad` of this offer with any sizes."""
    return node.extended(_sizes(offer))


def own_attributes(offer: Offer) -> tuple[tuple[str, Expression], ...]:
    """The attributes of the offer's ad that no node tells."""
    return (*_lasting(offer), *_sizes(offer))


def _lasting(offer: Offer) -> tuple[tuple[str, Expression], ...]:
    return (
        ("Site", Literal(offer.site)),
        ("GridCE", Literal(offer.ce)),
        ("Setup", Literal(offer.setup)),
        ("Platforms", _texts(offer.platforms)),
        ("Tags", _texts(offer.tags)),
        ("PilotType", Literal(offer.pilot_type)),
    )


def _sizes(offer: Offer) -> list[tuple[str, Expression]]:
    sizes: list[tuple[str, Expression]] = [
        ("Processors", Literal(offer.processors)),
        ("CPUTime", Literal(float(offer.cpu_time))),
    ]
    if offer.memory:
        sizes.append(("Memory", Literal(offer.memory)))
    if offer.disk:
        sizes.append(("Disk", Literal(offer.disk)))
    return sizes


def _host_names(hostname: str, attributes: Mapping[str, str]) -> tuple[str, ...]:
    """The names that the CE may know the host by. Of `queue@host` also the host."""
    name = attributes.get(BATCH_HOST, "")
    return tuple(known for known in (name, name.partition("@")[2], hostname) if known)


def _texts(items: frozenset[str]) -> ListOf:
    return ListOf(tuple(Literal(item) for item in sorted(items)))


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
