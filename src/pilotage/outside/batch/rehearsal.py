"""A rehearsal: the life of one small submission, so that a transcript of it tests the adapter elsewhere.

Nothing of it is a pilot: its script sleeps, holds no secret, and is cancelled at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pilotage.core.glue.information import CeInformation
from pilotage.outside.batch.adapter import BatchAdapter, BatchPartition, BatchSubmission, Receipt, Shape
from pilotage.outside.batch.submission import BatchListing, ListedTask, NativeState

CASE = "test_a_rehearsal_goes_through"
"""The test of the contract suite that plays a recorded rehearsal."""

PILOTS = 2
SCRIPT = "#!/bin/sh\ntrap 'kill $!; exit 0' TERM INT\nsleep 60 &\nwait\n"

Wait = Callable[[Callable[[], bool], str], None]
"""Waits until a condition holds. It raises when it takes too long; the text names the awaited thing."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The answers of a batch system."""

    partitions: list[BatchPartition]
    information: CeInformation
    refusal: str
    receipt: Receipt
    held: BatchListing
    """After the submission."""
    properties: dict[tuple[str, int | None], dict[str, str]]
    released: BatchListing
    """After the release."""
    ended: BatchListing
    """After the cancellation."""
    accounted: list[ListedTask]


def alive(listing: BatchListing, stamp: str) -> list[ListedTask]:
    """The batch jobs of a submission that have not ended."""
    return [task for task in listing.tasks if task.stamp == stamp and task.state is not NativeState.ENDED]


def rehearse(batch: BatchAdapter, stamp: str, shape: Shape, wait: Wait) -> Rehearsal:
    """Submit two batch jobs, release them, cancel them, and look at each step. They are always cancelled."""
    partitions, information, refusal = batch.describe(), batch.information(), batch.check(shape)

    def listing() -> BatchListing:
        return batch.list_pilots([stamp])

    try:
        receipt = batch.submit(BatchSubmission(stamp, PILOTS, shape, SCRIPT, {"owner": "rehearsal"}))
        wait(lambda: len(alive(listing(), stamp)) == PILOTS, "a listing with the batch jobs")
        held, properties = listing(), batch.properties([stamp])
        batch.release([stamp])
        wait(lambda: _has_left(listing(), stamp, NativeState.HELD), "the release")
        released = listing()
    finally:
        batch.cancel([stamp])
    wait(lambda: not alive(listing(), stamp), "the end of the batch jobs")
    accounted = batch.list_accounted([stamp], 3600.0)
    return Rehearsal(
        partitions, information, refusal, receipt, held, properties, released, listing(), accounted
    )


def _has_left(listing: BatchListing, stamp: str, state: NativeState) -> bool:
    return listing.complete and all(task.state is not state for task in alive(listing, stamp))
