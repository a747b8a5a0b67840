"""The common part of the algorithms that give lumis to jobs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from pilotage.core.errors import InvalidInput
from pilotage.core.setting import Setting
from pilotage.core.splitting.algorithm import Algorithm, ceil_div
from pilotage.core.splitting.mask import FileRange, LumiRange, Mask
from pilotage.core.splitting.open_job import OpenJob
from pilotage.core.splitting.pieces import Piece, count_lumis

Lumi = tuple[int, int]
"""(run, lumi)"""
MAX_SHARED = 1_000_000
"""Lumis of an element that lie in several files. More of them are refused: they would fill the memory."""


class SharedLumis:
    """The lumis that lie in several files of an element, with their pieces."""

    def __init__(self, pieces: dict[Lumi, list[Piece]]) -> None:
        self._pieces = pieces
        self._by_run: dict[int, list[int]] = {}
        for run, lumi in sorted(pieces):
            self._by_run.setdefault(run, []).append(lumi)

    def between(self, lumis: LumiRange) -> list[int]:
        """The shared lumis of a range, ascending."""
        known = self._by_run.get(lumis.run)
        if known is None:
            return []
        return known[bisect_left(known, lumis.first) : bisect_right(known, lumis.last)]

    def pieces(self, run: int, lumi: int) -> Sequence[Piece]:
        """The pieces of a lumi, if it is shared."""
        return self._pieces.get((run, lumi), ()) if self._pieces else ()


class LumiAlgorithm(Algorithm, frozen=True, kw_only=True):
    """Gives each job whole lumis, in the order of the files.

    A lumi of several files is processed by one job, which reads all of them; for this all pieces are read before the
    first mask, where `lumi_correction` is on. Such a lumi counts with its events in all files. With `split_on_file` it
    has a job of its own. A file without lumis counts as one lumi.
    """

    needs_lumis: ClassVar[bool] = True

    split_on_run: Annotated[bool, Setting("lumis of different runs never share a job")] = True
    split_on_file: Annotated[
        bool,
        Setting("lumis of different files never share a job; a lumi that lies in several files is a job"),
    ] = False
    lumi_correction: Annotated[
        bool, Setting("a lumi that lies in several files is processed by one job, which reads all of them")
    ] = True

    def room(self, job: OpenJob, piece: Piece, lumis: int) -> int:
        """How many lumis of `piece`, which has `lumis`, still go into `job`; at least 1 if the job is empty."""
        raise NotImplementedError

    def refusal(self, run: int, lumi: int, events: int) -> str:
        """Why no job may process a lumi that has about `events` in all of its files; empty: a job may."""
        return ""

    def split(self, pieces: Iterable[Piece], *, closed: bool) -> Iterator[Mask]:
        shared = SharedLumis({})
        if self.lumi_correction:
            pieces = list(pieces)
            shared = find_shared_lumis(pieces)
        run = _LumiRun(self, shared)
        for piece in pieces:
            yield from run.add(piece)
        yield from run.close()


class _LumiRun:
    """One splitting: the open job, and the shared lumis that have a job."""

    def __init__(self, algorithm: LumiAlgorithm, shared: SharedLumis) -> None:
        self._algorithm = algorithm
        self._shared = shared
        self._done: set[Lumi] = set()
        self._job = _LumiJob()
        self._run = -1

    def close(self) -> Iterator[Mask]:
        if self._job.lumis:
            yield self._job.close()

    def add(self, piece: Piece) -> Iterator[Mask]:
        """Give the lumis of a piece to jobs; yield each job that is full."""
        algorithm, job = self._algorithm, self._job
        if algorithm.split_on_file:
            yield from self.close()
        if not piece.lumis or piece.length >= 0 or piece.first:
            if algorithm.room(job, piece, 1) < 1:
                yield from self.close()
            job.add(piece)
            job.lumis += 1
            return
        total, refused = count_lumis(piece.lumis), _LumiJob()
        first = piece.lumis[0]
        reason = algorithm.refusal(first.run, first.first, ceil_div(piece.events, total))
        for place, lumi in _parts(piece, self._shared, self._done):
            others = [p for p in self._shared.pieces(lumi.run, lumi.first) if p.file != piece.file]
            if others:
                yield from self._add_shared(piece, lumi, place, total, others)
            elif reason:
                refused.add_lumis(piece, *lumi, place, total)
                refused.lumis += 1
            else:
                yield from self._begin_run(lumi.run)
                yield from self._fill(piece, lumi, place, total)
        if refused.lumis:
            yield replace(refused.close(), refused=reason)

    def _begin_run(self, run: int) -> Iterator[Mask]:
        if self._run != run and self._algorithm.split_on_run:
            yield from self.close()
        self._run = run

    def _fill(self, piece: Piece, lumi: LumiRange, place: int, total: int) -> Iterator[Mask]:
        """Put a range of lumis into the open job. `place`: the lumis of `piece` before it."""
        run, first, last = lumi
        while first <= last:
            room = self._algorithm.room(self._job, piece, total)
            if room < 1:
                if self._job.lumis:
                    yield from self.close()
                    continue
                room = 1
            end = min(first + room - 1, last)
            taken = end - first + 1
            self._job.add_lumis(piece, run, first, end, place, total)
            self._job.lumis += taken
            place += taken
            first = end + 1

    def _add_shared(
        self, piece: Piece, lumi: LumiRange, place: int, total: int, others: Sequence[Piece]
    ) -> Iterator[Mask]:
        """Put a lumi with its parts in all files into one job, which it fills no further than the rule allows."""
        events = sum(ceil_div(part.events, count_lumis(part.lumis)) for part in (piece, *others))
        reason = self._algorithm.refusal(lumi.run, lumi.first, events)
        if reason:
            job = _LumiJob()
        else:
            job = self._job
            yield from self._begin_run(lumi.run)
            whole = piece._replace(events=events, lumis=(lumi,))
            if self._algorithm.split_on_file or self._algorithm.room(job, whole, 1) < 1:
                yield from self.close()
        job.add_lumis(piece, *lumi, place, total)
        job.lumis += 1
        for other in others:
            job.add_shared(other, lumi)
        if reason:
            yield replace(job.close(), refused=reason)
        elif self._algorithm.split_on_file:
            yield from self.close()


class _LumiJob(OpenJob):
    """An open job that joins adjacent lumis of one file."""

    __slots__ = ("_of_file",)

    def __init__(self) -> None:
        super().__init__()
        self._of_file: dict[int, tuple[Piece, list[LumiRange]]] = {}

    def add_lumis(self, piece: Piece, run: int, first: int, last: int, place: int, total: int) -> None:
        """Add lumis of a piece that has `total`; `place` of them are before these."""
        known = self._of_file.get(piece.file)
        if known is None:
            self._of_file[piece.file] = piece, [LumiRange(run, first, last)]
        else:
            lumis = known[1]
            before = lumis[-1]
            if before.run == run and before.last + 1 == first:
                lumis[-1] = LumiRange(run, before.first, last)
            else:
                lumis.append(LumiRange(run, first, last))
        count = last - first + 1
        self.events += piece.events * (place + count) // total - piece.events * place // total
        self.size += piece.size * count // total

    def add_shared(self, piece: Piece, lumi: LumiRange) -> None:
        """Add the part of a lumi that lies in another file."""
        total, place = count_lumis(piece.lumis), 0
        for run, first, last in piece.lumis:
            if run == lumi.run and first <= lumi.first <= last:
                place += lumi.first - first
                break
            place += last - first + 1
        self.add_lumis(piece, lumi.run, lumi.first, lumi.first, place, total)

    def close(self) -> Mask:
        for piece, lumis in self._of_file.values():
            # All lumis of a whole file: the file is named without them, and events outside of known lumis count too.
            is_whole = piece.is_whole and count_lumis(tuple(lumis)) == count_lumis(piece.lumis)
            self.ranges.append(FileRange(piece.file, 0, -1, () if is_whole else tuple(lumis)))
        self._of_file = {}
        return super().close()


def _parts(piece: Piece, shared: SharedLumis, done: set[Lumi]) -> Iterator[tuple[int, LumiRange]]:
    """The ranges of lumis of `piece` without a job, each with the number of lumis of the piece before it.

    Shared lumis come one by one, each for the first of its files only.
    """
    place = 0
    for whole in piece.lumis:
        run, first, last = whole
        begin = first
        for lumi in shared.between(whole):
            if lumi > begin:
                yield place + begin - first, LumiRange(run, begin, lumi - 1)
            if (run, lumi) not in done:
                done.add((run, lumi))
                yield place + lumi - first, LumiRange(run, lumi, lumi)
            begin = lumi + 1
        if begin <= last:
            yield place + begin - first, whole if begin == first else LumiRange(run, begin, last)
        place += last - first + 1


def find_shared_lumis(pieces: list[Piece]) -> SharedLumis:
    """The lumis that lie in several of the pieces. Raises InvalidInput for more than MAX_SHARED."""
    by_run: dict[int, list[tuple[int, int, int]]] = {}
    for index, piece in enumerate(pieces):
        for run, first, last in piece.lumis:
            by_run.setdefault(run, []).append((first, last, index))
    shared: dict[Lumi, set[int]] = {}
    for run, ranges in by_run.items():
        ranges.sort()
        reached: list[tuple[int, int]] = []
        for first, last, index in ranges:
            reached = [(end, other) for end, other in reached if end >= first]
            for end, other in reached:
                if len(shared) + min(last, end) - first >= MAX_SHARED:
                    raise InvalidInput(
                        f"more than {MAX_SHARED:,} lumis of an element lie in several files",
                        hint="set lumi_correction = false, or split by files",
                        field="lumi_correction",
                    )
                for lumi in range(first, min(last, end) + 1):
                    shared.setdefault((run, lumi), set()).update((other, index))
            reached.append((last, index))
    return SharedLumis({lumi: [pieces[index] for index in sorted(files)] for lumi, files in shared.items()})
