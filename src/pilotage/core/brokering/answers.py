"""Answers that pairs of requesters and CEs share, by the values that the answers depend on."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pilotage.core.brokering.ad_columns import AdColumns, Grouping, Places
from pilotage.core.brokering.match import join_requirements, split_requirements
from pilotage.core.brokering.numbered_ads import (
    SCOPES,
    Dependencies,
    NumberedAd,
    Part,
    dependencies_of,
    own_key,
)
from pilotage.core.brokering.truth_columns import TRUE, TruthColumns
from pilotage.core.classads import ClassAd, Expression, Literal
from pilotage.core.classads.partial import Kind, can_be_true, residual

Mask = NDArray[np.bool_]

_TRUE: Final = Literal(True)
_FALSE: Final = Literal(False)
_EMPTY: Final = ClassAd()
NOBODY: Final = NumberedAd(_EMPTY, {}, {})
"""For expressions that no requester takes part in."""


@dataclass(slots=True, eq=False)
class SharedResidual:
    """Requirements after all that CEs fix; one object for all pairs with equal ones."""

    expression: Expression
    can_be_true: bool
    needs: Dependencies
    on_hosts: dict[Any, bool] = field(default_factory=dict)
    """Whether it can be true on a host, by the values there."""


class Answers:
    """All answers of a broker. Residuals are named by their keys in `residuals`."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._next = count()
        self._parts: dict[Expression, Part] = {}
        self._split: dict[int, tuple[Part, ...]] = {}
        self._places: dict[Expression, int] = {}
        self._joint: dict[tuple[int, ...], int] = {}
        self.residuals: dict[int, SharedResidual] = {}
        self.computed = 0
        """Evaluations so far."""
        self.true, self.false = self._place(_TRUE), self._place(_FALSE)

    # --- the requester's Requirements

    def parts_of(self, number: int, requirements: Expression) -> tuple[Part, ...]:
        """The Requirements split at `&&`. `number`: of the expression, among all values."""
        parts = self._split.get(number)
        if parts is None:
            parts = self._split[number] = tuple(self.part(part) for part in split_requirements(requirements))
        return parts

    def part(self, expression: Expression) -> Part:
        """The expression with its answers."""
        part = self._parts.get(expression)
        if part is None:
            part = self._parts[expression] = Part(expression, dependencies_of(expression))
        return part

    def part_column(
        self, part: Part, columns: AdColumns, requester: NumberedAd, memory: dict[Any, Any], now: float
    ) -> Generator[None, None, Places]:
        """For each CE the residual of a part of a requester's Requirements. Pauses after each evaluation."""
        needs = columns.closure(part.needs, requester)
        grouping, mine = columns.grouping(needs), own_key(requester, needs)
        places, known = np.empty(len(grouping.keys), dtype=np.int64), _known_groups(columns, grouping, needs)
        if known.any():
            truths = TruthColumns(columns, requester, self.part, memory, now, of_partner=True)
            codes = yield from truths.column(part.expression)
            self.computed += truths.computed
            is_true = codes[grouping.examples] == TRUE
            places[known] = np.where(is_true[known], self.true, self.false)
        for number in np.flatnonzero(~known).tolist():
            key = (grouping.names, grouping.keys[number], mine)
            place = part.answers.get(key)
            if place is None:
                target = columns.ads[grouping.examples[number]].ad
                place = self._place(residual(part.expression, requester.ad, target, self._kinds))
                part.answers[key] = place
                self.computed += 1
                yield
            places[number] = place
        return places[grouping.groups]

    def joint_column(self, columns: Sequence[Places]) -> Generator[None, None, Places]:
        """The residuals of whole Requirements for each CE, joined from the residuals of their parts."""
        if len(columns) == 1:
            return columns[0]
        if not len(columns[0]):
            return columns[0]
        distinct, codes = np.unique(columns[0], return_inverse=True)
        combined: list[tuple[int, ...]] = [(place,) for place in distinct.tolist()]
        for column in columns[1:]:
            size = int(column.max()) + 1
            distinct, codes = np.unique(codes * size + column, return_inverse=True)
            combined = [(*combined[pair // size], pair % size) for pair in distinct.tolist()]
        joint = []
        for places in combined:
            place = self._joint.get(places)
            if place is None:
                place = self._joint[places] = self._join(places)
                self.computed += 1
                yield
            joint.append(place)
        return np.array(joint, dtype=np.int64)[codes]

    def _join(self, places: Sequence[int]) -> int:
        parts = [self.residuals[place].expression for place in dict.fromkeys(places) if place != self.true]
        if any(part == _FALSE for part in parts):
            return self._place(_FALSE)
        if len(parts) < 2:
            return self._place(join_requirements(parts))
        return self._place(residual(join_requirements(parts), None, _EMPTY, self._kinds))

    def _place(self, expression: Expression) -> int:
        place = self._places.get(expression)
        if place is None:
            entry = SharedResidual(
                expression, can_be_true(expression, self._kinds), dependencies_of(expression)
            )
            # Another thread may do the same: the first place counts, and both have their entries.
            place = next(self._next)
            self.residuals[place] = entry
            place = self._places.setdefault(expression, place)
        return place

    # --- host classes

    def on_hosts(
        self, place: int, hosts: AdColumns, memory: dict[Any, Any], now: float
    ) -> Generator[None, None, Mask]:
        """For each host class whether a residual can be true there. Pauses after each evaluation."""
        entry = self.residuals[place]
        needs = hosts.closure(entry.needs, NOBODY)
        grouping = hosts.grouping(needs)
        answers, known = np.empty(len(grouping.keys), dtype=np.bool_), _known_groups(hosts, grouping, needs)
        if known.any():
            truths = TruthColumns(hosts, NOBODY, self.part, memory, now, of_partner=True)
            codes = yield from truths.column(entry.expression)
            self.computed += truths.computed
            answers[known] = (codes[grouping.examples] == TRUE)[known]
        for number in np.flatnonzero(~known).tolist():
            key = (grouping.names, grouping.keys[number])
            answer = entry.on_hosts.get(key)
            if answer is None:
                host = hosts.ads[grouping.examples[number]].ad
                rest = residual(entry.expression, None, host, self._kinds)
                answer = entry.on_hosts[key] = can_be_true(rest, self._kinds)
                self.computed += 1
                yield
            answers[number] = answer
        return answers[grouping.groups]

    # --- the CE's Requirements

    def refused(
        self,
        requirements: Expression,
        ads: AdColumns,
        requester: NumberedAd,
        memory: dict[Any, Any],
        now: float,
    ) -> Generator[None, None, Mask]:
        """For each CE whether such Requirements of a CE are not true of a requester."""
        truths = TruthColumns(ads, requester, self.part, memory, now, of_partner=False)
        codes = yield from truths.column(requirements)
        self.computed += truths.computed
        mask: Mask = codes != TRUE
        return mask


def _known_groups(columns: AdColumns, grouping: Grouping, needs: Dependencies) -> Mask:
    """The groups of ads that define each attribute that counts, so that plain evaluation decides."""
    if needs.needs_whole_ad or needs.is_volatile or needs.names & _OTHER_SCOPES:
        return np.zeros(len(grouping.keys), dtype=np.bool_)
    known = np.ones(len(grouping.keys), dtype=np.bool_)
    for name in grouping.names:
        if name not in SCOPES:
            known &= columns.present(name)[grouping.examples]
    return known


_OTHER_SCOPES: Final = SCOPES - {"my", "other", "target"}
