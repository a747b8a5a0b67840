"""The parts of an element without a job: its restriction to a mask, and the rest after earlier jobs.

An element may be split by several agents, one after the other. The next agent subtracts the masks that exist, and
splits the rest. So each event, lumi and file gets one job, even where the order of files or the parameters changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pilotage.core.errors import InvalidInput
from pilotage.core.splitting.intervals import Intervals, intersect, subtract, union
from pilotage.core.splitting.mask import FileRange, FileRecord, LumiRange, Mask
from pilotage.core.splitting.pieces import Piece, Window, count_lumis, events_between, piece_of

_END = 1 << 62


class FileCoverage:
    """The parts of one file that have jobs."""

    __slots__ = ("_lumis", "_windows", "is_whole")

    def __init__(self) -> None:
        self.is_whole = False
        self._windows: Intervals = []
        self._lumis: dict[int, Intervals] = {}

    def add(self, part: FileRange) -> None:
        if part.lumis:
            for run, first, last in part.lumis:
                self._lumis.setdefault(run, []).append((first, last + 1))
        elif part.first == 0 and part.events < 0:
            self.is_whole = True
        else:
            self._windows.append((part.first, part.first + part.events if part.events >= 0 else _END))

    def seal(self) -> None:
        """Sort the ranges; call it before `rest`."""
        self._windows = union(self._windows)
        self._lumis = {run: union(ranges) for run, ranges in self._lumis.items()}

    def rest(self, piece: Piece) -> Iterator[Piece]:
        if self.is_whole:
            return
        if self._lumis and self._windows:
            raise _is_mixed(piece)
        if self._lumis:
            yield from self._rest_of_lumis(piece)
        elif piece.has_named_lumis:
            raise _is_mixed(piece)
        else:
            yield from self._rest_of_events(piece)

    def _rest_of_events(self, piece: Piece) -> Iterator[Piece]:
        is_open = piece.length < 0
        known_end = piece.first + (piece.events if is_open else piece.length)
        end = _END if is_open and not piece.events else known_end
        for begin, until in subtract(piece.first, end, self._windows):
            count = -1 if until == _END else until - begin
            events = max(count, 0)
            size = piece.size * events // piece.events if piece.events else piece.size
            yield Piece(piece.file, size, events, (), piece.parent, begin, count)

    def _rest_of_lumis(self, piece: Piece) -> Iterator[Piece]:
        if not piece.lumis or piece.length >= 0 or piece.first:
            raise _is_mixed(piece)
        left = _select_lumis(piece, self._lumis, subtract)
        if left.lumis:
            yield left


def _select_lumis(piece: Piece, ranges: dict[int, Intervals], select: Callable[..., Intervals]) -> Piece:
    """The piece with the lumis that `select` keeps of each range, and with their share of events and size."""
    total, place, events = count_lumis(piece.lumis), 0, 0
    kept: list[LumiRange] = []
    for run, first, last in piece.lumis:
        for begin, end in select(first, last + 1, ranges.get(run, [])):
            kept.append(LumiRange(run, begin, end - 1))
            offset = place + begin - first
            events += events_between(piece.events, total, offset, offset + end - begin)
        place += last + 1 - first
    lumis = tuple(kept)
    size = piece.size * count_lumis(lumis) // total
    return piece._replace(size=size, events=events, lumis=lumis, has_named_lumis=True)


def _is_mixed(piece: Piece) -> InvalidInput:
    return InvalidInput(
        f"masks of file {piece.file} name events and lumis: the rest is not known",
        hint="an element is split by one algorithm; abort the request and submit it again",
    )


class Coverage:
    """The parts of an element that have jobs."""

    def __init__(self, masks: Iterable[Mask] = ()) -> None:
        self._files: dict[int, FileCoverage] = {}
        windows: Intervals = []
        for mask in masks:
            if mask.generates:
                windows.append((mask.first_event, mask.first_event + mask.events))
            for part in mask.ranges:
                self._files.setdefault(part.file, FileCoverage()).add(part)
        for file in self._files.values():
            file.seal()
        self._windows = union(windows)

    def rest(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The parts of `pieces` without a job."""
        files = self._files
        for piece in pieces:
            covered = files.get(piece.file)
            if covered is None:
                yield piece
            else:
                yield from covered.rest(piece)

    def rest_of_window(self, window: Window) -> Iterator[Window]:
        """The parts of a range of generated events without a job; their lumis are the algorithm's to find."""
        for begin, end in subtract(window.first_event, window.first_event + window.events, self._windows):
            yield Window(begin, end - begin)


def restrict(files: Iterable[FileRecord], mask: Mask | None) -> Iterator[Piece]:
    """The pieces of an element: its files, or the ranges of them that its mask names."""
    if mask is None:
        yield from map(piece_of, files)
        return
    ranges: dict[int, list[FileRange]] = {}
    for part in mask.ranges:
        ranges.setdefault(part.file, []).append(part)
    for file in files:
        for part in ranges.get(file.id, ()):
            yield _part_of(file, part)


def _part_of(file: FileRecord, part: FileRange) -> Piece:
    if part.lumis:
        named = piece_of(file)._replace(lumis=part.lumis, has_named_lumis=True)
        if not file.lumis:
            return named
        ranges: dict[int, Intervals] = {}
        for run, first, last in part.lumis:
            ranges.setdefault(run, []).append((first, last + 1))
        sealed = {run: union(lumis) for run, lumis in ranges.items()}
        selected = _select_lumis(piece_of(file), sealed, intersect)
        # Lumis that the catalogue does not know in this file stay named, without events.
        return selected if selected.lumis else named._replace(size=0, events=0)
    if part.first == 0 and part.events < 0:
        return piece_of(file)
    events = part.events if part.events >= 0 else max(file.events - part.first, 0)
    size = file.size * events // file.events if file.events else file.size
    return Piece(file.id, size, events, (), file.parent, part.first, part.events)
