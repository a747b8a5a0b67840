"""The residual of a requirement as flags of a batch system, and the part that no flag says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from pilotage.core.classads import Expression, Literal, Logic
from pilotage.core.classads.partial import Kind, can_be_true
from pilotage.core.classads.tree import conjuncts
from pilotage.core.forwarding.conditions import ForwardingFacts, Mapped, attributes_of, map_part
from pilotage.core.forwarding.expressions import native_expression
from pilotage.core.forwarding.native import (
    BoundRequest,
    FeatureGroups,
    HostValues,
    Restriction,
    accepts,
    combined_features,
    render,
)
from pilotage.core.forwarding.rules import FeatureRule, Rule
from pilotage.core.forwarding.selection import select_hosts
from pilotage.core.forwarding.table import ForwardTable, HostSelection
from pilotage.core.glue.information import HostClass, Value

MAX_PARTS = 64
"""Parts of a residual that are looked at; the rest is left to the match."""

CANNOT_BE_TRUE = "the requirements cannot be true at this CE"
NO_HOST = "no known host of this CE satisfies the requirements"
INEXACT = "the flags would refuse hosts that fit"
NOT_COMBINED = "the batch system cannot combine these restrictions in its flags"


@dataclass(frozen=True, slots=True)
class CeTerms:
    """The native terms of one CE, and the settings that change how they are used."""

    table: ForwardTable
    rules: Mapping[str, Rule]
    """Rules by attribute in GLUE's spelling: `ForwardTable.with_rules`."""
    own_features: str = ""
    """Features that the policy asks for in each submission."""
    own_queue: str = ""
    """Queues that the policy asks for."""
    own_requests: frozenset[str] = frozenset()
    """Names of complexes that the policy asks for: of two requests for one name the last counts."""
    wall: float = 0.0
    """Seconds that each pilot asks for."""
    selects_hosts: bool = False
    """Names of hosts are passed instead of restrictions."""
    minima: Mapping[str, Value] = field(default_factory=dict)
    """The least values of attributes over the hosts of the CE, by name in lower case."""


@dataclass(frozen=True, slots=True)
class Forwarding:
    """The flags for one residual at one CE."""

    residual: Expression
    flags: tuple[str, ...] = ()
    unmapped: Expression | None = None
    """The part that the flags do not guarantee: only the match on a node's own offer decides it. None: nothing."""
    classes: tuple[HostClass, ...] = ()
    """The known host classes that the flags accept."""
    reason: str = ""
    """Why nothing can be submitted; empty: pilots may be submitted."""
    notes: tuple[str, ...] = ()
    """Why parts are unmapped, as far as there is more to say than the lack of a rule."""

    @property
    def is_possible(self) -> bool:
        return not self.reason


def forward(
    residual: Expression,
    terms: CeTerms,
    host_classes: Sequence[HostClass] = (),
    kinds: Mapping[str, Kind] = {},
) -> Forwarding:
    """The flags that accept exactly the known hosts on which `residual` is true, as far as flags can say it.

    Flags never refuse a known host on which it is true. They accept others only where `unmapped` says so.
    `kinds`: by attribute in lower case.
    """
    if isinstance(residual, Literal):
        reason = "" if residual.value is True else CANNOT_BE_TRUE
        return Forwarding(residual, classes=() if reason else tuple(host_classes), reason=reason)
    if not can_be_true(residual, kinds):
        return Forwarding(residual, reason=CANNOT_BE_TRUE)
    rules = {name.lower(): rule for name, rule in terms.rules.items()}
    hosts: list[HostValues] = [
        {name.lower(): value for name, value in host_class.attributes.items()} for host_class in host_classes
    ]
    facts = ForwardingFacts(rules, kinds, hosts, terms.wall, terms.minima)
    truths = [facts.holds(residual, host) for host in hosts]
    if hosts and all(truth is False for truth in truths):
        return Forwarding(residual, reason=NO_HOST)
    if terms.table.is_empty:
        return Forwarding(residual, unmapped=residual, classes=tuple(host_classes))
    if terms.table.expression_option:
        return _expressed(residual, terms, facts, host_classes)
    notes: tuple[str, ...] = ()
    if terms.selects_hosts:
        selected = _selected(residual, terms, host_classes, truths)
        if not selected.notes:
            return selected
        notes = selected.notes
    return _restricted(residual, terms, facts, host_classes, truths, notes)


def forward_explicit(
    explicit: Expression,
    rest: Expression,
    terms: CeTerms,
    host_classes: Sequence[HostClass] = (),
    kinds: Mapping[str, Kind] = {},
) -> Forwarding:
    """The flags for `explicit` alone. `rest` must also be true, and is left to the match as a whole."""
    both = forward(rest, replace(terms, table=ForwardTable(), selects_hosts=False), host_classes, kinds)
    made = forward(explicit, terms, host_classes, kinds)
    if not both.is_possible or isinstance(rest, Literal):
        return made if both.is_possible else both
    unmapped = _conjunction([part for part in (made.unmapped, rest) if part is not None])
    return replace(made, residual=_conjunction([explicit, rest]) or rest, unmapped=unmapped)


def _expressed(
    residual: Expression, terms: CeTerms, facts: ForwardingFacts, host_classes: Sequence[HostClass]
) -> Forwarding:
    """The parts that the batch system can evaluate itself, as one expression. Conditionals stay whole."""
    texts, unmapped = list[str](), list[Expression]()
    accepted = [True] * len(facts.hosts)
    for number, part in enumerate(conjuncts(residual)):
        text = native_expression(part, facts.rules) if number < MAX_PARTS else None
        if text is None:
            unmapped.append(part)
        else:
            texts.append(f"({text})")
            accepted = [
                known and facts.holds(part, host) is not False
                for known, host in zip(accepted, facts.hosts, strict=True)
            ]
    flags = (f"{terms.table.expression_option}={' && '.join(texts)}",) if texts else ()
    return Forwarding(residual, flags, _conjunction(unmapped), tuple(compress(host_classes, accepted)))


