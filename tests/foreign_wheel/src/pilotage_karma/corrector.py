"""A corrector with one factor for everybody."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pilotage.core.setting import Setting
from pilotage.core.shares.corrector import Competition, CorrectorInstance, InstanceMemory
from pilotage.core.shares.reports import EntityReport


class KarmaInstance(CorrectorInstance, frozen=True):
    """One instance of Karma."""

    corrector: ClassVar[str] = "Karma"
    meaning: ClassVar[str] = "the same factor for everybody"
    example: ClassVar[str] = "[correction.Karma.groups]\nkarma = 2\n"

    karma: Annotated[float, Setting("the factor of all", 0.5, 2.0)] = 1.0

    @property
    def correction_range(self) -> tuple[float, float]:
        return self.karma, self.karma

    def correct(
        self, competition: Competition, memory: InstanceMemory
    ) -> tuple[tuple[EntityReport, ...], InstanceMemory]:
        reports = [EntityReport(name, (), self.karma, self.karma) for name in sorted(competition.waiting)]
        return tuple(reports), {}
