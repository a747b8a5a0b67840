"""Values of ads as numbers, and ads grouped by the values of some attributes.

Ads with equal values of all attributes that an expression refers to share one answer.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pilotage.core.brokering.dependencies import Dependencies, dependencies_of
from pilotage.core.classads import ClassAd, Expression, ListOf, Literal
from pilotage.core.classads.values import lower

CONSTANT: Final = Dependencies()
LISTS_AT_ONCE: Final = 32
"""Lists that are indexed between two pauses."""
ABSENT: Final = 0
"""The number of an attribute that an ad does not define."""

Places = NDArray[np.int64]


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
            needs = CONSTANT if _is_constant(expression) else dependencies_of(expression)
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
    if _is_constant(expression) and isinstance(expression, ListOf):
        return tuple([_key(item) for item in expression.items])
    return expression


def _is_constant(expression: Expression) -> bool:
    """Whether it is a constant or a list of constants. Other constant expressions are found by their names."""
    if type(expression) is ListOf:
        return all(type(item) is Literal for item in expression.items)
    return type(expression) is Literal


@dataclass(frozen=True, slots=True, eq=False)
class NumberedAd:
    """An ad whose values have numbers."""

    ad: ClassAd
    numbers: Mapping[str, int]
    """By name in lower case."""
    dependencies: Mapping[str, Dependencies]
    """Of attributes that are no constants."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Ads grouped by the values of some attributes."""

    names: tuple[str, ...]
    groups: Places
    """Of each ad, the place of its group in `keys`."""
    keys: Sequence[tuple[int, ...]]
    """Numbers of the values, in the order of `names`."""
    examples: Places
    """The place of one ad of each group."""


@dataclass(frozen=True, slots=True, eq=False)
class ListColumn:
    """An attribute that is a list of constants, or absent, in each ad."""

    is_list: NDArray[np.bool_]
    places: Mapping[str, Places]
    """By item in lower case: the ads whose list has it."""


