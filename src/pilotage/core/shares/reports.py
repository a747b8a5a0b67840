"""What a correction was made of: shown by `share list`."""

from __future__ import annotations

from typing import NamedTuple


class SliceReport(NamedTuple):
    """One entity in one slice. `expected` and `used` are parts of the whole; `running` the average number of jobs
    (or cores); None for an entity that is not of the slice's set.
    """

    name: str
    time_span: float
    expected: float | None
    used: float | None
    running: float
    correction: float


class EntityReport(NamedTuple):
    """`name` is a group, or an owner; `weighted` the sum over the slices, `factor` that within the global bounds."""

    name: str
    slices: tuple[SliceReport, ...]
    weighted: float
    factor: float


class InstanceReport(NamedTuple):
    """`group` is empty for an instance between groups."""

    name: str
    group: str
    entities: tuple[EntityReport, ...]