def _selected(
    residual: Expression,
    terms: CeTerms,
    host_classes: Sequence[HostClass],
    truths: Sequence[bool | None],
) -> Forwarding:
    """The names of the hosts that fit as flags; without flags, the notes say why names cannot be passed."""
    fitting = list(compress(host_classes, (truth is not False for truth in truths)))
    others = list(compress(host_classes, (truth is False for truth in truths)))
    flags, problem = select_hosts(terms.table, fitting, others, terms.own_queue)
    unmapped = residual if None in truths else None
    return Forwarding(residual, flags, unmapped, tuple(fitting), notes=(problem,) if problem else ())


def _restricted(
    residual: Expression,
    terms: CeTerms,
    facts: ForwardingFacts,
    host_classes: Sequence[HostClass],
    truths: Sequence[bool | None],
    notes: tuple[str, ...],
) -> Forwarding:
    """The native restrictions of each part of a residual, checked against the known hosts.

    `truths`: of the residual on each class; None: not decided. `notes`: why names of hosts could not be passed.
    """
    parts = _by_attribute(list(conjuncts(residual)), facts)
    restrictions, unmapped = list[Restriction](), list[Expression]()
    for number, part in enumerate(parts):
        mapped = map_part(part, facts) if number < MAX_PARTS else None
        if mapped is not None and _repeats(mapped, terms.own_requests):
            mapped = None
        if mapped is None or not _add(restrictions, mapped) or not mapped.is_exact:
            unmapped.append(part)
    accepted = [_accepted(restrictions, host, facts.features_of(host)) for host in facts.hosts]
    outcomes = set(zip(truths, accepted, strict=True))
    refuses_fitting = (True, False) in outcomes or (None, False) in outcomes
    flags = None if refuses_fitting else render(restrictions, terms.table, terms.own_features)
    if flags is None:
        problem = INEXACT if refuses_fitting else NOT_COMBINED
        return Forwarding(residual, (), residual, tuple(host_classes), notes=(*notes, problem))
    # A guard: flags that are looser than their mapping says never pass as exact.
    if (False, True) in outcomes and not unmapped:
        unmapped = parts
    classes = tuple(compress(host_classes, accepted))
    return Forwarding(residual, flags, _conjunction(unmapped), classes, notes=notes)


def _accepted(restrictions: Iterable[Restriction], host: HostValues, features: frozenset[str]) -> bool:
    return all(accepts(restriction, host, features) for restriction in restrictions)


def _add(restrictions: list[Restriction], mapped: Mapped) -> bool:
    """Add the restrictions of a part; False: no request says them and the earlier restrictions together."""
    added = list(restrictions)
    for restriction in mapped.restrictions:
        if isinstance(restriction, FeatureGroups):
            if restriction in added:
                continue
            if not _fits_beside(added, restriction):
                return False
            added.append(restriction)
            continue
        place = next((i for i, known in enumerate(added) if _is_for(known, restriction.term)), None)
        if place is None:
            added.append(restriction)
            continue
        both = _tighter(added[place], restriction)
        if both is None:
            return False
        added[place] = both
    restrictions[:] = added
    return True


def _repeats(mapped: Mapped, own_requests: frozenset[str]) -> bool:
    """Whether a restriction would replace a request of the policy."""
    return any(
        isinstance(restriction, BoundRequest) and restriction.term in own_requests
        for restriction in mapped.restrictions
    )


def _fits_beside(restrictions: Iterable[Restriction], added: FeatureGroups) -> bool:
    features = [known for known in restrictions if isinstance(known, FeatureGroups)]
    return combined_features([*features, added]) is not None or added.is_flat


def _is_for(restriction: Restriction, term: str) -> bool:
    return isinstance(restriction, BoundRequest) and restriction.term == term


def _tighter(known: Restriction, added: BoundRequest) -> BoundRequest | None:
    """The request that accepts the hosts of both; None: there is none."""
    if not isinstance(known, BoundRequest) or known.rule != added.rule or known.attribute != added.attribute:
        return None
    if isinstance(known.value, tuple) or isinstance(added.value, tuple):
        return known if known == added else None
    relation = getattr(known.rule, "relation", "<=")
    if relation == "==":
        return known if known.value == added.value else None
    pick = max if relation in ("<=", "<") else min
    return BoundRequest(known.attribute, known.rule, pick(known.value, added.value))


def _by_attribute(parts: Sequence[Expression], facts: ForwardingFacts) -> list[Expression]:
    """The parts, where all parts over one attribute that features carry are a single part."""
    together: dict[object, list[Expression]] = {}
    for number, part in enumerate(parts):
        names = attributes_of(part)
        name = next(iter(names)) if len(names) == 1 else ""
        is_feature = isinstance(facts.rules.get(name), FeatureRule)
        together.setdefault(name if is_feature else number, []).append(part)
    return [group[0] if len(group) == 1 else Logic("&&", tuple(group)) for group in together.values()]


def _conjunction(parts: Sequence[Expression]) -> Expression | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Logic("&&", tuple(parts))


def selects_hosts(table: ForwardTable, wish: str) -> bool:
    """Whether names of hosts are passed, by the policy's `host_selection`."""
    return wish == "match" and table.selection is not HostSelection.NONE
