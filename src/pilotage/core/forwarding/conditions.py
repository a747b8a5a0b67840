"""One part of a residual as restrictions in native terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, floor, isfinite

from pilotage.core.classads import UNDEFINED, ClassAd, Expression, Literal, evaluate, references
from pilotage.core.classads.functions_basic import is_steady
from pilotage.core.classads.partial import HostCondition, Kind, can_be_true, host_conditions, residual
from pilotage.core.forwarding.native import (
    BoundRequest,
    FeatureGroups,
    HostValues,
    Restriction,
    accepts,
    compare,
    features_of,
)
from pilotage.core.forwarding.rules import (
    AttributeRule,
    ComplexRule,
    FeatureRule,
    OptionRule,
    Rule,
    WallRule,
    value_text,
)
from pilotage.core.glue.information import Value, literal, number_of

_EQUAL = ("==", "=?=")
_UNDEFINED = Literal(UNDEFINED)


@dataclass(frozen=True, eq=False)
class ForwardingFacts:
    """The hosts of a CE and the terms of its batch system, as far as one forwarding needs them."""

    rules: Mapping[str, Rule]
    """Rules by attribute in lower case."""
    kinds: Mapping[str, Kind]
    """Kinds by attribute in lower case."""
    hosts: Sequence[HostValues]
    """One for each class of hosts; empty: the hosts are not known."""
    wall: float = 0.0
    """Seconds that each pilot asks for."""
    minima: HostValues = field(default_factory=dict)
    """The least values at the CE: they hold on hosts that do not tell the value of an attribute with a rule."""

    _truths: dict[tuple[object, ...], bool | None] = field(default_factory=dict)
    """Answers of `holds` by part and values. Many classes of hosts have equal values."""
    _parts: dict[int, tuple[Expression, list[str], bool]] = field(default_factory=dict)
    """The part, which keeps its identity its own, its attributes, and whether it is steady; by identity of the part."""
    _features: dict[int, frozenset[str]] = field(default_factory=dict)
    """Answers of `features_of` by identity of the host."""

    @cached_property
    def published(self) -> frozenset[str]:
        """The attributes with a rule that some host has."""
        return frozenset(name for host in self.hosts for name in host if name in self.rules)

    def features_of(self, host: HostValues) -> frozenset[str]:
        """The features that carry the values of one of `hosts`."""
        features = self._features.get(id(host))
        if features is None:
            features = self._features[id(host)] = features_of(host, self.rules)
        return features

    def holds(self, part: Expression, host: HostValues) -> bool | None:
        """Whether an expression is true on a host; None: it depends on attributes that are not known there.

        An attribute with a rule that some known host has is known everywhere: the others do not have it.
        """
        if id(part) not in self._parts:
            self._parts[id(part)] = part, sorted(attributes_of(part)), is_steady(part)
        _, names, steady = self._parts[id(part)]
        values = tuple((name, type(host[name]), host[name]) for name in names if name in host)
        key = (id(part), values)
        if key not in self._truths:
            known = {name: literal(value) for name, _, value in values}
            for name in names:
                if name in self.published and name not in host:
                    known[name] = literal(self.minima[name]) if name in self.minima else _UNDEFINED
            ad = ClassAd(tuple(known.items()))
            self._truths[key] = _truth(part, ad, self.kinds, can_evaluate=steady and len(known) == len(names))
        return self._truths[key]


@dataclass(frozen=True, slots=True)
class Mapped:
    """The native terms for one part of a residual."""

    restrictions: tuple[Restriction, ...] = ()
    is_exact: bool = True
    """False: hosts are accepted for which the part is not true."""


def attributes_of(part: Expression) -> frozenset[str]:
    """The attributes that an expression refers to, in lower case."""
    return frozenset(reference.name for reference in references(part))


def _truth(part: Expression, host: ClassAd, kinds: Mapping[str, Kind], *, can_evaluate: bool) -> bool | None:
    """`can_evaluate`: no attribute of the part is unknown, so a plain evaluation tells its truth."""
    if can_evaluate:
        return evaluate(part, my=None, target=host) is True
    left = residual(part, None, host, kinds)
    if isinstance(left, Literal):
        return left.value is True
    return None if can_be_true(left, kinds) else False


def map_part(part: Expression, facts: ForwardingFacts) -> Mapped | None:
    """The native terms for a part; None: no flag says anything of it."""
    names = attributes_of(part)
    rules = {name: facts.rules[name] for name in sorted(names) if name in facts.rules}
    if len(names) == 1 and len(rules) == 1:
        [(name, rule)] = rules.items()
        conditions = host_conditions(part, facts.kinds)
        return _SingleMapper(part, name, facts, conditions).map(rule)
    if not facts.hosts:
        return None
    truths = [facts.holds(part, host) for host in facts.hosts]
    features = {name: rule for name, rule in rules.items() if isinstance(rule, FeatureRule)}
    if features and len(features) == len(names):
        return _by_classes(truths, features, facts, is_exact=True)
    return _by_distinct_classes(truths, facts) or _by_classes(truths, features, facts, is_exact=False)


def _by_distinct_classes(truths: Sequence[bool | None], facts: ForwardingFacts) -> Mapped | None:
    """The features that tell the host classes that fit from all others, although they carry other attributes.

    None: some class is not decided, or has the features of one that does not fit.
    """
    if None in truths:
        return None
    rules = {name: rule for name, rule in facts.rules.items() if isinstance(rule, FeatureRule)}
    for chosen in (*({name: rule} for name, rule in rules.items()), rules):
        mapped = _by_classes(truths, chosen, facts, is_exact=True)
        if mapped is not None and not any(
            accepts(mapped.restrictions[0], host, facts.features_of(host))
            for truth, host in zip(truths, facts.hosts, strict=True)
            if truth is False
        ):
            return mapped
    return None


def _by_classes(
    truths: Sequence[bool | None], rules: Mapping[str, FeatureRule], facts: ForwardingFacts, *, is_exact: bool
) -> Mapped | None:
    """The combinations of features of the host classes on which a part can be true. `truths`: by class."""
    groups: dict[tuple[str, ...], None] = {}
    for truth, host in zip(truths, facts.hosts, strict=True):
        if truth is not False:
            group: list[str] = []
            for name, rule in sorted(rules.items()):
                value = host.get(name)
                singles = value if isinstance(value, tuple) else () if value is None else (value,)
                group += [feature for single in singles if (feature := rule.feature(single)) is not None]
            if not group:
                return None
            groups[tuple(group)] = None
    return Mapped((FeatureGroups(tuple(groups)),), is_exact) if groups else None


class _SingleMapper:
    """Maps a part over a single attribute."""

    def __init__(
        self,
        part: Expression,
        name: str,
        facts: ForwardingFacts,
        conditions: tuple[tuple[HostCondition, ...], ...] | None,
    ) -> None:
        self._part, self._name, self._facts = part, name, facts
        self._kind = facts.kinds.get(name, Kind.ANY)
        self._conditions = conditions
        self._values = _distinct(value for host in facts.hosts if (value := host.get(name)) is not None)
        self._fitting = [value for value in self._values if facts.holds(part, {name: value})]

    def map(self, rule: Rule) -> Mapped | None:
        match rule:
            case FeatureRule():
                return self._features(rule)
            case WallRule():
                return self._wall()
            case AttributeRule():
                return None  # Expressions say it: core/forwarding/expressions.py.
            case OptionRule():
                return self._bound(rule, "<=", is_integer=True)
            case ComplexRule(type="string" | "cstring" | "restring"):
                return self._texts(rule)
            case ComplexRule(relation="=="):
                return self._number(rule)
            case ComplexRule(relation=relation, type=type_):
                return self._bound(rule, relation, is_integer=type_ != "real")

    def _single_conditions(self) -> list[HostCondition] | None:
        """The conditions of a disjunction of single ones; None: the part is of another form."""
        if self._conditions is None or any(len(conjunction) != 1 for conjunction in self._conditions):
            return None
        return [condition for (condition,) in self._conditions]

    def _features(self, rule: FeatureRule) -> Mapped | None:
        if not self._values:
            return self._unseen_features(rule)
        if any(isinstance(value, tuple) for value in self._values):
            return self._member_features(rule)
        if not rule.carries_value and False in self._fitting:
            return None
        names = [rule.feature(value) for value in self._fitting]
        if not names or any(name is None for name in names):
            return None
        return Mapped((FeatureGroups(tuple((name,) for name in names if name is not None)),))

    def _unseen_features(self, rule: FeatureRule) -> Mapped | None:
        """Features for values that no known host has shown: only where the text of the value is certain."""
        conditions = self._single_conditions()
        if conditions is None or self._facts.hosts:
            return None
        names = []
        for condition in conditions:
            value = condition.value
            exact = condition.operator == "=?=" or not (
                isinstance(value, str) and value.lower() != value.upper()
            )
            if condition.operator not in (*_EQUAL, "member") or not exact:
                return None
            if (name := rule.feature(value)) is None:
                return None
            names.append(name)
        return Mapped((FeatureGroups(tuple((name,) for name in dict.fromkeys(names))),)) if names else None

    def _member_features(self, rule: FeatureRule) -> Mapped | None:
        """Features of a list: one for each member that the part accepts."""
        conditions = self._single_conditions()
        if conditions is None or any(condition.operator != "member" for condition in conditions):
            return None
        members = _distinct(member for value in self._values if isinstance(value, tuple) for member in value)
        fitting = [
            member for member in members if self._facts.holds(self._part, {self._name: (str(member),)})
        ]
        names = [rule.feature(member) for member in fitting]
        if not names or any(name is None for name in names):
            return None
        return Mapped((FeatureGroups(tuple((name,) for name in names if name is not None)),))

    def _wall(self) -> Mapped | None:
        """The pilot's time limit asks for a place with this wall time, so a smaller bound needs no flag."""
        conditions = self._single_conditions()
        if conditions is None or len(conditions) != 1:
            return None
        [condition] = conditions
        value = condition.value
        if isinstance(value, bool | str) or condition.operator not in (">", ">="):
            return None
        enough = self._facts.wall > value if condition.operator == ">" else self._facts.wall >= value
        return Mapped() if enough else None

    def _bound(self, rule: ComplexRule | OptionRule, relation: str, *, is_integer: bool) -> Mapped | None:
        if self._kind in (Kind.STRING, Kind.STRINGS, Kind.BOOLEAN):
            return None
        conditions = self._single_conditions()
        if conditions is not None and len(conditions) == 1:
            request = _bound_of(conditions[0], relation, is_integer=is_integer)
            if request is not None:
                value, is_exact = request
                if isinstance(rule, OptionRule) and value <= 0:
                    return None  # Batch systems refuse such a bound.
                return Mapped((BoundRequest(self._name, rule, value),), is_exact)
        return self._bound_of_values(rule, relation)

    def _bound_of_values(self, rule: ComplexRule | OptionRule, relation: str) -> Mapped | None:
        """The bound that accepts exactly the known values that fit."""
        numbers = [number for value in self._fitting if (number := number_of(value)) is not None]
        if not numbers or len(numbers) != len(self._fitting) or relation in ("<", ">"):
            return None
        value = min(numbers) if relation == "<=" else max(numbers)
        if isinstance(rule, OptionRule) and value <= 0:
            return None
        unfit = [
            number for number in self._values if number not in numbers and isinstance(number, int | float)
        ]
        if any(compare(value, relation, number) for number in unfit):
            return None
        return Mapped((BoundRequest(self._name, rule, value),))

    def _number(self, rule: ComplexRule) -> Mapped | None:
        if len(self._fitting) == 1:
            [value] = self._fitting
        elif not self._values and (conditions := self._single_conditions()) and len(conditions) == 1:
            value = conditions[0].value
            if conditions[0].operator not in _EQUAL:
                return None
        else:
            return None
        if isinstance(value, str | tuple) or (isinstance(value, bool) and not self._values):
            # Without a known value the complex may be a number.
            return None
        return Mapped((BoundRequest(self._name, rule, value),))

    def _texts(self, rule: ComplexRule) -> Mapped | None:
        if self._values:
            texts = [value for value in self._fitting if isinstance(value, str)]
        else:
            conditions = self._single_conditions() or []
            wanted = ("==",) if rule.type == "cstring" else ("=?=",)
            if not conditions or any(condition.operator not in wanted for condition in conditions):
                return None
            texts = [condition.value for condition in conditions if isinstance(condition.value, str)]
            if len(texts) != len(conditions):
                return None
        if not texts or (len(texts) > 1 and rule.type != "restring"):
            return None
        if any(value_text(text) is None for text in texts):
            return None
        return Mapped((BoundRequest(self._name, rule, tuple(texts)),))


