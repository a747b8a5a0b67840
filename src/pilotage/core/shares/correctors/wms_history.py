"""The corrector WMSHistory ("DIRAC Priority schema"): keeps use near the shares over several spans of time.

    c = clamp(expected / used, 1/Max, Max);  factor = clamp(Σ c·Weight / Σ Weight, 1/Global, Global)

The integral form carries the c of each slice on: c ← clamp(c · (expected/used)^(gain · elapsed/TimeSpan)). It settles
only where use is as expected, for every draw rule and all lengths of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import msgspec

from pilotage.core.setting import YEAR, Setting
from pilotage.core.shares.corrector import (
    Competition,
    CorrectorInstance,
    Fault,
    InstanceMemory,
    clamp,
    ratio,
)
from pilotage.core.shares.reports import EntityReport, SliceReport

Form = Literal["ratio", "integral"]

DEFAULT_GAIN = 1.0
"""Per time_span. The integral form would oscillate from π²/2 on, and earlier if jobs are longer than the slice.
1 settles in about three time spans and overshoots little.
"""

SHORTEST_SPAN = 60.0
"""Seconds; use is known by the minute."""


class CorrectionSlice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One span of time that an instance looks back over."""

    time_span: Annotated[float, Setting("seconds to look back", 1.0, 20 * YEAR)] = 604800.0
    weight: Annotated[
        float,
        Setting(
            "part of this slice in the correction, relative to the other slices", 1e-6, 1e12, or_zero=True
        ),
    ] = 1.0
    max_correction: Annotated[
        float, Setting("the slice's correction stays between 1/this and this", 1.0, 1e6)
    ] = 3.0


class HistoryInstance(CorrectorInstance, frozen=True):
    """One instance of WMSHistory."""

    corrector: ClassVar[str] = "WMSHistory"
    meaning: ClassVar[str] = "expected use divided by the use over one or several spans of time"
    example: ClassVar[str] = """\
[correction.WMSHistory.groups]
max_global_correction_factor = 3
[correction.WMSHistory.groups.slices.week]
time_span = 604800
weight = 80
max_correction = 2
"""

    max_global_correction_factor: Annotated[
        float,
        Setting(
            "the weighted sum stays between 1/this and this; owners are scaled to their group's share afterwards, and"
            " can then be further apart: docs/explanation/fair-shares.md",
            1.0,
            1e6,
        ),
    ] = 5.0
    form: Annotated[
        Form,
        Setting("ratio: expected/used; integral: the last correction times (expected/used)^gain"),
    ] = "ratio"
    gain: Annotated[
        float | None,
        Setting("of form integral only, for each time_span that passes; absent: 1", 1e-6, 1000.0),
    ] = None
    slices: dict[str, CorrectionSlice] = msgspec.field(default_factory=dict)

    @property
    def weighted_range(self) -> tuple[float, float]:
        """The smallest and the largest weighted sum of the slices, before the global bound."""
        parts = self.slices.values()
        total = sum(part.weight for part in parts)
        lowest = sum(part.weight / part.max_correction for part in parts) / total
        return lowest, sum(part.weight * part.max_correction for part in parts) / total

    @property
    def correction_range(self) -> tuple[float, float]:
        most = self.max_global_correction_factor
        lowest, highest = self.weighted_range
        return max(lowest, 1 / most), min(highest, most)

    @property
    def strength(self) -> float:
        """The gain in force."""
        return DEFAULT_GAIN if self.gain is None else self.gain

    @property
    def reaches_shares(self) -> bool:
        return self.form == "integral"

    def faults(self, history: float) -> Iterator[Fault]:
        if not 1 < self.max_global_correction_factor < math.inf:
            key = "max_global_correction_factor"
            yield Fault(f"{key} must be a number above 1; with 1 nothing is corrected", (key,))
        if not 0 < self.strength < math.inf:
            yield Fault("gain must be a number above 0", ("gain",))
        if self.gain is not None and self.form != "integral":
            yield Fault('gain is read with form = "integral" only', ("gain",))
        for label, part in self.slices.items():
            yield from _faults_of_slice(label, part, history)
        yield from self._faults_together()

    def _faults_together(self) -> Iterator[Fault]:
        parts = self.slices.values()
        if not parts:
            hint = "add [correction.WMSHistory.INSTANCE.slices.NAME] with time_span and weight"
            yield Fault("there is no slice, so nothing is corrected", hint=hint)
        elif all(part.max_correction == 1 for part in parts):
            hint = "give at least one slice a max_correction above 1"
            yield Fault("max_correction is 1 in all slices, so nothing is corrected", hint=hint)
        elif not sum(part.weight for part in parts) > 0:
            hint = "give at least one slice a weight above 0"
            yield Fault("the weights of its slices add up to 0, so nothing is corrected", hint=hint)

    def warnings(self) -> Iterator[str]:
        most = self.max_global_correction_factor
        lowest, highest = self.weighted_range
        if highest < most and lowest > 1 / most:
            yield (
                f"max_global_correction_factor = {most:g} never binds, since its slices keep the correction between"
                f" {lowest:.3g} and {highest:.3g}"
            )

    def properties(self) -> Iterator[str]:
        if self.form == "integral":
            bounds = [part.max_correction for part in self.slices.values()]
            most = min(self.max_global_correction_factor, *bounds)
            yield (
                f"form integral makes up for jobs of one entity that use up to {most**2:g} times as much as those of"
                " another (max_correction and max_global_correction_factor, squared); it settles within about three"
                " time_spans, and one slice longer than the jobs does best"
            )

    def factor_at_rest(self, expected: float, used: float) -> float:
        """At rest all slices see the same use."""
        parts = self.slices.values()
        total = sum(part.weight for part in parts)
        weighted = sum(part.weight * ratio(expected, used, part.max_correction) for part in parts)
        return clamp(weighted / total, self.max_global_correction_factor)

    def correct(
        self, competition: Competition, memory: InstanceMemory
    ) -> tuple[tuple[EntityReport, ...], InstanceMemory]:
        used = {
            label: competition.known(competition.use_over(part.time_span))
            for label, part in self.slices.items()
        }
        names = set(competition.waiting).union(*used.values())
        remembered: InstanceMemory = {}
        rows: dict[str, list[SliceReport]] = {entity: [] for entity in sorted(names)}
        for label, part in self.slices.items():
            exponent = self.strength * min(1.0, competition.elapsed / part.time_span)
            carried = _Integral(label, exponent, memory, remembered) if self.form == "integral" else None
            expected = competition.expected(competition.waiting | used[label].keys())
            view = _SliceView(label, part, used[label], sum(used[label].values()), expected, carried)
            for entity, row in rows.items():
                row.append(view.report(entity))
        return tuple(self._combine(entity, row) for entity, row in rows.items()), remembered

    def _combine(self, name: str, row: Sequence[SliceReport]) -> EntityReport:
        weights = [part.weight for part in self.slices.values()]
        corrected = (part.correction * weight for part, weight in zip(row, weights, strict=True))
        weighted = sum(corrected) / sum(weights)
        return EntityReport(name, tuple(row), weighted, clamp(weighted, self.max_global_correction_factor))


