"""The corrector WMSHistory ("DIRAC Priority schema"): keep what was used near what each is entitled to.

    c = clamp(expected / used, 1/Max, Max);  factor = clamp(Σ c·Weight / Σ Weight, 1/Global, Global)

The integral form carries each slice's c on: c ← clamp(c · (expected/used)^(gain · elapsed/TimeSpan)). It comes to
rest only where use is as expected, whatever the draw or the lengths of jobs make of a priority.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pilotage.core.shares.reports import EntityReport, InstanceReport, SliceReport
from pilotage.core.shares.settings import CorrectionSlice, HistoryInstance

Memory = dict[tuple[str, str, str], float]
"""(instance, slice, entity) → its correction; of integral instances only."""


def clamp(value: float, most: float) -> float:
    """`value`, between 1/most and most."""
    return max(min(value, most), 1.0 / most)


def slice_correction(expected: float, used: float | None, most: float) -> float:
    """The ratio form of one slice, for an entity of its set. Both are parts of the whole; `used` is None where
    nobody used anything, which tells nothing of anybody.

    >>> slice_correction(0.5, 0.75, 5)
    0.6666666666666666
    """
    if used is None:
        return 1.0
    return clamp(expected / used, most) if used > 0 else most


def correct_by_history(
    name: str,
    instance: HistoryInstance,
    *,
    shares: Mapping[str, float] | None,
    waiting: Collection[str],
    known: Callable[[str], bool],
    use: Callable[[float], Mapping[str, float]],
    memory: Memory,
    elapsed: float,
) -> tuple[InstanceReport, Memory]:
    """The factors of one instance, and what it remembers.

    `shares` of the entities, None where all are entitled to the same; `waiting` are those with waiting jobs;
    `known` says of one with use only whether it still counts (its group or owner may have gone from the policy);
    `use(span)` the average number of running jobs or cores of each. Of an entity without waiting jobs or use
    nothing is said.
    """
    seen = [
        (label, part, {entity: amount for entity, amount in use(part.time_span).items() if known(entity)})
        for label, part in instance.slices.items()
    ]
    names = {entity for entity in waiting if known(entity)}
    waits = frozenset(names)
    names.update(*(used for _, _, used in seen))
    remembered: Memory = {}
    rows: dict[str, list[SliceReport]] = {entity: [] for entity in sorted(names)}
    for label, part, used in seen:
        exponent = instance.strength * min(1.0, elapsed / part.time_span)
        carried = _Carried(name, label, exponent, memory, remembered) if instance.form == "integral" else None
        look = _Look(label, part, used, sum(used.values()), _expected(waits | used.keys(), shares), carried)
        for entity, row in rows.items():
            row.append(look.report(entity))
    weights = [part.weight for part in instance.slices.values()]
    most = instance.max_global_correction_factor
    entities = tuple(_entity(entity, row, weights, most) for entity, row in rows.items())
    return InstanceReport(name, instance.group, entities), remembered


def _expected(members: Collection[str], shares: Mapping[str, float] | None) -> dict[str, float]:
    if shares is None:
        return dict.fromkeys(members, 1.0 / max(1, len(members)))
    total = sum(shares[entity] for entity in members)
    return {entity: shares[entity] / total if total > 0 else 0.0 for entity in members}


@dataclass(frozen=True, slots=True)
class _Carried:
    """What the integral form carries on, of one slice of one instance."""

    instance: str
    slice: str
    exponent: float
    memory: Memory
    remembered: Memory

    def on(self, entity: str, expected: float, used: float | None, most: float) -> float:
        """The next correction of `entity`. Where nobody used anything the last one stays."""
        key = (self.instance, self.slice, entity)
        correction = self.memory.get(key, 1.0)
        if used is not None:
            ratio = slice_correction(expected, used, most)
            correction = clamp(correction * float(ratio**self.exponent), most)
        self.remembered[key] = correction
        return correction


@dataclass(frozen=True, slots=True)
class _Look:
    """One slice of one instance. `expected` are the entities of its set."""

    label: str
    part: CorrectionSlice
    used: Mapping[str, float]
    total: float
    expected: Mapping[str, float]
    carried: _Carried | None

    def report(self, entity: str) -> SliceReport:
        expected, span, most = self.expected.get(entity), self.part.time_span, self.part.max_correction
        if expected is None:
            return SliceReport(self.label, span, None, None, 0.0, 1.0)
        running = self.used.get(entity, 0.0)
        used = running / self.total if self.total > 0 else None
        if self.carried is None:
            correction = slice_correction(expected, used, most)
        else:
            correction = self.carried.on(entity, expected, used, most)
        return SliceReport(self.label, span, expected, used, running, correction)


def _entity(name: str, row: Sequence[SliceReport], weights: Sequence[float], most: float) -> EntityReport:
    corrected = (one.correction * weight for one, weight in zip(row, weights, strict=True))
    weighted = sum(corrected) / sum(weights)
    return EntityReport(name, tuple(row), weighted, clamp(weighted, most))