def _distinct(values: Iterable[Value]) -> list[Value]:
    """The values in a fixed order, each once. `1`, `1.0` and `true` are told apart."""
    distinct = {(type(value).__name__, value): value for value in values}
    return [distinct[key] for key in sorted(distinct, key=lambda key: (key[0], key[1]))]


def _bound_of(
    condition: HostCondition, relation: str, *, is_integer: bool
) -> tuple[int | float, bool] | None:
    """The request for one condition, and whether it is exact; None: a request would refuse hosts that fit."""
    operator, value = condition.operator, condition.value
    if isinstance(value, bool | str) or not isfinite(value):
        return None
    is_lower = relation in ("<=", "<")
    if operator in _EQUAL:
        request = _bound_of(
            HostCondition(condition.attribute, ">=" if is_lower else "<=", value),
            relation,
            is_integer=is_integer,
        )
        return None if request is None else (request[0], False)
    if operator not in ((">", ">=") if is_lower else ("<", "<=")):
        return None
    is_strict = operator in ("<", ">")
    if is_integer:
        if is_lower:
            first = floor(value) + 1 if is_strict else ceil(value)
            return (first if relation == "<=" else first - 1), True
        last = ceil(value) - 1 if is_strict else floor(value)
        return (last if relation == ">=" else last + 1), True
    if is_strict == (relation in ("<", ">")):
        return value, True
    return (value, False) if is_strict else None