def _faults_of_slice(label: str, part: CorrectionSlice, history: float) -> Iterator[Fault]:
    keys = ("slices", label)
    if not 0 <= part.weight < math.inf:
        yield Fault("weight must be at least 0", (*keys, "weight"), part=label)
    if not 1 <= part.max_correction < math.inf:
        yield Fault("max_correction must be at least 1", (*keys, "max_correction"), part=label)
    if not SHORTEST_SPAN <= part.time_span <= history:
        hint = "raise accounting.history, or shorten the slice"
        message = f"time_span must be between 60 and accounting.history ({history:g})"
        yield Fault(message, (*keys, "time_span"), hint, part=label)


@dataclass(frozen=True, slots=True)
class _Integral:
    """The corrections that the integral form carries on, of one slice of one instance."""

    slice: str
    exponent: float
    memory: Mapping[tuple[str, str], float]
    remembered: InstanceMemory

    def next(self, entity: str, expected: float, used: float | None, most: float) -> float:
        """The next correction of `entity`. If nobody used anything the last one stays."""
        key = (self.slice, entity)
        correction = self.memory.get(key, 1.0)
        if used is not None:
            correction = clamp(correction * float(ratio(expected, used, most) ** self.exponent), most)
        self.remembered[key] = correction
        return correction


@dataclass(frozen=True, slots=True)
class _SliceView:
    """One slice with the use in it. The keys of `expected` are the entities of its set."""

    label: str
    part: CorrectionSlice
    used: Mapping[str, float]
    total: float
    expected: Mapping[str, float]
    integral: _Integral | None

    def report(self, entity: str) -> SliceReport:
        expected, span, most = self.expected.get(entity), self.part.time_span, self.part.max_correction
        if expected is None:
            return SliceReport(self.label, span, None, None, 0.0, 1.0)
        running = self.used.get(entity, 0.0)
        used = running / self.total if self.total > 0 else None
        if self.integral is None:
            correction = ratio(expected, used, most)
        else:
            correction = self.integral.next(entity, expected, used, most)
        return SliceReport(self.label, span, expected, used, running, correction)
