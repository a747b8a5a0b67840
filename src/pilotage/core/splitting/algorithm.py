"""The interface of splitting algorithms: parameters, their checks, and the rule.

An algorithm is one class in a module of `core/splitting/algorithms`. Its fields are the parameters of the table
`splitting` of a request's step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Final, NamedTuple, Self

import msgspec

from pilotage.core.errors import InvalidInput
from pilotage.core.setting import Setting
from pilotage.core.splitting.mask import Mask
from pilotage.core.splitting.pieces import Piece, Window


class ParameterFault(NamedTuple):
    """Why parameters are refused."""

    message: str
    parameter: str
    hint: str = ""


class Amount(NamedTuple):
    """The known data of an element; 0: not known."""

    files: int = 0
    events: int = 0
    size: int = 0
    lumis: int = 0


KILOBYTE: Final = 1000
"""The unit of `size_per_event`, in bytes."""


class GeneratedJob(NamedTuple):
    """The size of a job of generated events. The last job of a range may be smaller."""

    events: int
    events_per_lumi: int

    @property
    def lumis(self) -> int:
        """Lumi numbers that it uses."""
        return ceil_div(self.events, self.events_per_lumi)


class Estimate(NamedTuple):
    """The expected needs of one job."""

    seconds: float
    """Seconds of a reference core."""
    kilobytes: float
    """Kilobytes of output."""


class Algorithm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of one step, and the rule. Subclasses add fields.

    The rule is deterministic: the same pieces in the same order become the same masks. It reads no more pieces ahead
    than it needs for the next mask, where the class does not say otherwise.
    """

    algorithm: ClassVar[str]
    """Its name in the specification of a request."""
    meaning: ClassVar[str]
    """One line for the reference."""
    example: ClassVar[str]
    """Valid parameters, in TOML."""
    generates: ClassVar[bool] = False
    """Whether it also splits a range of events to generate."""
    needs_lumis: ClassVar[bool] = False
    """Whether it counts lumis: each block comes with its lumis, and masks may name lumis."""
    uses_time_per_event: ClassVar[bool] = False
    """Whether `split` reads it: where a request gives none, the step's done jobs tell it."""
    total_unit: ClassVar[str] = ""
    """"files" or "events": it has a parameter total_files or total_events."""

    time_per_event: Annotated[
        float, Setting("estimated seconds of a reference core for one event", 0.0, 1e9)
    ] = 12.0
    size_per_event: Annotated[
        float, Setting("estimated kB (1000 bytes) written for one event", 0.0, 1e12)
    ] = 512.0

    def faults(self) -> Iterator[ParameterFault]:
        """Yield each reason why these parameters cannot work together."""
        yield from ()

    @property
    def total(self) -> int:
        """The most files or events of the step, by `total_unit`; 0: all."""
        return getattr(self, f"total_{self.total_unit}") if self.total_unit else 0

    def with_total(self, total: int) -> Self:
        """The same algorithm with another total."""
        return msgspec.structs.replace(self, **{f"total_{self.total_unit}": total})

    def limit(self, pieces: Iterable[Piece]) -> Iterable[Piece]:
        """The first pieces, up to the total. The server applies it, since the total counts over all elements."""
        return pieces

    def split(self, pieces: Iterable[Piece], *, closed: bool) -> Iterator[Mask]:
        """Yield masks that cover every piece once.

        Without `closed` more files may follow, and pieces that are too few for a job may be left out.
        """
        raise NotImplementedError

    @property
    def generated_job(self) -> GeneratedJob:
        """The size of its jobs, if it generates. Elements are made of whole jobs."""
        raise self._cannot_generate()

    def generate(self, whole: Window, part: Window) -> Iterator[Mask]:
        """Yield masks that cover `part`, a part of the element's range `whole`, once."""
        raise self._cannot_generate()

    def _cannot_generate(self) -> InvalidInput:
        return InvalidInput(f"{self.algorithm} cannot split events that are generated", field="algorithm")

    def estimate_jobs(self, amount: Amount) -> int:
        """About how many masks data of this amount become; at least 1."""
        raise NotImplementedError

    def estimate(self, events: int) -> Estimate:
        """Time and output of a job with this number of events."""
        return Estimate(events * self.time_per_event, events * self.size_per_event)


def ceil_div(number: int, divisor: int) -> int:
    return -(-number // divisor)
