"""The algorithm SizeBased: files up to a size for each job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

from pilotage.core.setting import BYTES, Setting
from pilotage.core.splitting.algorithm import Algorithm, Amount, ceil_div
from pilotage.core.splitting.mask import Mask
from pilotage.core.splitting.open_job import OpenJob
from pilotage.core.splitting.pieces import Piece


class SizeBased(Algorithm, frozen=True, kw_only=True):
    """Whole files, in their order. A file above the size is a job of its own."""

    algorithm: ClassVar[str] = "SizeBased"
    meaning: ClassVar[str] = "whole files up to a size for each job"
    example: ClassVar[str] = "size_per_job = 4000000000\n"

    size_per_job: Annotated[int, Setting("the most bytes of a job", 1, BYTES[1])]
    max_files: Annotated[int, Setting("the most files of a job", 1, 10_000)] = 1000

    def split(self, pieces: Iterable[Piece], *, closed: bool) -> Iterator[Mask]:
        job = OpenJob()
        for piece in pieces:
            is_full = job.size + piece.size > self.size_per_job or len(job.ranges) >= self.max_files
            if job.ranges and is_full:
                yield job.close()
            job.add(piece)
        if job.ranges:
            yield job.close()

    def estimate_jobs(self, amount: Amount) -> int:
        return max(1, ceil_div(amount.size, self.size_per_job), ceil_div(amount.files, self.max_files))
