"""The corrector HalfLife: target share divided by the share of decayed use.

Each core-second (or job-second) of use counts half after one half-life of up-time, a quarter after two, and so on.
HTCondor (PRIORITY_HALFLIFE) and Slurm (PriorityDecayHalfLife) weigh past use in the same way. The decay is computed
from the stored buckets of use, so a restart changes nothing and the corrector carries nothing on.

    factor = clamp(expected / used, 1/max_correction, max_correction)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pilotage.core.setting import YEAR, Setting
from pilotage.core.shares.corrector import (
    Competition,
    CorrectorInstance,
    Fault,
    InstanceMemory,
    ratio,
)
from pilotage.core.shares.reports import EntityReport, SliceReport
from pilotage.core.shares.use import HALF_LIVES, Unit

SHORTEST = 600.0
"""Seconds. Use is known by the minute, and a bucket must be short beside the half-life."""


class HalfLifeInstance(CorrectorInstance, frozen=True):
    """One instance of HalfLife."""

    corrector: ClassVar[str] = "HalfLife"
    meaning: ClassVar[str] = "expected use divided by past use, which counts half after each half-life"
    example: ClassVar[str] = """\
[correction.HalfLife.groups]
half_life = 604800
max_correction = 3
"""

    unit: Annotated[
        Unit, Setting("cores: the cores that running jobs hold are counted; jobs: the running jobs")
    ] = "cores"
    half_life: Annotated[
        float, Setting("seconds of up-time after which past use counts half", SHORTEST, 2 * YEAR)
    ] = 604800.0
    max_correction: Annotated[float, Setting("the factor stays between 1/this and this", 1.0, 1e6)] = 3.0

    @property
    def correction_range(self) -> tuple[float, float]:
        return 1 / self.max_correction, self.max_correction

    def faults(self, history: float) -> Iterator[Fault]:
        if not 1 < self.max_correction < math.inf:
            message = "max_correction must be a number above 1; with 1 nothing is corrected"
            yield Fault(message, ("max_correction",))
        if not SHORTEST <= self.half_life <= history / HALF_LIVES:
            hint = f"use is looked back upon for {HALF_LIVES} half-lives: raise accounting.history, or shorten it"
            message = f"half_life must be between {SHORTEST:g} and accounting.history/{HALF_LIVES}"
            yield Fault(f"{message} ({history / HALF_LIVES:.0f})", ("half_life",), hint)

    def factor_at_rest(self, expected: float, used: float) -> float:
        return ratio(expected, used, self.max_correction)

    def correct(
        self, competition: Competition, memory: InstanceMemory
    ) -> tuple[tuple[EntityReport, ...], InstanceMemory]:
        use = competition.known(competition.decayed_use(self.half_life))
        total = sum(use.values())
        expected = competition.expected(competition.waiting | use.keys())
        reports = []
        for entity in sorted(expected):
            running = use.get(entity, 0.0)
            used = running / total if total > 0 else None
            factor = ratio(expected[entity], used, self.max_correction)
            view = SliceReport(
                "half-life", self.half_life, expected[entity], used, running, factor, measure="decayed"
            )
            reports.append(EntityReport(entity, (view,), factor, factor))
        return tuple(reports), {}
