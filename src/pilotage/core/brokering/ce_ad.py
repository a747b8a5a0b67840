"""The ad of a CE: made from its information and the policy, or loaded from a text (ad_text.py).

Its form is that of the CE ads of gLite: `[ id; update_time; expiry_time; info = [ … ] ]`. The inner ad is matched.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pilotage.core.brokering.match import ce_requirements
from pilotage.core.classads import ERROR, UNDEFINED, ClassAd, Expression, Literal, parse_expression
from pilotage.core.errors import InvalidInput
from pilotage.core.glue.information import CeInformation, HostClass, Value, literal
from pilotage.core.glue.schema import EXPRESSIONS, OWN_NAMES, is_dynamic, is_of_hosts
from pilotage.core.policy import Ce

IDENTITY: Final = "GlueCEUniqueID"
FUTURE_TOLERANCE: Final = 60.0
"""Seconds by which the clock of a CE may be ahead."""

_EXPRESSIONS: Final = {name.lower(): name for name in EXPRESSIONS}
_AUTHORIZATION: Final = parse_expression(
    "member(other.CertificateSubject, GlueCEAccessControlBaseRule)"
    ' || member(strcat("VO:", other.VirtualOrganisation), GlueCEAccessControlBaseRule)'
)
_CLOSE_OUTPUT: Final = parse_expression(
    "isUndefined(other.OutputSE) || member(other.OutputSE, GlueCESEBindGroupSEUniqueID)"
)


class HostNames:
    """The names of the hosts of classes. They are indexed at the first question: a CE may have 10,000 hosts."""

    __slots__ = ("_by_name", "_by_short_name", "_classes")

    def __init__(self, classes: Sequence[HostClass]) -> None:
        self._classes = classes
        self._by_name: dict[str, int] | None = None
        self._by_short_name: dict[str, int] | None = None

    def place_of(self, name: str) -> int | None:
        """The place of the class of a host. A name without a domain is that of a host with one, if it is unique."""
        name = name.lower()
        if self._by_name is None:
            self._by_name = {
                host.lower(): place for place, known in enumerate(self._classes) for host in known.hosts
            }
        place = self._by_name.get(name)
        if place is not None:
            return place
        # A host of another domain is another host.
        short = _short(name)
        if short != name:
            return self._by_name.get(short)
        if self._by_short_name is None:
            self._by_short_name = _by_short_name(self._by_name)
        return self._by_short_name.get(name)


def _by_short_name(by_name: Mapping[str, int]) -> dict[str, int]:
    """The same by names up to their first dot, where no two classes share one."""
    places: dict[str, set[int]] = {}
    for name, place in by_name.items():
        places.setdefault(_short(name), set()).add(place)
    return {name: next(iter(known)) for name, known in places.items() if len(known) == 1}


def _short(name: str) -> str:
    """The name of a host up to its first dot; a queue before it stays (`all.q@host`)."""
    queue, at, host = name.rpartition("@")
    return queue + at + host.partition(".")[0]


@dataclass(frozen=True, slots=True)
class HostAd:
    """One class of a CE's hosts."""

    count: int
    ad: ClassAd
    """The values that the CE fixes and the values of the class. An attribute that the class does not tell is absent."""
    hosts: tuple[str, ...] = ()
    """Names of the hosts in the batch system; empty: not known."""


@dataclass(frozen=True, slots=True, eq=False)
class CeAd:
    """The ad of a CE in the forms that matching needs. Compared by identity: one object for equal information."""

    name: str
    ad: ClassAd
    """All attributes, and `Requirements`. Attributes of hosts are minima over the hosts, unless homogeneous."""
    homogeneous: bool
    updated: float
    """Epoch seconds; 0: not known."""
    expiry: float
    """Seconds after `updated`."""
    fixed: ClassAd
    """Without the attributes that hosts fix, unless homogeneous. Partial evaluation may use it."""
    hosts: tuple[HostAd, ...] = ()
    """One for each class of hosts; none: the hosts are not known."""
    host_classes: tuple[HostClass, ...] = ()
    """The classes of the information that the ad was made from, in the order of `hosts`."""
    host_names: HostNames = field(default_factory=lambda: HostNames(()), repr=False)
    _offered: dict[int, ClassAd] = field(default_factory=dict, repr=False)
    """The ad of a class by its place, with minima for the attributes that it does not tell. Made when asked for."""

    def is_current(self, now: float) -> bool:
        return not self.updated or now < self.updated + self.expiry

    def is_from_future(self, now: float) -> bool:
        return self.updated > now + FUTURE_TOLERANCE

    def document(self) -> ClassAd:
        """The ad in the form in which CEs publish it."""
        return ClassAd(
            (
                ("id", Literal(self.name)),
                ("update_time", Literal(int(self.updated))),
                ("expiry_time", Literal(int(self.expiry))),
                ("info", self.ad),
            )
        )

    def of_host(self, *names: str) -> ClassAd:
        """The ad for the offer of a host: the first name counts that the CE knows, whole or up to its first dot.

        An unknown host has the values of the only class of hosts, else the minima over the hosts.
        """
        for name in names:
            place = self.host_names.place_of(name)
            if place is not None:
                return self._with_minima(place)
        return self._with_minima(0) if len(self.hosts) == 1 else self.ad

    def _with_minima(self, place: int) -> ClassAd:
        offered = self._offered.get(place)
        if offered is None:
            of_host = self.hosts[place].ad
            minima = [item for item in self.ad.attributes if item[0].lower() not in of_host.index]
            offered = self._offered[place] = of_host.extended(minima)
        return offered


