"""Restrictions of hosts in native terms, their text as flags, and a model of the hosts that they accept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from pilotage.core.forwarding.rules import ComplexRule, FeatureRule, OptionRule, Rule
from pilotage.core.forwarding.table import FlagSyntax, ForwardTable
from pilotage.core.glue.information import Value

MAX_FEATURES = 200
"""Names of features in one flag."""


@dataclass(frozen=True)
class FeatureGroups:
    """A host is accepted if it has all features of at least one group."""

    groups: tuple[tuple[str, ...], ...]

    @cached_property
    def is_flat(self) -> bool:
        """Each group is a single feature."""
        return all(len(group) == 1 for group in self.groups)

    @cached_property
    def names(self) -> frozenset[str]:
        """The features of all groups."""
        return frozenset(name for group in self.groups for name in group)

    def accepts(self, features: frozenset[str]) -> bool:
        """Whether a host with these features is accepted."""
        if self.is_flat:
            return not self.names.isdisjoint(features)
        return any(features.issuperset(group) for group in self.groups)


@dataclass(frozen=True, slots=True)
class BoundRequest:
    """A request of a complex or an option: a number, or texts of which a host has one."""

    attribute: str
    """In lower case."""
    rule: ComplexRule | OptionRule
    value: int | float | tuple[str, ...]

    @property
    def term(self) -> str:
        """The native name that the request is for. A batch system takes one request for each name."""
        return self.rule.name if isinstance(self.rule, ComplexRule) else self.rule.option


Restriction: TypeAlias = FeatureGroups | BoundRequest

HostValues: TypeAlias = Mapping[str, Value]
"""The attributes of a host, by name in lower case."""


def features_of(host: HostValues, rules: Mapping[str, Rule]) -> frozenset[str]:
    """The features by which the rules (by attribute in lower case) carry the values of a host."""
    features = set()
    for attribute, rule in rules.items():
        if isinstance(rule, FeatureRule) and (value := host.get(attribute)) is not None:
            for single in value if isinstance(value, tuple) else (value,):
                if (feature := rule.feature(single)) is not None:
                    features.add(feature)
    return frozenset(features)


def accepts(restriction: Restriction, host: HostValues, features: frozenset[str]) -> bool:
    """Whether the batch system lets a job with this restriction use a host with these features."""
    if isinstance(restriction, FeatureGroups):
        return restriction.accepts(features)
    value = host.get(restriction.attribute)
    if isinstance(restriction.value, tuple):
        texts = restriction.value
        if not isinstance(value, str):
            return False
        if isinstance(restriction.rule, ComplexRule) and restriction.rule.type == "cstring":
            return value.lower() in {text.lower() for text in texts}
        return value in texts
    if isinstance(restriction.value, bool) or isinstance(value, bool):
        return restriction.value is value
    if not isinstance(value, int | float):
        return False
    relation = restriction.rule.relation if isinstance(restriction.rule, ComplexRule) else "<="
    return compare(restriction.value, relation, value)


def compare(request: float, relation: str, value: float) -> bool:
    """Whether `request RELATION value` holds: the order in which Grid Engine compares."""
    return {
        "<=": request <= value,
        "<": request < value,
        "==": request == value,
        ">=": request >= value,
        ">": request > value,
    }[relation]


def combined_features(parts: Sequence[FeatureGroups]) -> FeatureGroups | None:
    """One restriction that accepts the hosts that all `parts` accept; None: it would have too many names."""
    groups: list[tuple[str, ...]] = [()]
    for part in parts:
        groups = [tuple(dict.fromkeys((*before, *group))) for before in groups for group in part.groups]
        if sum(map(len, groups)) > MAX_FEATURES:
            return None
    return FeatureGroups(tuple(dict.fromkeys(groups)))


def feature_text(parts: Sequence[FeatureGroups], own: str) -> str | None:
    """The value of the feature option: all of `parts`, and `own`, the features that the policy asks for.

    None: they cannot be combined in one text of the same meaning. Slurm 22.05 reads `&` and `|` from left to right
    with equal precedence. It allows parentheses of one level only, and takes the last of two options.
    """
    if sum(len(group) for part in parts for group in part.groups) > MAX_FEATURES:
        return None
    plain_and = not re.search(r"[^A-Za-z0-9_.:=&,-]", own)
    if any(not part.is_flat for part in parts):
        single = combined_features(parts)
        if single is None or not plain_and:
            return None
        before = [name for name in re.split("[&,]", own) if name]
        texts = ["&".join(dict.fromkeys((*before, *group))) for group in single.groups]
        return texts[0] if len(texts) == 1 else "|".join(f"({text})" for text in texts)
    texts = [*([own] if own else []), *("|".join(group[0] for group in part.groups) for part in parts)]
    if len(texts) == 1:
        return texts[0]
    factors = [factor for text in texts if (factor := as_factor(text)) is not None]
    return "&".join(factors) if len(factors) == len(texts) else None


def as_factor(text: str) -> str | None:
    """A text of features in a form that `&` may join with others; None: it has no such form."""
    if _is_product(text):
        return text
    return None if re.search(r"[][*()]", text) else f"({text})"


def _is_product(text: str) -> bool:
    """Whether a text is names and flat parentheses that only `&` joins."""
    name = r"[A-Za-z0-9_.:=-]+"
    factor = rf"(?:{name}|\({name}(?:[|&]{name})*\))"
    return re.fullmatch(rf"{factor}(?:[&,]{factor})*", text) is not None


_UNITS = {FlagSyntax.LISTS: "M", FlagSyntax.CHUNK: "mb", FlagSyntax.SELECTION: "MB"}
"""How megabytes are written."""


def bound_text(request: BoundRequest, syntax: FlagSyntax = FlagSyntax.LISTS) -> str:
    """The value of a request in the form of its type."""
    value = request.value
    if isinstance(value, tuple):
        return "|".join(value)
    if isinstance(value, bool):
        if syntax is FlagSyntax.CHUNK:
            return str(value)
        return "true" if value else "false"
    if isinstance(request.rule, ComplexRule) and request.rule.type == "megabytes":
        return f"{value}{_UNITS[syntax]}"
    return str(value) if isinstance(value, int) else f"{value:.12g}"


def render(
    restrictions: Iterable[Restriction], table: ForwardTable, own_features: str
) -> tuple[str, ...] | None:
    """The flags for all restrictions; None: no combination of flags has this meaning."""
    restrictions = tuple(restrictions)
    features = [restriction for restriction in restrictions if isinstance(restriction, FeatureGroups)]
    bounds = [restriction for restriction in restrictions if isinstance(restriction, BoundRequest)]
    if table.syntax is FlagSyntax.SELECTION:
        return _selection(features, bounds, table)
    flags: list[str] = []
    if features:
        written = _properties if table.syntax is FlagSyntax.PROPERTIES else _constraint
        if (words := written(features, table, own_features)) is None:
            return None
        flags += words
    requests = [
        f"{bound.term}={bound_text(bound, table.syntax)}"
        for bound in bounds
        if isinstance(bound.rule, ComplexRule)
    ]
    if requests:
        flags += [table.complex_option, (":" if table.syntax is FlagSyntax.CHUNK else ",").join(requests)]
    for bound in bounds:
        if isinstance(bound.rule, OptionRule):
            flags.append(f"{bound.rule.option}={bound_text(bound)}{table.options[bound.rule.option].unit}")
    return tuple(flags)


def _constraint(parts: Sequence[FeatureGroups], table: ForwardTable, own: str) -> list[str] | None:
    text = feature_text(parts, own)
    return None if text is None else [f"{table.feature_option}={text}"]


def _properties(parts: Sequence[FeatureGroups], table: ForwardTable, own: str) -> list[str] | None:
    """All features, with the features of the policy; None: one of several would be enough."""
    single = combined_features(parts)
    if single is None or len(single.groups) != 1:
        return None
    names = dict.fromkeys([*(name for name in own.split(":") if name), *single.groups[0]])
    return [table.feature_option, ":".join(names)]


_INVERSE = {"<=": ">=", "<": ">", "==": "==", ">=": "<=", ">": "<"}
"""The relation of `value RELATION request` for each `request RELATION value`."""


def _selection(
    features: Sequence[FeatureGroups], bounds: Sequence[BoundRequest], table: ForwardTable
) -> tuple[str, ...] | None:
    """One expression for everything. The selection of the policy stands in an option of its own."""
    if sum(len(group) for part in features for group in part.groups) > MAX_FEATURES:
        return None
    terms = [_any_of(["&&".join(group) for group in part.groups]) for part in features]
    for bound in bounds:
        relation = _INVERSE[bound.rule.relation] if isinstance(bound.rule, ComplexRule) else ">="
        values = bound.value if isinstance(bound.value, tuple) else (bound_text(bound, table.syntax),)
        if isinstance(bound.value, bool):
            terms.append(bound.term if bound.value else f"!{bound.term}")
        else:
            terms.append(_any_of([f"{bound.term}{relation}{value}" for value in values]))
    return (table.feature_option, f"select[{'&&'.join(terms)}]") if terms else ()


def _any_of(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return f"({'||'.join(f'({text})' if '&&' in text else text for text in texts)})"
