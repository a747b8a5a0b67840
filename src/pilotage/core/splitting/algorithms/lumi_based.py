"""The algorithm LumiBased: a number of lumis for each job."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pilotage.core.setting import Setting
from pilotage.core.splitting.algorithm import Amount, ceil_div
from pilotage.core.splitting.lumi_algorithm import LumiAlgorithm
from pilotage.core.splitting.open_job import OpenJob
from pilotage.core.splitting.pieces import Piece


class LumiBased(LumiAlgorithm, frozen=True, kw_only=True):
    """A lumi is any numbered section of a run."""

    algorithm: ClassVar[str] = "LumiBased"
    meaning: ClassVar[str] = "a number of lumis for each job"
    example: ClassVar[str] = "lumis_per_job = 20\n"

    lumis_per_job: Annotated[int, Setting("the most lumis of a job", 1, 10**9)]

    def room(self, job: OpenJob, piece: Piece, lumis: int) -> int:
        return self.lumis_per_job - job.lumis

    def estimate_jobs(self, amount: Amount) -> int:
        return max(1, ceil_div(amount.lumis or amount.files, self.lumis_per_job))
