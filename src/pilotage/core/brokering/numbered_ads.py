"""Ads whose values have numbers, and the attributes that an expression refers to.

Equal values of these attributes give equal answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from pilotage.core.classads import Attribute, Call, ClassAd, Expression, ListOf, Literal
from pilotage.core.classads.functions_basic import VOLATILE
from pilotage.core.classads.tree import children

SCOPES: Final = frozenset({"my", "target", "other", "self", "parent", "root", "toplevel"})


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The names may be more than an evaluation reads, and never fewer."""

    names: frozenset[str] = frozenset()
    """In lower case, of both ads."""
    needs_whole_ad: bool = False
    """It uses an ad as a value, so any attribute may count."""
    is_volatile: bool = False
    """It calls `time` or `random`, so an answer holds for one evaluation."""


def dependencies_of(expression: Expression) -> Dependencies:
    """Attributes named anywhere in the expression, also behind a dot: an inner ad may pass them on outwards."""
    names: set[str] = set()
    needs_whole_ad = is_volatile = False
    stack: list[tuple[Expression, bool]] = [(expression, False)]
    while stack:
        node, is_base = stack.pop()
        if isinstance(node, Attribute):
            names.add(node.key)
            if node.base is not None:
                stack.append((node.base, True))
            elif node.key in SCOPES and not is_base:
                needs_whole_ad = True
            continue
        if isinstance(node, Call) and node.key in VOLATILE:
            is_volatile = True
        stack.extend((below, False) for below in children(node))
    return Dependencies(frozenset(names), needs_whole_ad, is_volatile)


CONSTANT: Final = Dependencies()
ABSENT: Final = 0
"""The number of an attribute that an ad does not define."""


class ValueNumbers:
    """Gives equal expressions equal numbers. Several threads may use it. A number is never given to another value."""

    def __init__(self, most: int = 1_000_000) -> None:
        """`most`: values kept. All are dropped when there are more, and equal ads then share answers later."""
        self._most = most
        self._numbers: dict[Any, tuple[int, Dependencies]] = {}
        self._next = count(ABSENT + 1)

    def number(self, expression: Expression) -> tuple[int, Dependencies]:
        """The number of an expression, and the attributes that it refers to."""
        key = _key(expression)
        entry = self._numbers.get(key)
        if entry is None:
            needs = CONSTANT if is_constant(expression) else dependencies_of(expression)
            needs = CONSTANT if needs == CONSTANT else needs
            if len(self._numbers) >= self._most:
                self._numbers = {}
            # One thread's entry counts, whichever comes first.
            entry = self._numbers.setdefault(key, (next(self._next), needs))
        return entry


def _key(expression: Expression) -> Any:
    """A hashable value, equal for equal expressions only. Constants are the most frequent by far."""
    if type(expression) is Literal:
        value = expression.value
        return (float, repr(value)) if type(value) is float else (type(value), value)
    if is_constant(expression) and isinstance(expression, ListOf):
        return tuple([_key(item) for item in expression.items])
    return expression


def is_constant(expression: Expression) -> bool:
    """Whether it is a constant or a list of constants. Other constant expressions are found by their names."""
    if type(expression) is ListOf:
        return all(type(item) is Literal for item in expression.items)
    return type(expression) is Literal


@dataclass(frozen=True, slots=True, eq=False)
class NumberedAd:
    """An ad whose values have numbers."""

    ad: ClassAd
    numbers: Mapping[str, int]
    """The number of each value, by name in lower case."""
    dependencies: Mapping[str, Dependencies]
    """The names that each attribute refers to, if it is no constant."""

    @classmethod
    def of(cls, ad: ClassAd, values: ValueNumbers, like: NumberedAd | None = None) -> NumberedAd:
        """`like`: an ad that has many of the same expressions; their numbers are taken from there."""
        known = like.ad.index if like is not None else {}
        numbers: dict[str, int] = {}
        dependencies: dict[str, Dependencies] = {}
        for name, expression in ad.index.items():
            if like is not None and known.get(name) is expression:
                numbers[name] = like.numbers[name]
                if name in like.dependencies:
                    dependencies[name] = like.dependencies[name]
                continue
            numbers[name], needs = values.number(expression)
            if needs is not CONSTANT:
                dependencies[name] = needs
        return cls(ad, numbers, dependencies)


@dataclass(slots=True, eq=False)
class Part:
    """Its answers are kept by the names and values of both ads that count."""

    expression: Expression
    needs: Dependencies
    answers: dict[Any, Any] = field(default_factory=dict)


def own_key(requester: NumberedAd, needs: Dependencies) -> Any:
    """The values of a requester that count."""
    whole, names = needs.needs_whole_ad, needs.names
    return tuple([item for item in requester.numbers.items() if whole or item[0] in names])
