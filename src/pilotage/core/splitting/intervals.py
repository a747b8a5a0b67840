"""Sets of integers as sorted, disjoint half-open intervals [begin, end)."""

from __future__ import annotations

from collections.abc import Iterable

Intervals = list[tuple[int, int]]


def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """The same numbers in ascending, disjoint intervals that do not touch. Empty intervals vanish."""
    merged: Intervals = []
    for begin, end in sorted(intervals):
        if begin >= end:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def subtract(begin: int, end: int, taken: Intervals) -> Intervals:
    """The parts of [begin, end) that are not in `taken`, a result of `union`."""
    rest: Intervals = []
    for taken_begin, taken_end in taken:
        if taken_end <= begin:
            continue
        if taken_begin >= end:
            break
        if taken_begin > begin:
            rest.append((begin, taken_begin))
        begin = taken_end
    if begin < end:
        rest.append((begin, end))
    return rest


def intersect(begin: int, end: int, wanted: Intervals) -> Intervals:
    """The parts of [begin, end) that are in `wanted`, a result of `union`."""
    return [
        (max(begin, wanted_begin), min(end, wanted_end))
        for wanted_begin, wanted_end in wanted
        if wanted_begin < end and wanted_end > begin
    ]
