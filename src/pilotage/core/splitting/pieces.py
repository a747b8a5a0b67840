"""Pieces: parts of input files, and of a range of events to generate, that are still to be given to jobs."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from pilotage.core.splitting.intervals import union
from pilotage.core.splitting.mask import FileRange, FileRecord, LumiRange


class Piece(NamedTuple):
    """A file, or a part of it: a range of its events, or some of its lumis."""

    file: int
    size: int = 0
    """Bytes; of a part, in proportion."""
    events: int = 0
    """0: not known, or none."""
    lumis: tuple[LumiRange, ...] = ()
    parent: int = 0
    first: int = 0
    length: int = -1
    """Events from `first` on, as in `FileRange`; -1: to the end of the file."""
    has_named_lumis: bool = False
    """The piece is its `lumis` only, not the rest of the file."""

    @property
    def is_whole(self) -> bool:
        return self.length < 0 and not self.first and not self.has_named_lumis

    @property
    def range(self) -> FileRange:
        return FileRange(self.file, self.first, self.length, self.lumis if self.has_named_lumis else ())


def piece_of(file: FileRecord) -> Piece:
    return Piece(file.id, file.size, file.events, disjoint(file.lumis), file.parent)


def disjoint(lumis: tuple[LumiRange, ...]) -> tuple[LumiRange, ...]:
    """The same lumis, each named once; in their order where they were so before."""
    if len(lumis) < 2:
        return lumis
    ordered = sorted(lumis)
    if all(low.run != high.run or low.last < high.first for low, high in pairwise(ordered)):
        return lumis
    by_run: dict[int, list[tuple[int, int]]] = {}
    for run, first, last in lumis:
        by_run.setdefault(run, []).append((first, last + 1))
    return tuple(
        LumiRange(run, begin, end - 1) for run, ranges in by_run.items() for begin, end in union(ranges)
    )


def count_lumis(lumis: tuple[LumiRange, ...]) -> int:
    if len(lumis) == 1:
        return lumis[0][2] - lumis[0][1] + 1
    return sum(last - first + 1 for _, first, last in lumis)


def events_between(events: int, lumis: int, begin: int, end: int) -> int:
    """Events of the lumis `begin` to `end` - 1 of `lumis`, spread evenly so that the sum over all parts is exact."""
    return events * end // lumis - events * begin // lumis


class Window(NamedTuple):
    """A range of events to generate, and of the lumis that number them."""

    first_event: int
    events: int
    first_lumi: int = 0
    lumis: int = 0
    """0: not limited."""
