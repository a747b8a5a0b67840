"""The parts of an element that have jobs. A mask outside of the element, or over another mask, is refused.

So no agent, however wrong, makes two jobs of one event, nor ends the splitting before each event has a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple, NoReturn

from pilotage.core.errors import InvalidInput
from pilotage.core.splitting.mask import FileRange, FileRecord, LumiRange, Mask
from pilotage.core.splitting.pieces import Window, count_lumis, disjoint
from pilotage.core.workqueue.intervals import Intervals

_END = 1 << 62
"""The end of a file with an unknown number of events."""


class PieceSize(NamedTuple):
    """The amount of work of one mask, as far as the catalogue knows."""

    events: int
    files: int
    size: int


class TakenPiece(NamedTuple):
    """The piece of one mask, as the server knows it. An agent's word counts for the choice of the piece only."""

    mask: Mask
    """With the numbers of events and lumis that the server has computed."""
    size: PieceSize


Generate = Callable[[Window, Window], Iterator[Mask]]
"""The splitting of an element's range of events to generate: (the whole range, a part of it) → masks."""


class _File:
    """One file of an element: its allowed parts, and the parts with a job."""

    __slots__ = (
        *("events", "is_part", "is_taken", "lumi_count", "lumis", "record", "taken_events", "taken_lumis"),
    )

    def __init__(self, record: FileRecord, restriction: Sequence[FileRange]) -> None:
        self.record = record
        self.lumi_count = count_lumis(disjoint(record.lumis))
        whole = not restriction or any(_is_whole(part) for part in restriction)
        self.is_part = not whole
        """A mask restricts the element to parts of the file."""
        self.is_taken = False
        """One job has the whole file."""
        self.events, self.taken_events = Intervals(), Intervals()
        self.lumis: dict[int, Intervals] = {}
        self.taken_lumis: dict[int, Intervals] = {}
        if whole:
            self.events.add(0, record.events or _END)
            _add_lumis(self.lumis, record.lumis)
            return
        for part in restriction:
            if part.lumis:
                _add_lumis(self.lumis, part.lumis)
            else:
                _add_missing(self.events, *_bounds(record, part))

    @property
    def is_complete(self) -> bool:
        if self.is_taken:
            return True
        if self.taken_lumis:
            return self.taken_lumis == self.lumis
        return self.taken_events == self.events

    def problem(self, part: FileRange) -> str:
        """Why a job cannot have this part; empty: it can."""
        if self.is_taken:
            return "has a job already"
        if part.lumis:
            return self._problem_of_lumis(part.lumis)
        if _is_whole(part):
            if self.is_part:
                return "is restricted to parts by the element's mask"
            return "has a job for a part already" if self.taken_events or self.taken_lumis else ""
        begin, end = _bounds(self.record, part)
        if self.taken_lumis:
            return "has jobs by lumis already"
        if begin >= end or not self.events.contains(begin, end):
            return f"has no events {begin} to {end - 1} in this element"
        return "has a job for these events already" if self.taken_events.overlaps(begin, end) else ""

    def _problem_of_lumis(self, lumis: Sequence[LumiRange]) -> str:
        if self.taken_events:
            return "has jobs by events already"
        named: dict[int, list[tuple[int, int]]] = {}
        for run, first, last in lumis:
            named.setdefault(run, []).append((first, last))
        for run, ranges in named.items():
            ranges.sort()
            for (_, last), (first, _) in pairwise(ranges):
                if first <= last:
                    return f"has lumi {first} of run {run} named twice"
        for run, first, last in lumis:
            allowed, taken = self.lumis.get(run), self.taken_lumis.get(run)
            if first > last or allowed is None or not allowed.contains(first, last + 1):
                return f"has no lumis {first} to {last} of run {run} in this element"
            if taken is not None and taken.overlaps(first, last + 1):
                return f"has a job for lumis of {first} to {last} of run {run} already"
        return ""

    def take(self, part: FileRange) -> PieceSize:
        record = self.record
        if part.lumis:
            _add_lumis(self.taken_lumis, part.lumis)
            share = count_lumis(part.lumis), self.lumi_count
        elif _is_whole(part):
            self.is_taken = True
            return PieceSize(record.events, 1, record.size)
        else:
            begin, end = _bounds(record, part)
            self.taken_events.add(begin, end)
            share = (end - begin if end < _END else 0), record.events
        count, total = share
        if not total:
            # The catalogue does not know the events of the file, so nobody does.
            return PieceSize(0, 1, record.size)
        return PieceSize(record.events * count // total, 1, record.size * count // total)


class ElementCoverage:
    """Which parts of one element have jobs."""

    def __init__(
        self, files: Iterable[FileRecord], restriction: Mask | None, generate: Generate | None = None
    ) -> None:
        """`restriction`: the mask of the element; None: the whole of its files.

        `generate`: the splitting of a range of events to generate, by which the server numbers events and lumis.
        """
        self.masks = 0
        self._generate = generate
        self._window: Window | None = None
        self._taken = Intervals()
        parts: dict[int, list[FileRange]] = {}
        if restriction is not None and restriction.generates:
            self._window = Window(
                *(restriction.first_event, restriction.events, restriction.first_lumi, restriction.lumis)
            )
        elif restriction is not None:
            for part in restriction.ranges:
                parts.setdefault(part.file, []).append(part)
        self._files = {
            record.id: _File(record, parts.get(record.id, ()))
            for record in files
            if restriction is None or record.id in parts
        }

    def take(self, mask: Mask) -> TakenPiece:
        """Record the job of a mask. Raises `InvalidInput`, and records nothing, if it cannot be."""
        if mask.generates:
            numbered = self._take_events(mask)
            taken = TakenPiece(numbered, PieceSize(numbered.events, 0, 0))
        else:
            size = self._take_ranges(mask)
            taken = TakenPiece(Mask(mask.ranges, events=size.events), size)
        self.masks += 1
        return taken

    def missing(self) -> str:
        """A part of the element without a job; empty: there is none."""
        if self._window is not None:
            begin, end = self._window.first_event, self._window.first_event + self._window.events
            if self._taken.contains(begin, end):
                return ""
            return f"not all events {begin} to {end - 1} have a job"
        for file in self._files.values():
            if not file.is_complete:
                return f"file {file.record.name or file.record.id} has no job, or only for a part"
        return ""

    def _take_events(self, mask: Mask) -> Mask:
        begin, end, whole = mask.first_event, mask.first_event + mask.events, self._window
        if whole is None:
            _refuse("names no files, but the element has files")
        if begin >= end or begin < whole.first_event or end > whole.first_event + whole.events:
            _refuse(f"has events {begin} to {end - 1}, outside of the element")
        if self._taken.overlaps(begin, end):
            _refuse(f"has events of {begin} to {end - 1} that have a job already")
        if self._generate is not None:
            numbered = list(islice(self._generate(whole, Window(begin, mask.events)), 2))
            if len(numbered) > 1:
                _refuse(f"has events {begin} to {end - 1}, which are several jobs by the splitting")
            [mask] = numbered
        self._taken.add(begin, end)
        return mask

    def _take_ranges(self, mask: Mask) -> PieceSize:
        taken: list[tuple[_File, FileRange]] = []
        seen: dict[int, _File] = {}
        for part in mask.ranges:
            file = self._files.get(part.file)
            if file is None:
                _refuse(f"names file {part.file}, which is not in the element")
            if problem := file.problem(part):
                _refuse(f"names file {file.record.name or part.file}, which {problem}")
            taken.append((file, part))
            seen[part.file] = file
        if len(seen) < len(taken):
            _check_repeats(taken)
        sizes = [file.take(part) for file, part in taken]
        return PieceSize(sum(size.events for size in sizes), len(seen), sum(size.size for size in sizes))


def _check_repeats(taken: Sequence[tuple[_File, FileRange]]) -> None:
    """Refuse a mask whose own ranges overlap."""
    trials: dict[int, _File] = {}
    for file, part in taken:
        trial = trials.get(part.file)
        if trial is None:
            trial = trials[part.file] = _File(file.record, ())
        if problem := trial.problem(part):
            _refuse(f"names file {file.record.name or part.file} twice, which {problem}")
        trial.take(part)


def _refuse(reason: str) -> NoReturn:
    raise InvalidInput(
        f"masks: one {reason}", hint="another agent may have split it; sync and read its masks", field="masks"
    )


def _is_whole(part: FileRange) -> bool:
    return part.first == 0 and part.events < 0 and not part.lumis


def _bounds(record: FileRecord, part: FileRange) -> tuple[int, int]:
    end = part.first + part.events if part.events >= 0 else (record.events or _END)
    return part.first, end


def _add_lumis(target: dict[int, Intervals], lumis: Iterable[LumiRange]) -> None:
    for run, first, last in lumis:
        _add_missing(target.setdefault(run, Intervals()), first, last + 1)


def _add_missing(target: Intervals, begin: int, end: int) -> None:
    """Add the parts of an interval that are not there yet."""
    for gap in target.gaps(begin, end):
        target.add(*gap)
