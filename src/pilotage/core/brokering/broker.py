"""The match of many requesters with many CEs. Pairs that an expression cannot tell apart share one answer.

The Requirements of a requester are split at `&&`. A part is evaluated once for all CEs whose values of the
attributes that it refers to are equal. The same holds for host classes, and for the Requirements of the CEs.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pilotage.core.brokering.ad_columns import AdColumns, Places
from pilotage.core.brokering.answers import Answers, Mask, SharedResidual
from pilotage.core.brokering.match import (
    REASONS,
    CeFacts,
    CeVerdict,
    MatchedCe,
    ce_requirements,
    state_of,
)
from pilotage.core.brokering.numbered_ads import ABSENT, NumberedAd, ValueNumbers, own_key
from pilotage.core.classads import ClassAd, Expression, Literal
from pilotage.core.classads.partial import Kind

VERDICTS: Final = tuple(CeVerdict)
_CODES: Final = {verdict: code for code, verdict in enumerate(VERDICTS)}
_TRUE: Final = Literal(True)


@dataclass(frozen=True, slots=True, eq=False)
class NumberedCe:
    """A CE whose ads are numbered. It is made once for each change of its facts."""

    facts: CeFacts
    ad: NumberedAd
    fixed: NumberedAd
    hosts: tuple[NumberedAd, ...]
    requirements: Expression
    state: CeVerdict
    state_reason: str


class CeTable:
    """CEs at one instant. Answers are columns over all of them."""

    def __init__(self, ces: Sequence[NumberedCe], now: float) -> None:
        self.ces = ces
        self.now = now
        self.ads = AdColumns([ce.ad for ce in ces])
        self.fixed = AdColumns([ce.fixed for ce in ces])
        self.hosts = AdColumns([host for ce in ces for host in ce.hosts])
        counts = [len(ce.hosts) for ce in ces]
        self.host_counts: Places = np.array(counts, dtype=np.int64)
        self.first_hosts: Places = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self.owners: Places = np.repeat(np.arange(len(ces)), self.host_counts)
        """The place of the CE of each host class."""
        self.state_codes = np.array([_CODES[ce.state] for ce in ces], dtype=np.uint8)
        self.requirements = _by_requirements(ces)
        self._memories: tuple[Answers | None, dict[str, dict[Any, Any]]] = (None, {})

    def memories(self, answers: Answers) -> dict[str, dict[Any, Any]]:
        """Columns of these answers: over the CEs' ads, their fixed ads and host classes, and of whole matches."""
        of, memories = self._memories
        if of is not answers:
            memories = {name: {} for name in ("ads", "fixed", "hosts", "whole")}
            self._memories = (answers, memories)
        return memories

    def __len__(self) -> int:
        return len(self.ces)


