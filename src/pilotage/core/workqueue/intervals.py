"""A set of disjoint intervals of integers, with fast changes at any place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

CHUNK = 512
"""Intervals of one chunk, at most twice as many. An insertion moves the entries of one chunk."""


class Intervals:
    """Disjoint half-open intervals, sorted. Neighbours that touch are one interval."""

    __slots__ = ("_begins", "_ends", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        """The first begin of each chunk."""
        self._begins: list[list[int]] = []
        self._ends: list[list[int]] = []

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for begins, ends in zip(self._begins, self._ends, strict=True):
            yield from zip(begins, ends, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def overlaps(self, begin: int, end: int) -> bool:
        chunk, place = self._before(end)
        return place >= 0 and self._ends[chunk][place] > begin

    def contains(self, begin: int, end: int) -> bool:
        chunk, place = self._before(begin + 1)
        return place >= 0 and self._ends[chunk][place] >= end

    def gaps(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The parts of an interval that are not in the set."""
        missing = []
        chunk, place = self._before(begin + 1)
        if place >= 0:
            begin = max(begin, self._ends[chunk][place])
        following = self._after(chunk, place)
        while begin < end:
            if following is None or self._begins[following[0]][following[1]] >= end:
                missing.append((begin, end))
                break
            chunk, place = following
            if self._begins[chunk][place] > begin:
                missing.append((begin, self._begins[chunk][place]))
            begin = self._ends[chunk][place]
            following = self._after(chunk, place)
        return missing

    def add(self, begin: int, end: int) -> None:
        """Add an interval that overlaps none."""
        chunk, place = self._before(begin)
        after = self._after(chunk, place)
        joins_before = place >= 0 and self._ends[chunk][place] == begin
        if after is not None and self._begins[after[0]][after[1]] == end:
            if joins_before:
                self._ends[chunk][place] = self._ends[after[0]][after[1]]
                self._delete(*after)
            else:
                self._begins[after[0]][after[1]] = begin
                self._firsts[after[0]] = self._begins[after[0]][0]
        elif joins_before:
            self._ends[chunk][place] = end
        else:
            self._insert(chunk, place + 1, begin, end)

    def _before(self, value: int) -> tuple[int, int]:
        """(chunk, place) of the last interval that begins before `value`; place -1 of chunk 0: there is none."""
        chunk = max(0, bisect_left(self._firsts, value) - 1)
        return chunk, (bisect_left(self._begins[chunk], value) - 1 if self._firsts else -1)

    def _after(self, chunk: int, place: int) -> tuple[int, int] | None:
        """The next interval."""
        if chunk < len(self._begins) and place + 1 < len(self._begins[chunk]):
            return chunk, place + 1
        return (chunk + 1, 0) if chunk + 1 < len(self._begins) else None

    def _insert(self, chunk: int, place: int, begin: int, end: int) -> None:
        if not self._firsts:
            self._firsts, self._begins, self._ends = [begin], [[begin]], [[end]]
            return
        begins, ends = self._begins[chunk], self._ends[chunk]
        begins.insert(place, begin)
        ends.insert(place, end)
        if len(begins) > 2 * CHUNK:
            self._begins[chunk : chunk + 1] = [begins[:CHUNK], begins[CHUNK:]]
            self._ends[chunk : chunk + 1] = [ends[:CHUNK], ends[CHUNK:]]
            self._firsts.insert(chunk + 1, begins[CHUNK])
        self._firsts[chunk] = self._begins[chunk][0]

    def _delete(self, chunk: int, place: int) -> None:
        del self._begins[chunk][place], self._ends[chunk][place]
        if self._begins[chunk]:
            self._firsts[chunk] = self._begins[chunk][0]
        else:
            del self._firsts[chunk], self._begins[chunk], self._ends[chunk]
