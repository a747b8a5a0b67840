"""A batch system on paper: arrays of held jobs, with every fault that a real one was seen to have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pilotage.core.errors import Unreachable
from pilotage.outside.batch.slurm.commands import SlurmPilotSize
from pilotage.outside.batch.submission import (
    BatchListing,
    ListedTask,
    NativeState,
    Refusal,
    SubmissionFailed,
)


@dataclass(frozen=True)
class PaperJob:
    """One task of an array. `script`: all that a pilot learns from its submission."""

    stamp: str
    index: int
    batch_id: str
    state: NativeState
    script: str


class PaperBatch:
    """Implements the calls of an adapter. `fault` is the name of the fault of the next call that can have it."""

    def __init__(self) -> None:
        self.jobs: list[PaperJob] = []
        self.fault = ""
        self.epoch = 1
        self._next_id = 1
        self._saved: tuple[list[PaperJob], int] = ([], 1)

    def submit(self, stamp: str, count: int, size: SlurmPilotSize, script: str) -> str:
        """Faults: full, refused, lost before the controller had it, lost after."""
        fault, self.fault = self.fault, ""
        if fault in ("full", "refused"):
            raise SubmissionFailed(Refusal(fault), fault)
        if fault == "lost-before":
            raise SubmissionFailed(Refusal.IN_DOUBT, fault)
        array = str(self._next_id)
        self._next_id += 1
        self.jobs += [
            PaperJob(stamp, index, f"{array}_{index}", NativeState.HELD, script) for index in range(count)
        ]
        if fault == "lost-after":
            raise SubmissionFailed(Refusal.IN_DOUBT, fault)
        return array

    def release(self, stamp: str) -> None:
        """Faults: release-lost-before, release-lost-after."""
        fault = self.fault
        if fault.startswith("release-lost"):
            self.fault = ""
        if fault == "release-lost-before":
            raise Unreachable(fault)
        self.change(stamp, NativeState.HELD, NativeState.WAITING)
        if fault == "release-lost-after":
            raise Unreachable(fault)

    def cancel(self, stamp: str, *, waiting_only: bool = False) -> None:
        self.jobs = [
            job
            for job in self.jobs
            if job.stamp != stamp or (waiting_only and job.state is NativeState.RUNNING)
        ]

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        if epoch != str(self.epoch):
            raise Unreachable("started again")
        self.jobs = [
            job
            for job in self.jobs
            if job.batch_id not in batch_ids and job.batch_id.partition("_")[0] not in batch_ids
        ]

    def list_pilots(self) -> BatchListing:
        """Faults: listing-fails."""
        if self.fault == "listing-fails":
            self.fault = ""
            return BatchListing(failure="no answer")
        return BatchListing(str(self.epoch), tuple(self._tasks()))

    def close(self) -> None:
        """There is no command to kill."""

    def _tasks(self) -> Iterator[ListedTask]:
        for job in self.jobs:
            yield ListedTask(job.stamp, job.index, job.batch_id, job.state, str(job.state), "", "")

    # --- the world around it

    def change(self, stamp: str, old: NativeState, new: NativeState) -> None:
        """Move all jobs of a stamp that are in one state to another."""
        self.jobs = [
            replace(job, state=new) if job.stamp == stamp and job.state is old else job for job in self.jobs
        ]

    def start(self) -> list[PaperJob]:
        """Start every job that waits; the started ones."""
        waiting = [job for job in self.jobs if job.state is NativeState.WAITING]
        self.jobs = [
            replace(job, state=NativeState.RUNNING) if job.state is NativeState.WAITING else job
            for job in self.jobs
        ]
        return waiting

    def end(self, batch_id: str) -> None:
        """A job ends, or its administrator removes it."""
        self.jobs = [job for job in self.jobs if job.batch_id != batch_id]

    def save_state(self) -> None:
        """As the controller does every few seconds."""
        self._saved = list(self.jobs), self._next_id

    def crash(self) -> None:
        """The controller starts again from its saved state, and gives later ids a second time."""
        started = {job.batch_id for job in self.jobs if job.state is NativeState.RUNNING}
        jobs, self._next_id = self._saved
        # The nodes tell which of the saved jobs still run.
        self.jobs = [
            replace(job, state=NativeState.RUNNING) if job.batch_id in started else job
            for job in jobs
            if job.batch_id in started or job.state is not NativeState.RUNNING
        ]
        self.epoch += 1
