"""The seam to batch systems: the protocol that every adapter has, and the facts that cross it.

An adapter keeps no state of its own: it reads everything back from the batch system. The identity of a batch job is its
*stamp*. The batch id is only an answer of the batch system, which may give the same id again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pilotage.core.pilots.handover import Seen


class Shape(NamedTuple):
    """The resources that every batch job of one submission asks for."""

    processors: int
    memory: int = 0
    """MB; 0: the batch system's default."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One pilot to submit."""

    stamp: str
    script: str = field(repr=False)
    """For /bin/sh. It holds a secret: an adapter feeds it over standard input, never as an argument."""


class Receipt(NamedTuple):
    """The answer to the submission of one batch job. Without either field it is in doubt: look the stamp up."""

    batch_id: str = ""
    """The batch system has accepted it under this id."""
    refused: str = ""
    """Why the batch system certainly does not have it."""


class Sighting(NamedTuple):
    """The answer of a listing about one stamp."""

    seen: Seen
    batch_id: str = ""
    """Of the stamp now; where the listing does not know it, the id that was asked about."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer to one query."""

    at: float
    """The instant before the query: later calls are not in it."""
    sightings: Mapping[str, Sighting]
    """By stamp, one for each that was asked about. `Seen.ABSENT` only if the listing was complete."""


class BatchAdapter(Protocol):
    """A batch system. Every method may block, and none raises because the batch system does not answer."""

    holds: bool
    """Whether batch jobs can be submitted held. Otherwise the submission also releases them."""
    place: str
    """The part of a batch id that is known before the submission; "" for none."""

    def submit(
        self, shape: Shape, batch_jobs: Sequence[BatchJob], beside: Iterable[str] = ()
    ) -> dict[str, Receipt]:
        """Submit batch jobs of one shape; a receipt for each stamp.

        `beside`: ids of batch jobs there, for systems that do not place batch jobs by themselves.
        """

    def find(self, stamps: Iterable[str], now: float) -> Listing:
        """Look batch jobs up by stamp alone. `now` becomes the instant of the listing."""

    def status(self, batch_ids: Mapping[str, str], now: float) -> Listing:
        """As `find`, by batch ids first, which is cheaper: from stamps to ids, "" where none is known."""

    def cancel(self, batch_ids: Iterable[str]) -> None:
        """Ask each to give its jobs back and leave. Ids of batch jobs that are gone are left out."""

    def output(self, stamp: str, most: int) -> str:
        """The last `most` characters that a batch job has printed; "" if it has printed nothing that is left."""
