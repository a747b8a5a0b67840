"""The corrector WMSHistory (document 001): keep what was used near what each is entitled to.

    c = clamp(expected / used, 1/Max, Max);  factor = clamp(Σ c·Weight / Σ Weight, 1/Global, Global)

The integral form carries each slice's c on: c ← clamp(c · (expected/used)^(gain · elapsed/TimeSpan)). It comes to
rest only where use is as expected, whatever the draw or the lengths of jobs make of a priority.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from pilotage.core.shares.reports import EntityReport, InstanceReport, SliceReport
from pilotage.core.shares.settings import HistoryInstance, Slice

Memory = dict[tuple[str, str, str], float]
"""(instance, slice, entity) → its correction; of integral instances only."""


def clamp(value: float, most: float) -> float:
    """`value`, between 1/most and most."""
    return max(min(value, most), 1.0 / most)


def slice_correction(expected: float, used: float, most: float) -> float:
    """The ratio form of one slice, for an entity of its set. Both are parts of the whole.

    >>> slice_correction(0.5, 0.75, 5)
    0.6666666666666666
    """
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
    slices = []
    for label, part in instance.slices.items():
        used = {entity: amount for entity, amount in use(part.time_span).items() if known(entity)}
        slices.append((label, part, used))
    names = {entity for entity in waiting if known(entity)}.union(*(used for _, _, used in slices))
    remembered: Memory = {}
    rows: dict[str, list[SliceReport]] = {entity: [] for entity in sorted(names)}
    for label, part, used in slices:
        members = names.intersection(waiting) | used.keys()
        expected = _expected(members, shares)
        total = sum(used.values())
        for entity, row in rows.items():
            running = used.get(entity, 0.0)
            if entity not in members:
                row.append(SliceReport(label, part.time_span, None, None, 0.0, 1.0))
                continue
            fraction = running / total if total > 0 else None
            before = memory.get((name, label, entity), 1.0)
            correction = _correction(instance, part, expected[entity], fraction, before, elapsed)
            if instance.form == "integral":
                remembered[name, label, entity] = correction
            row.append(SliceReport(label, part.time_span, expected[entity], fraction, running, correction))
    entities = tuple(_entity(entity, row, instance) for entity, row in rows.items())
    return InstanceReport(name, instance.group, entities), remembered


def _expected(members: Collection[str], shares: Mapping[str, float] | None) -> dict[str, float]:
    if shares is None:
        return dict.fromkeys(members, 1.0 / max(1, len(members)))
    total = sum(shares[entity] for entity in members)
    return {entity: shares[entity] / total if total > 0 else 0.0 for entity in members}


def _correction(
    instance: HistoryInstance,
    part: Slice,
    expected: float,
    used: float | None,
    before: float,
    elapsed: float,
) -> float:
    """`used` is None where nobody used anything: that tells nothing of anybody."""
    if instance.form == "ratio":
        return 1.0 if used is None else slice_correction(expected, used, part.max_correction)
    if used is None:
        return before
    ratio = slice_correction(expected, used, part.max_correction)
    exponent = instance.gain * min(1.0, elapsed / part.time_span)
    return clamp(before * float(ratio**exponent), part.max_correction)


def _entity(name: str, row: Iterable[SliceReport], instance: HistoryInstance) -> EntityReport:
    slices = tuple(row)
    weights = [part.weight for part in instance.slices.values()]
    weighted = sum(one.correction * weight for one, weight in zip(slices, weights, strict=True)) / sum(
        weights
    )
    return EntityReport(name, slices, weighted, clamp(weighted, instance.max_global_correction_factor))
