"""The parts of a correction, as `pilotage share list` shows them."""

from __future__ import annotations

from typing import NamedTuple


class SliceReport(NamedTuple):
    """One entity in one slice.

    `expected` and `used` are parts of the whole; None for an entity outside the set of the slice. `running` is the
    average number of jobs (or cores). `measure` names the column that shows `used`.
    """

    name: str
    time_span: float
    expected: float | None
    used: float | None
    running: float
    correction: float
    measure: str = "used"


class EntityReport(NamedTuple):
    """`name` is a group or an owner. `weighted` is the sum over the slices, `factor` that sum within the bounds."""

    name: str
    slices: tuple[SliceReport, ...]
    weighted: float
    factor: float


class InstanceReport(NamedTuple):
    """`group` is empty for an instance between groups. `corrector` is empty for use that is only shown."""

    name: str
    group: str
    entities: tuple[EntityReport, ...]
    corrector: str
