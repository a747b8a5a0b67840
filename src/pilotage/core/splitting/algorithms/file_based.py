"""The algorithm FileBased: a number of files for each job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, ClassVar

from pilotage.core.setting import Setting
from pilotage.core.splitting.algorithm import Algorithm, Amount, ceil_div
from pilotage.core.splitting.mask import Mask
from pilotage.core.splitting.open_job import OpenJob
from pilotage.core.splitting.pieces import Piece


class FileBased(Algorithm, frozen=True, kw_only=True):
    """Whole files, in their order."""

    algorithm: ClassVar[str] = "FileBased"
    meaning: ClassVar[str] = "a number of whole files for each job"
    example: ClassVar[str] = "files_per_job = 10\n"

    total_unit: ClassVar[str] = "files"

    files_per_job: Annotated[int, Setting("the most files of a job", 1, 10_000)]
    split_on_run: Annotated[bool, Setting("files of different runs never share a job")] = False
    total_files: Annotated[
        int, Setting("the most files that the step processes at all; 0: all", 1, 10**12, or_zero=True)
    ] = 0

    def limit(self, pieces: Iterable[Piece]) -> Iterable[Piece]:
        return islice(pieces, self.total_files) if self.total_files else pieces

    def split(self, pieces: Iterable[Piece], *, closed: bool) -> Iterator[Mask]:
        jobs: dict[frozenset[int], OpenJob] = {}
        runs: frozenset[int] = frozenset()
        for piece in pieces:
            if self.split_on_run:
                runs = frozenset(lumi.run for lumi in piece.lumis)
            job = jobs.get(runs)
            if job is None:
                job = jobs[runs] = OpenJob()
            job.add(piece)
            if len(job.ranges) >= self.files_per_job:
                yield job.close()
        for job in jobs.values():
            if job.ranges:
                yield job.close()

    def estimate_jobs(self, amount: Amount) -> int:
        files = min(amount.files, self.total_files or amount.files)
        return max(1, ceil_div(files, self.files_per_job))