def ce_ad(
    name: str, ce: Ce, information: CeInformation, now: float, host_names: HostNames | None = None
) -> CeAd:
    """The ad of a CE of the policy. Attributes that change all the time are absent if the information has expired.

    Values that the policy sets never expire.
    `host_names`: of an earlier ad with the same host classes.
    """
    current, classes = information.is_current(now), information.host_classes
    known: dict[str, tuple[str, Expression]] = {}
    of_policy = {"Site": ce.site, "GridCE": name, "Setup": ce.setup}
    _add(known, {IDENTITY: name, "GlueSiteName": ce.site})
    lasting = {key.lower() for key in ce.attributes}
    _add(
        known,
        {
            key: value
            for key, value in information.attributes.items()
            if current or not is_dynamic(key) or key.lower() in lasting
        },
    )
    if information.homogeneous:
        _add(known, _agreed(classes))
    _add(known, of_policy, own=True)
    _complete_checks(known)
    ad = ClassAd(tuple(known.values()))
    of_hosts = {key.lower() for host_class in classes for key in host_class.attributes} - OWN_NAMES
    if information.homogeneous:
        fixed = without(ad, of_hosts - {key.lower() for key in _agreed(classes)})
    else:
        fixed = without_hosts(ad, of_hosts)
    missing = {key: known.get(key, value) for key, value in _published(ce, classes).items()}
    hosts = tuple(_host_ad(fixed, host_class, missing) for host_class in classes)
    if information.homogeneous and not hosts:
        hosts = (HostAd(1, ad),)
    return CeAd(
        name=name,
        ad=ad,
        homogeneous=information.homogeneous,
        updated=information.updated,
        expiry=information.expiry,
        fixed=fixed,
        hosts=hosts,
        host_classes=classes,
        host_names=HostNames(classes) if host_names is None else host_names,
    )


def without(ad: ClassAd, names: Container[str]) -> ClassAd:
    """An ad without these attributes, given in lower case."""
    return ClassAd(tuple((name, value) for name, value in ad.attributes if name.lower() not in names))


def without_hosts(ad: ClassAd, further: Iterable[str] = ()) -> ClassAd:
    """An ad without the attributes that hosts fix. `further`: names of the site, in lower case."""
    names = frozenset(further)
    return ClassAd(
        tuple(
            (name, value)
            for name, value in ad.attributes
            if not is_of_hosts(name) and name.lower() not in names
        )
    )


def complete(ad: ClassAd) -> ClassAd:
    """The ad with `Requirements`: where it has none, its `AuthorizationCheck` and `CloseOutputSECheck`, if present."""
    if ad.get("Requirements") is not None:
        return ad
    return ClassAd((*ad.attributes, ("Requirements", ce_requirements(ad))))


def _add(
    known: dict[str, tuple[str, Expression]], attributes: Mapping[str, Value], *, own: bool = False
) -> None:
    """Add attributes to the ad. `own`: names that Pilotage itself tells too."""
    for name, value in attributes.items():
        key = name.lower()
        if key in OWN_NAMES and not own:
            continue
        check = _EXPRESSIONS.get(key)
        if check is not None and isinstance(value, str):
            known[key] = (check, _check_of(value))
        else:
            known[key] = (name, literal(value))


def _check_of(text: str) -> Expression:
    """A check of the policy. One that cannot be read lets nobody in."""
    try:
        return parse_expression(text)
    except InvalidInput:
        return Literal(ERROR)


def _published(ce: Ce, classes: Sequence[HostClass]) -> dict[str, tuple[str, Expression]]:
    """The attributes that the site publishes of its hosts by the forward table, if some host has them: undefined.

    A host without such an attribute does not have it, rather than one that is not known.
    """
    published = {key.lower() for host_class in classes for key in host_class.attributes}
    names = ce.forward_table.with_rules(ce.forward)
    return {name.lower(): (name, Literal(UNDEFINED)) for name in names if name.lower() in published}


def _host_ad(fixed: ClassAd, host_class: HostClass, missing: Mapping[str, tuple[str, Expression]]) -> HostAd:
    of_class: dict[str, tuple[str, Expression]] = {}
    _add(of_class, host_class.attributes)
    further = [item for key, item in {**missing, **of_class}.items() if key not in fixed.index]
    return HostAd(host_class.count, fixed.extended(further), host_class.hosts)


def _agreed(classes: Sequence[HostClass]) -> dict[str, Value]:
    """The attributes that all classes of hosts have with the same value."""
    if not classes:
        return {}
    others = [{name.lower(): value for name, value in known.attributes.items()} for known in classes[1:]]
    return {
        name: value
        for name, value in classes[0].attributes.items()
        if all(_is_same(other.get(name.lower()), value) for other in others)
    }


def _is_same(one: Value | None, other: Value) -> bool:
    """`1`, `1.0` and `true` are different values in a ClassAd."""
    return type(one) is type(other) and one == other


def _complete_checks(known: dict[str, tuple[str, Expression]]) -> None:
    """Add the checks of the document where their lists are known, and Requirements."""
    if "gluecesebindgroupseuniqueid" in known:
        known.setdefault("closeoutputsecheck", ("CloseOutputSECheck", _CLOSE_OUTPUT))
    if "glueceaccesscontrolbaserule" in known:
        known.setdefault("authorizationcheck", ("AuthorizationCheck", _AUTHORIZATION))
    completed = complete(ClassAd(tuple(known.values())))
    known.setdefault("requirements", ("Requirements", completed.index["requirements"]))
