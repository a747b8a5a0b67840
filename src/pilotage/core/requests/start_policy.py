"""A start policy: it makes elements of the input of a step, the same ones for the same input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from typing import ClassVar, Protocol

from pilotage.core.errors import InvalidInput
from pilotage.core.splitting.mask import Mask

ANY_LOCATION = -1
"""Stands for the location set of work that needs no data at a site, whose id the store gives."""


class Reads(StrEnum):
    """The input that a policy is given."""

    BLOCKS = "closed blocks, as they come"
    DATASET = "all blocks of a closed data set"
    GENERATOR = "a number of events to generate"
    FAILURES = "the pieces of a request that have failed"


class JobCounter(Protocol):
    """Tells how many jobs a piece of work will become, about."""

    def __call__(self, *, files: int, events: int, lumis: int, size: int) -> int: ...


@dataclass(frozen=True, slots=True)
class SliceRule:
    """A job for each `per_job` units of work."""

    unit: str = "files"
    """"files", "events", "lumis" or "size"."""
    per_job: int = 1

    def __call__(self, *, files: int, events: int, lumis: int, size: int) -> int:
        counts = {"files": files, "events": events, "lumis": lumis, "size": size}
        return max(1, ceil(counts[self.unit] / self.per_job))


@dataclass(frozen=True, slots=True)
class InputBlock:
    """A closed block, as far as the request reads it."""

    id: int
    name: str
    files: int
    events: int
    size: int
    location_set: int
    lumis: int = 0
    runs: frozenset[int] = frozenset()
    """Empty: the files name no runs."""


@dataclass(frozen=True, slots=True)
class FailedPiece:
    """A piece of work that has failed for good, with its mask."""

    number: int
    """The number of the failed job or element; pieces are taken in this order."""
    blocks: tuple[tuple[int, str], ...]
    """Id and name of each block."""
    mask: Mask | None
    """None: the whole of its blocks."""
    files: int
    size: int
    location_set: int
    events: int = 0
    """Events of a piece without a mask."""
    lumis: int = 0
    """Lumis of a piece of several jobs, as far as known."""
    jobs: int = 0
    """The estimate of an element that could not be split; 0: none."""


@dataclass(frozen=True, slots=True)
class Generator:
    """Events to generate, from `first_event` on."""

    events: int
    events_per_job: int
    first_event: int = 1
    first_lumi: int = 1
    events_per_lumi: int = 0
    """0: as many as a job."""
    max_jobs: int = 1000
    """Jobs of one element, at most."""
    max_lumis: int = 0
    """Lumis of one element, at most; 0: no limit."""


@dataclass(frozen=True, slots=True)
class StepInput:
    """The input of one call of a policy: a slice of the step's input, in order."""

    job_count: JobCounter = SliceRule()
    blocks: Sequence[InputBlock] = ()
    failures: Sequence[FailedPiece] = ()
    generator: Generator | None = None
    block_list: frozenset[str] = frozenset()
    """Only these blocks; empty: all."""
    block_bans: frozenset[str] = frozenset()
    runs: frozenset[int] = frozenset()
    """Only blocks with one of these runs; empty: all."""
    limit: int = 1000
    """Elements of one call, at most. Only a generator has more; the call for the rest goes on after the last."""


@dataclass(frozen=True, slots=True)
class PlannedElement:
    """A piece of work that goes to an agent as a whole."""

    blocks: tuple[int, ...]
    names: tuple[str, ...]
    """The names of the blocks; they are part of the identity."""
    mask: Mask | None
    """None: the whole of its blocks."""
    jobs: int
    events: int
    files: int
    size: int
    location_set: int


@dataclass(frozen=True, slots=True)
class StartPlan:
    elements: tuple[PlannedElement, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Blocks that make no element because the request excludes them, with the reason."""
    bad: Mapping[str, str] = field(default_factory=dict)
    """Blocks that cannot be processed, with the reason."""


class StartPolicy(ABC):
    """Makes elements. It has no state: the same input gives the same elements, so that a crash does no harm."""

    name: ClassVar[str]
    meaning: ClassVar[str]
    reads: ClassVar[Reads]

    @abstractmethod
    def plan(self, step: StepInput) -> StartPlan:
        """The elements of this input. Raises `InvalidInput` if no input can be served."""


def excluded(step: StepInput, block: InputBlock) -> str:
    """Why the request leaves a block out; empty: it does not."""
    if step.block_list and block.name not in step.block_list:
        return "not in the list of blocks"
    if block.name in step.block_bans:
        return "in the list of banned blocks"
    if step.runs and block.runs and not step.runs & block.runs:
        return "no run of the list"
    return ""


def need_positive(value: int, field_name: str) -> int:
    """`value`, if it is above 0; else an error that names the field."""
    if value < 1:
        raise InvalidInput(f"{field_name}: {value} is not a positive number", field=field_name)
    return value
