"""The rules of a forward table: how a batch system says a condition over one attribute of a host.

A rule is a short text of the policy, such as `feature si00_{}`. `parse_rule` has the whole syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pilotage.core.classads.partial import Kind
from pilotage.core.errors import InvalidInput
from pilotage.core.glue.information import Value

WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:=-]{0,99}")
"""A value or name that may stand in a native flag. It has no operators, quotes, separators or shell characters."""

ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
RELATIONS: Final = ("<=", "<", "==", ">=", ">")
VALUE_TYPES: Final = ("integer", "real", "megabytes", "string", "cstring", "restring")

FORMS: Final = (
    "feature NAME_{}",
    "feature NAME",
    "complex NAME RELATION [TYPE]",
    "option --NAME",
    "attribute NAME",
    "wall",
    "none",
)


@dataclass(frozen=True, slots=True)
class FeatureRule:
    """Each host has a feature that carries the value: `si00_{}` for 600 is `si00_600`.

    Without `{}` the feature means true, and its absence false.
    """

    pattern: str

    @property
    def carries_value(self) -> bool:
        return "{}" in self.pattern

    def feature(self, value: Value) -> str | None:
        """The feature of a host with this value; None: no feature can carry it."""
        if not self.carries_value:
            return self.pattern if value is True else None
        text = value_text(value)
        name = None if text is None else self.pattern.replace("{}", text)
        return name if name is not None and WORD.fullmatch(name) else None

    def value(self, feature: str, kind: Kind) -> Value | None:
        """The value that a feature carries; None: it is another feature."""
        if not self.carries_value:
            return True if feature == self.pattern else None
        before, _, after = self.pattern.partition("{}")
        inner = feature[len(before) : len(feature) - len(after)]
        if not inner or before + inner + after != feature or len(feature) < len(before) + len(after) + 1:
            return None
        value = _value_of_text(inner, kind)
        return value if value is not None and self.feature(value) == feature else None


@dataclass(frozen=True, slots=True)
class ComplexRule:
    """A resource of hosts that jobs request; Grid Engine calls it a complex.

    A host is accepted if `request RELATION value` holds.
    """

    name: str
    relation: str
    type: str = "integer"


@dataclass(frozen=True, slots=True)
class OptionRule:
    """An option of the adapter that sets a lower bound of an integer."""

    option: str


@dataclass(frozen=True, slots=True)
class AttributeRule:
    """The attribute NAME of a machine, for a batch system that reads ClassAds itself: it has the same value."""

    name: str


@dataclass(frozen=True, slots=True)
class WallRule:
    """A bound on the longest wall time in seconds. The pilot's own time limit already asks for it."""


Rule: TypeAlias = FeatureRule | ComplexRule | OptionRule | AttributeRule | WallRule


def parse_rule(text: str) -> Rule | None:
    """The rule of a text; None for `none`: the attribute is never forwarded. `InvalidInput` for other texts."""
    match text.split():
        case ["none"]:
            return None
        case ["wall"]:
            return WallRule()
        case ["feature", pattern]:
            return _feature_rule(pattern)
        case ["complex", name, relation]:
            return _complex_rule(name, relation, "integer")
        case ["complex", name, relation, type_]:
            return _complex_rule(name, relation, type_)
        case ["option", option]:
            return OptionRule(option)
        case ["attribute", name] if ATTRIBUTE.fullmatch(name):
            return AttributeRule(name)
    raise InvalidInput(f"{text!r} is no forward rule", hint=f"rules: {', '.join(FORMS)}")


def _feature_rule(pattern: str) -> FeatureRule:
    if pattern.count("{}") > 1 or not WORD.fullmatch(pattern.replace("{}", "0")):
        hint = "letters, digits and `_.:=-`, with `{}` once at most in the place of the value"
        raise InvalidInput(f"{pattern!r} is no pattern of a feature", hint=hint)
    return FeatureRule(pattern)


def _complex_rule(name: str, relation: str, type_: str) -> ComplexRule:
    if not WORD.fullmatch(name) or "=" in name:
        raise InvalidInput(f"{name!r} is no name of a complex", hint="letters, digits and `_.:-`")
    if relation not in RELATIONS:
        hint = f"the relop of `qconf -sc`: {', '.join(RELATIONS)}"
        raise InvalidInput(f"{relation!r} is no relation of a complex", hint=hint)
    if type_ not in VALUE_TYPES:
        raise InvalidInput(f"{type_!r} is no type of a complex", hint=f"types: {', '.join(VALUE_TYPES)}")
    if (type_ in ("string", "cstring", "restring")) != (relation == "==") and type_ != "integer":
        raise InvalidInput(
            f"a complex of type {type_} cannot have the relation {relation}",
            hint="texts have the relation ==, megabytes and real numbers one of the others",
        )
    return ComplexRule(name, relation, type_)


def value_text(value: Value) -> str | None:
    """A value as native flags have it; None: it cannot stand there. Equal values have equal texts."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
        return text if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) else None
    return value if isinstance(value, str) and WORD.fullmatch(value) else None


def _value_of_text(text: str, kind: Kind) -> Value | None:
    if kind in (Kind.STRING, Kind.STRINGS):
        return text
    if kind is Kind.BOOLEAN:
        return {"true": True, "false": False}.get(text)
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if kind in (Kind.INTEGER, Kind.QUANTITY):
        return None
    if re.fullmatch(r"-?[0-9]{1,18}\.[0-9]{1,18}", text):
        return float(text)
    return text if kind is Kind.ANY else None


def values_of_features(
    features: Iterable[str], rules: Mapping[str, Rule], kinds: Mapping[str, Kind]
) -> tuple[dict[str, Value], list[str]]:
    """The attributes that the features of a host carry, and problems such as two values of one attribute.

    `rules`: by attribute; `kinds`: by attribute in lower case. An attribute with a problem is left out.
    """
    names = sorted(set(features))
    values: dict[str, Value] = {}
    problems: list[str] = []
    for attribute, rule in rules.items():
        if not isinstance(rule, FeatureRule) or rule.pattern == "{}":
            continue  # The attribute of the pattern `{}` is the list of all features itself.
        kind = kinds.get(attribute.lower(), Kind.ANY)
        carried = {name: value for name in names if (value := rule.value(name, kind)) is not None}
        if not rule.carries_value:
            values[attribute] = bool(carried)
        elif kind is Kind.STRINGS:
            values[attribute] = tuple(str(value) for value in carried.values())
        elif len(carried) > 1:
            problems.append(f"{attribute} has several values: features {', '.join(carried)}")
        elif carried:
            [values[attribute]] = carried.values()
    return values, problems