def _by_requirements(ces: Sequence[NumberedCe]) -> list[tuple[Expression, Places]]:
    """The different Requirements of CEs, with the places of the CEs that have them."""
    places: dict[Expression, list[int]] = {}
    for place, ce in enumerate(ces):
        places.setdefault(ce.requirements, []).append(place)
    return [
        (requirements, np.array(members, dtype=np.int64))
        for requirements, members in places.items()
        if requirements != _TRUE
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The answers for one requester and all CEs of a table, in the table's order."""

    table: CeTable
    codes: NDArray[np.uint8]
    """Places in `VERDICTS`."""
    residuals: Places
    """Keys of `known`."""
    hosts: Mask | None
    """For each host class of the table whether it may satisfy the residual; None: all do."""
    known: Mapping[int, SharedResidual]

    @property
    def candidates(self) -> Mask:
        """CEs that pilots may go to now."""
        mask: Mask = self.codes == _CODES[CeVerdict.YES]
        return mask

    @property
    def fitting(self) -> Mask:
        """CEs that fit; some may be closed or full."""
        mask: Mask = self.codes <= _CODES[CeVerdict.CLOSED]
        return mask

    def verdict(self, place: int) -> CeVerdict:
        return VERDICTS[int(self.codes[place])]

    def residual(self, place: int) -> Expression:
        """The Requirements of the requester after all that a CE fixes."""
        return self.known[int(self.residuals[place])].expression

    def of(self, place: int) -> MatchedCe:
        """The answer for one CE, without its rank."""
        verdict, table = self.verdict(place), self.table
        reason = table.ces[place].state_reason if verdict.is_passing else REASONS.get(verdict, "")
        classes = None
        if table.host_counts[place] and verdict is not CeVerdict.IMPOSSIBLE:
            first, last = table.first_hosts[place : place + 2].tolist()
            classes = tuple(
                number for number, at in enumerate(range(first, last)) if self.hosts is None or self.hosts[at]
            )
        return MatchedCe(verdict, reason, residual=self.residual(place), host_classes=classes)


class Broker:
    """Matches, with answers kept while it lives. Several threads may use one broker."""

    def __init__(self, kinds: Mapping[str, Kind] | None = None, most: int = 200_000) -> None:
        """`kinds`: of unknown attributes, by name in lower case. `most`: answers kept; then all are dropped."""
        self._kinds = kinds or {}
        self._most = most
        self._values = ValueNumbers()
        self._answers = Answers(self._kinds)
        self._dropped = 0

    @property
    def computed(self) -> int:
        """Evaluations so far: the cost."""
        return self._dropped + self._answers.computed

    def numbered(self, facts: CeFacts) -> NumberedCe:
        """The CE, ready for tables. Keep it while its facts are the same."""
        values = self._values
        ad = NumberedAd.of(facts.ad, values)
        fixed = ad if facts.fixed is facts.ad else NumberedAd.of(facts.fixed, values, ad)
        hosts = tuple(NumberedAd.of(host, values, ad) for host in facts.hosts)
        return NumberedCe(facts, ad, fixed, hosts, ce_requirements(facts.ad), *state_of(facts.ad))

    def requester(self, ad: ClassAd) -> NumberedAd:
        """The ad of a requester, ready for the match."""
        return NumberedAd.of(ad, self._values)

    def match(self, requester: NumberedAd, table: CeTable) -> Matches:
        """Match a requester with all CEs of a table."""
        steps = self.match_in_steps(requester, table)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                matches: Matches = end.value
                return matches

    def match_in_steps(self, requester: NumberedAd, table: CeTable) -> Generator[None, None, Matches]:
        """The answer of `match`. It pauses after each evaluation, so that the caller may do other work."""
        if self._answers.computed > self._most:
            self._dropped += self._answers.computed
            self._answers = Answers(self._kinds)
        asked = _Question(self._answers, requester, table)
        side = yield from asked.requesters_side()
        codes = np.maximum(table.state_codes, side.codes)
        refused = yield from asked.refusals()
        return Matches(table, np.maximum(codes, refused), side.residuals, side.hosts, asked.answers.residuals)


@dataclass(frozen=True, slots=True, eq=False)
class _RequesterSide:
    """The requester's Requirements at all CEs."""

    residuals: Places
    hosts: Mask | None
    codes: NDArray[np.uint8]
    """NO_HOSTS, IMPOSSIBLE, or YES."""


class _Question:
    """One requester and one table. A verdict with a higher code outweighs others."""

    def __init__(self, answers: Answers, requester: NumberedAd, table: CeTable) -> None:
        self.answers, self._requester, self._table = answers, requester, table
        self._memories = table.memories(answers)
        self._memory = self._memories["whole"]

    def requesters_side(self) -> Generator[None, None, _RequesterSide]:
        requester, fixed = self._requester, self._table.fixed
        requirements = requester.ad.get("Requirements") or _TRUE
        number = requester.numbers.get("requirements", ABSENT)
        parts = self.answers.parts_of(number, requirements)
        key = (
            "requester",
            number,
            *(own_key(requester, fixed.closure(part.needs, requester)) for part in parts),
        )
        side: _RequesterSide | None = self._memory.get(key)
        if side is None:
            columns = []
            for part in parts:
                columns.append(
                    (
                        yield from self.answers.part_column(
                            part, fixed, requester, self._memories["fixed"], self._table.now
                        )
                    )
                )
            residuals = yield from self.answers.joint_column(columns)
            side = self._memory[key] = yield from self._with_hosts(residuals)
        return side

    def _with_hosts(self, residuals: Places) -> Generator[None, None, _RequesterSide]:
        codes = np.zeros(len(residuals), dtype=np.uint8)
        hosts, without = yield from self._hosts(residuals)
        if without is not None:
            codes[without] = _CODES[CeVerdict.NO_HOSTS]
        known = self.answers.residuals
        impossible = [place for place in set(residuals.tolist()) if not known[place].can_be_true]
        if impossible:
            codes[np.isin(residuals, impossible)] = _CODES[CeVerdict.IMPOSSIBLE]
        return _RequesterSide(residuals, hosts, codes)

    def _hosts(self, residuals: Places) -> Generator[None, None, tuple[Mask | None, Mask | None]]:
        """Whether each host class may satisfy the residual of its CE, and the CEs where none does."""
        table = self._table
        if not len(table.owners):
            return None, None
        of_hosts = residuals[table.owners]
        hosts: Mask = np.ones(len(of_hosts), dtype=np.bool_)
        for place in set(of_hosts.tolist()):
            if place == self.answers.true:
                continue
            column: Mask | None = self._memory.get(place)
            if column is None:
                memory = self._memories["hosts"]
                column = yield from self.answers.on_hosts(place, table.hosts, memory, table.now)
                self._memory[place] = column
            members = of_hosts == place
            hosts[members] = column[members]
        satisfied = np.bincount(table.owners, weights=hosts, minlength=len(table)) > 0
        return hosts, (table.host_counts > 0) & ~satisfied

    def refusals(self) -> Generator[None, None, NDArray[np.uint8]]:
        """REFUSED for CEs whose own Requirements are not true of the requester."""
        requester, table = self._requester, self._table
        codes = np.zeros(len(table), dtype=np.uint8)
        for requirements, members in table.requirements:
            part = self.answers.part(requirements)
            needs = table.ads.closure(part.needs, requester)
            key = ("CE", id(requirements), own_key(requester, needs))
            column: Mask | None = self._memory.get(key)
            if column is None:
                column = yield from self.answers.refused(
                    requirements, table.ads, requester, self._memories["ads"], table.now
                )
                self._memory[key] = column
            codes[members[column[members]]] = _CODES[CeVerdict.REFUSED]
        return codes
