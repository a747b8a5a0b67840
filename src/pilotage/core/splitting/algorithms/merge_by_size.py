"""The algorithm MergeBySize: outputs of earlier jobs, up to a size for each merge job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Annotated, ClassVar

from pilotage.core.setting import BYTES, Setting
from pilotage.core.splitting.algorithm import Algorithm, Amount, ParameterFault, ceil_div
from pilotage.core.splitting.mask import Mask
from pilotage.core.splitting.open_job import OpenJob
from pilotage.core.splitting.pieces import Piece

Runs = tuple[int, ...]
MAX_OPEN = 32
"""Jobs below the smallest size that are tried for each unit. Older ones stay as they are."""


class _Unit:
    """All outputs of one job: they are merged together."""

    __slots__ = ("events", "key", "pieces", "runs", "size")

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces
        self.size = self.events = 0
        first = (0, 0)
        runs: set[int] = set()
        for piece in pieces:
            self.size += piece.size
            self.events += piece.events
            for run, lumi, _ in piece.lumis:
                if not runs or (run, lumi) < first:
                    first = run, lumi
                runs.add(run)
        self.runs: Runs = tuple(sorted(runs)) if len(runs) > 1 else tuple(runs)
        self.key = first, pieces[0].file
        """Units are merged in this order."""


class MergeBySize(Algorithm, frozen=True, kw_only=True):
    """Units of files in the order of their first lumis. A unit is all outputs of one job and is never divided.

    All pieces are read before the first mask.
    """

    algorithm: ClassVar[str] = "MergeBySize"
    meaning: ClassVar[str] = "outputs of jobs, between a smallest and a largest size for each merge job"
    example: ClassVar[str] = "min_size = 2000000000\nmax_size = 4000000000\n"

    min_size: Annotated[
        int, Setting("bytes that a merge job must exceed while more files may follow", *BYTES)
    ] = 2_000_000_000
    max_size: Annotated[int, Setting("the most bytes of a merge job with several units", 1, BYTES[1])] = (
        4_000_000_000
    )
    max_events: Annotated[int, Setting("the most events of a merge job with several units", 1, 10**15)] = (
        100_000_000
    )
    max_files: Annotated[int, Setting("the most files of a merge job with several units", 1, 10_000)] = 500
    across_runs: Annotated[bool, Setting("files of different runs may share a merge job")] = False

    def faults(self) -> Iterator[ParameterFault]:
        if self.min_size > self.max_size:
            yield ParameterFault(
                "min_size is larger than max_size", "min_size", "no two files could be merged"
            )

    def split(self, pieces: Iterable[Piece], *, closed: bool) -> Iterator[Mask]:
        by_runs: dict[Runs, list[_Unit]] = {}
        for unit in self._units(pieces):
            by_runs.setdefault(() if self.across_runs else unit.runs, []).append(unit)
        for runs in sorted(by_runs):
            yield from self._pack(sorted(by_runs[runs], key=lambda unit: unit.key), closed)

    @staticmethod
    def _units(pieces: Iterable[Piece]) -> Iterator[_Unit]:
        by_parent: dict[int, list[Piece]] = {}
        for piece in sorted(pieces, key=_by_file):
            # A file that no job wrote is a unit by itself; ids of files and of jobs must not meet.
            by_parent.setdefault(piece.parent or -piece.file, []).append(piece)
        return map(_Unit, by_parent.values())

    def _pack(self, units: Iterable[_Unit], closed: bool) -> Iterator[Mask]:
        """A unit goes to the first open job with room. A job without room for it is closed if it is large enough."""
        jobs: list[OpenJob] = []
        set_aside: list[OpenJob] = []
        empty = OpenJob()
        for unit in units:
            if not self._has_room(empty, unit):
                yield _fill(OpenJob(), unit).close()
                continue
            for job in jobs:
                if self._has_room(job, unit):
                    break
            else:
                yield from (full.close() for full in jobs if full.size > self.min_size)
                jobs = [job for job in jobs if job.ranges]
                jobs.append(job := OpenJob())
                if len(jobs) > MAX_OPEN:
                    set_aside.append(jobs.pop(0))
            _fill(job, unit)
        for job in (*set_aside, *jobs):
            if closed or job.size > self.min_size:
                yield job.close()

    def _has_room(self, job: OpenJob, unit: _Unit) -> bool:
        return (
            job.size + unit.size <= self.max_size
            and job.events + unit.events <= self.max_events
            and len(job.ranges) + len(unit.pieces) <= self.max_files
        )

    def estimate_jobs(self, amount: Amount) -> int:
        by_events = ceil_div(amount.events, self.max_events)
        return max(1, ceil_div(amount.size, self.max_size), by_events, ceil_div(amount.files, self.max_files))


_by_file = attrgetter("file", "first", "lumis")


def _fill(job: OpenJob, unit: _Unit) -> OpenJob:
    for piece in unit.pieces:
        job.add(piece)
    return job
