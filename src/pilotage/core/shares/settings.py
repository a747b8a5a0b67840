"""What the policy says about share corrections (docs/reference/rules.md, section 5)."""

from __future__ import annotations

from typing import Literal

import msgspec

Form = Literal["ratio", "integral"]
Unit = Literal["jobs", "cores"]

DEFAULT_GAIN = 1.0
"""For each time_span that passes. The integral form would oscillate from π²/2 on, sooner where jobs are longer than the
slice; 1 comes to rest in about three time spans, and overshoots little.
"""

SHORTEST_SPAN = 60.0
"""Use is known by the minute."""


class CorrectionSlice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One span of time that an instance looks back upon."""

    time_span: float = 604800.0
    weight: float = 1.0
    max_correction: float = 3.0


class HistoryInstance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One instance of the corrector WMSHistory: between the groups, or between the owners of one group."""

    group: str = ""
    max_global_correction_factor: float = 5.0
    form: Form = "ratio"
    unit: Unit = "jobs"
    gain: float | None = None
    """Of the integral form; None: DEFAULT_GAIN."""
    slices: dict[str, CorrectionSlice] = {}

    @property
    def weighted_range(self) -> tuple[float, float]:
        """The least and the most that the weighted sum of the slices can be, before the global bound."""
        parts = self.slices.values()
        whole = sum(part.weight for part in parts)
        lowest = sum(part.weight / part.max_correction for part in parts) / whole
        return lowest, sum(part.weight * part.max_correction for part in parts) / whole

    @property
    def correction_range(self) -> tuple[float, float]:
        """The least and the most that a correction of this instance can be, before any scaling."""
        most = self.max_global_correction_factor
        lowest, highest = self.weighted_range
        return max(lowest, 1 / most), min(highest, most)

    @property
    def strength(self) -> float:
        """The gain in force."""
        return DEFAULT_GAIN if self.gain is None else self.gain


def scaled_range(lowest: float, highest: float, owners: int) -> tuple[float, float]:
    """What an owner among so many can get, in parts of an equal share: the least and the most.

    Corrections of owners lie between `lowest` and `highest` and are then scaled so that the owners add up to their
    group's share. The ends are reached by one whose correction is at one end while all others are at the other. With
    more and more owners they approach lowest/highest and highest/lowest.
    """
    others = owners - 1
    return (
        owners * lowest / (lowest + others * highest),
        owners * highest / (highest + others * lowest),
    )