@dataclass(slots=True, eq=False)
class AdColumns:
    """A fixed sequence of ads."""

    ads: Sequence[NumberedAd]
    _columns: dict[str, list[int]] = field(default_factory=dict)
    _groupings: dict[tuple[str, ...], Grouping] = field(default_factory=dict)
    _closures: dict[Dependencies, Dependencies] = field(default_factory=dict)
    _present: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    _formulas: dict[str, Mapping[int, Expression]] = field(default_factory=dict)
    _lists: dict[str, ListColumn | None] = field(default_factory=dict)
    _dependencies: dict[str, Dependencies] | None = None

    def column(self, name: str) -> list[int]:
        """The number of the value of an attribute in each ad."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = [ad.numbers.get(name, ABSENT) for ad in self.ads]
        return column

    def present(self, name: str) -> NDArray[np.bool_]:
        """Whether each ad defines an attribute."""
        present = self._present.get(name)
        if present is None:
            present = self._present[name] = np.array(self.column(name), dtype=np.int64) != ABSENT
        return present

    def defines(self, name: str) -> bool:
        """Whether any ad defines an attribute; "*": any at all."""
        return bool(self.ads) if name == "*" else bool(self.present(name).any())

    def has_formulas(self, name: str) -> bool:
        """Whether the attribute of any ad refers to other attributes."""
        return name in self._all_dependencies()

    def formulas(self, name: str) -> Mapping[int, Expression]:
        """The different expressions of an attribute, by number."""
        formulas = self._formulas.get(name)
        if formulas is None:
            formulas = {}
            for ad, number in zip(self.ads, self.column(name), strict=True):
                if number != ABSENT and number not in formulas:
                    formulas[number] = ad.ad.index[name]
            self._formulas[name] = formulas
        return formulas

    def lists(self, name: str) -> Generator[None, None, ListColumn | None]:
        """A column of lists, by their items; None: an ad has another value. It pauses now and then."""
        if name not in self._lists:
            self._lists[name] = yield from self._index_lists(name)
        return self._lists[name]

    def _index_lists(self, name: str) -> Generator[None, None, ListColumn | None]:
        is_list = self.present(name)
        places: dict[str, list[int]] = {}
        for number, place in enumerate(np.flatnonzero(is_list).tolist()):
            value = self.ads[place].ad.index[name]
            if not isinstance(value, ListOf) or not _is_constant(value):
                return None
            items = {lower(item.value) for item in value.items if isinstance(item.value, str)}  # type: ignore[union-attr]
            for item in items:
                places.setdefault(item, []).append(place)
            if not number % LISTS_AT_ONCE:
                yield
        return ListColumn(is_list, {item: np.array(of, dtype=np.int64) for item, of in places.items()})

    def closure(self, needs: Dependencies, requester: NumberedAd) -> Dependencies:
        """All attributes that count for an expression: also names in the attributes of either ad."""
        ours, theirs = self._all_dependencies(), requester.dependencies
        closure = self._closures.get(needs)
        if closure is None:
            closure = self._closures[needs] = _closure(needs, (ours,))
        if closure.needs_whole_ad or any(name in closure.names for name in theirs):
            return _closure(needs, (ours, theirs))
        return closure

    def _all_dependencies(self) -> dict[str, Dependencies]:
        """The dependencies of each attribute, over all ads."""
        if self._dependencies is None:
            merged: dict[str, Dependencies] = {}
            for ad in self.ads:
                for name, needs in ad.dependencies.items():
                    known = merged.get(name)
                    merged[name] = needs if known is None else _union(known, needs)
            self._dependencies = merged
        return self._dependencies

    def grouping(self, needs: Dependencies) -> Grouping:
        """The ads grouped by all attributes that count. `needs`: an answer of `closure`."""
        if needs.needs_whole_ad:
            names = tuple(sorted({name for ad in self.ads for name in ad.numbers} | needs.names))
        else:
            names = tuple(sorted(needs.names))
        grouping = self._groupings.get(names)
        if grouping is None:
            grouping = self._groupings[names] = self._group(names)
        return grouping

    def _group(self, names: tuple[str, ...]) -> Grouping:
        if not names:
            groups = np.zeros(len(self.ads), dtype=np.int64)
            first = np.zeros(min(1, len(self.ads)), dtype=np.int64)
            return Grouping(names, groups, [()] * len(first), first)
        seen: dict[tuple[int, ...], int] = {}
        examples: list[int] = []
        groups = np.empty(len(self.ads), dtype=np.int64)
        for place, key in enumerate(zip(*(self.column(name) for name in names), strict=True)):
            number = seen.setdefault(key, len(examples))
            if number == len(examples):
                examples.append(place)
            groups[place] = number
        return Grouping(names, groups, list(seen), np.array(examples, dtype=np.int64))


def _closure(needs: Dependencies, ads: Sequence[Mapping[str, Dependencies]]) -> Dependencies:
    """The names with all names that the attributes of these ads refer to, in their turn."""
    names, open_names = set(needs.names), list(needs.names)
    whole, volatile = needs.needs_whole_ad, needs.is_volatile
    if whole:
        open_names += [name for ad in ads for name in ad]
    while open_names:
        name = open_names.pop()
        for ad in ads:
            if (more := ad.get(name)) is None:
                continue
            volatile = volatile or more.is_volatile
            if more.needs_whole_ad and not whole:
                whole = True
                open_names += [name for ad in ads for name in ad]
            open_names += more.names - names
            names |= more.names
    return Dependencies(frozenset(names), whole, volatile)


def _union(one: Dependencies, other: Dependencies) -> Dependencies:
    if one is other or one == other:
        return one
    return Dependencies(
        one.names | other.names,
        one.needs_whole_ad or other.needs_whole_ad,
        one.is_volatile or other.is_volatile,
    )
