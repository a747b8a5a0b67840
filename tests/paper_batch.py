"""A batch system on paper: arrays of held jobs, with every fault that a real one was seen to have.

Its ids are ARRAY.INDEX, as those of HTCondor: nothing may rely on the form of Slurm's ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pilotage.core.errors import Unreachable
from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation, HostClass, Value
from pilotage.core.pilots.waits import WaitClass
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import (
    BatchAccount,
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    submissions_of,
)
from pilotage.outside.batch.properties import all_properties
from pilotage.outside.batch.submission import (
    BatchListing,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)


@dataclass(frozen=True)
class PaperJob:
    """One task of an array. `script`: all that a pilot learns from its submission."""

    stamp: str
    index: int
    batch_id: str
    state: NativeState
    script: str
    properties: Mapping[str, str] = field(default_factory=dict)


class PaperBatch:
    """A `BatchAdapter` without a batch system. `fault` names the fault of the next call that can have it."""

    holds = True
    keeps_ended = False
    index_variable = "PAPER_INDEX"
    pilot_options: Mapping[str, str] = MappingProxyType({})
    place = ""
    cores = 64
    """Of each of its nodes."""

    def __init__(self) -> None:
        self.jobs: list[PaperJob] = []
        self.most: int | None = None
        """Submitted batch jobs at most; more are refused as full."""
        self.accounted: list[ListedTask] = []
        """Batch jobs of its accounting."""
        self.waits: dict[str, tuple[str, WaitClass]] = {}
        """By stamp: why its batch jobs wait."""
        self.fault = ""
        self.epoch = 1
        self._next_id = 1
        self._saved: tuple[list[PaperJob], int] = ([], 1)

    def submit(self, submission: BatchSubmission) -> Receipt:
        """Faults: full, refused, unreached, lost before the controller had it, lost after."""
        if self.fault == "no-answer":
            raise SubmissionFailed(SubmissionRefusal.IN_DOUBT, self.fault)
        fault = self._fault_of("full", "refused", "unreached", "lost-before", "lost-after")
        if fault in ("full", "refused", "unreached"):
            raise SubmissionFailed(SubmissionRefusal(fault), fault)
        if self.most is not None and len(self.jobs) + submission.count > self.most:
            raise SubmissionFailed(SubmissionRefusal.FULL, "MaxSubmitJobs")
        if reason := self.check(submission.shape):
            raise SubmissionFailed(SubmissionRefusal.REFUSED, reason)
        if fault == "lost-before":
            raise SubmissionFailed(SubmissionRefusal.IN_DOUBT, fault)
        array = str(self._next_id)
        self._next_id += 1
        properties = all_properties(submission)
        batch_ids = tuple(f"{array}.{index}" for index in range(submission.count))
        self.jobs += [
            PaperJob(submission.stamp, index, batch_id, NativeState.HELD, submission.script, properties)
            for index, batch_id in enumerate(batch_ids)
        ]
        if fault == "lost-after":
            raise SubmissionFailed(SubmissionRefusal.IN_DOUBT, fault)
        return Receipt(array, batch_ids)

    def release(self, stamps: Sequence[str]) -> None:
        """Faults: release-lost-before, release-lost-after, release-refused, release-lies (each time)."""
        if self.fault == "release-lies":
            return
        fault = self._fault_of("release-lost-before", "release-lost-after", "release-refused")
        if fault == "release-refused":
            raise SubmissionFailed(SubmissionRefusal.REFUSED, fault)
        if fault == "release-lost-before":
            raise Unreachable(fault)
        for stamp in stamps:
            self.change(stamp, NativeState.HELD, NativeState.WAITING)
        if fault:
            raise Unreachable(fault)

    def hold(self, stamps: Sequence[str]) -> None:
        self._fault_of()
        for stamp in stamps:
            self.change(stamp, NativeState.WAITING, NativeState.HELD)

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        self._fault_of()
        self.jobs = [
            job
            for job in self.jobs
            if job.stamp not in stamps or (waiting_only and job.state is NativeState.RUNNING)
        ]

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        self._fault_of()
        if epoch != str(self.epoch):
            raise Unreachable("started again")
        self.jobs = [
            job
            for job in self.jobs
            if job.batch_id not in batch_ids and job.batch_id.partition(".")[0] not in batch_ids
        ]

    def _fault_of(self, *faults: str) -> str:
        """The fault of this call, which has one of `faults`; "" if it has none. Raises if there is no answer."""
        if self.fault == "no-answer":
            raise Unreachable(self.fault)
        if self.fault not in faults:
            return ""
        fault, self.fault = self.fault, ""
        return fault

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        """Faults: listing-fails, listing-lies (each time: it is empty, and complete)."""
        if self.fault == "listing-lies":
            return BatchListing(str(self.epoch))
        if self.fault in ("listing-fails", "no-answer"):
            self.fault = "" if self.fault == "listing-fails" else self.fault
            return BatchListing(failure="no answer")
        tasks = (task for task in self._tasks() if stamps is None or task.stamp in stamps)
        return BatchListing(str(self.epoch), tuple(tasks))

    def status(self, batch_ids: Mapping[str, str]) -> BatchListing:
        return self.list_pilots(submissions_of(batch_ids))

    def list_accounted(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        self._fault_of()
        return [task for task in self.accounted if task.stamp in stamps]

    def properties(
        self, stamps: Collection[str] | None = None
    ) -> dict[tuple[str, int | None], dict[str, str]]:
        self._fault_of()
        return {
            (job.stamp, job.index): dict(job.properties)
            for job in self.jobs
            if stamps is None or job.stamp in stamps
        }

    def describe(self) -> list[BatchPartition]:
        self._fault_of()
        return [
            BatchPartition("paper", True, None, (NodeSize(1, self.cores, 1000 * self.cores),), default=True)
        ]

    def information(self) -> CeInformation:
        self._fault_of()
        states = [job.state for job in self.jobs]
        running = states.count(NativeState.RUNNING)
        hosts = HostClass(1, {"GlueHostArchitectureSMPSize": self.cores}, ("paper-1",))
        attributes: dict[str, Value] = {
            **hosts.attributes,
            "GlueCEName": "paper",
            "GlueCEInfoLRMSType": "paper",
            "GlueCEInfoTotalCPUs": self.cores,
            "GlueCEStateStatus": "Production",
            "GlueCEStateFreeCPUs": max(0, self.cores - running),
            "GlueCEStateRunningJobs": running,
            "GlueCEStateWaitingJobs": len(states) - running,
            "GlueCEStateTotalJobs": len(states),
        }
        return CeInformation(attributes, (hosts,))

    def accounts(self) -> list[BatchAccount]:
        return []

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        self._fault_of()
        return []

    def check(self, shape: Shape) -> str:
        return "" if shape.processors <= self.cores else f"no node has {shape.processors} cores"

    def output(self, stamp: str, index: int, most: int) -> str:
        return ""

    def close(self) -> None:
        """There is no command to kill."""

    def _tasks(self) -> Iterator[ListedTask]:
        for job in self.jobs:
            array = job.batch_id.partition(".")[0]
            waits = job.state in (NativeState.WAITING, NativeState.HELD)
            reason, wait = self.waits.get(job.stamp, ("", WaitClass.TRANSIENT)) if waits else ("", None)
            yield ListedTask(
                job.stamp, job.index, job.batch_id, job.state, str(job.state), reason, "", array, wait
            )

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
