"""Ads grouped by the values of some attributes.

Ads with equal values of all attributes that an expression refers to share one answer.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pilotage.core.brokering.numbered_ads import ABSENT, Dependencies, NumberedAd, is_constant
from pilotage.core.classads import Expression, ListOf
from pilotage.core.classads.values import lower

LISTS_AT_ONCE: Final = 32
"""Lists that are indexed between two pauses."""

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Ads grouped by the values of some attributes."""

    names: tuple[str, ...]
    groups: Places
    """The place in `keys` of each ad's group."""
    keys: Sequence[tuple[int, ...]]
    """Numbers of the values, in the order of `names`."""
    examples: Places
    """The place of one ad of each group."""


@dataclass(frozen=True, slots=True, eq=False)
class ListColumn:
    """An attribute that is a list of constants, or absent, in each ad."""

    is_list: NDArray[np.bool_]
    places: Mapping[str, Places]
    """The ads whose list has an item, by item in lower case."""


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
            if not isinstance(value, ListOf) or not is_constant(value):
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
