"""The adapter of a batch system in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from pilotage.core.brokering.host_classes import Host, group_hosts
from pilotage.core.errors import Unreachable
from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation, HostClass, Value
from pilotage.outside.batch.adapter import (
    BatchAccount,
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    submissions_of,
    unknown_hosts,
)
from pilotage.outside.batch.ce_facts import job_counts, known_limits, minima_of_hosts
from pilotage.outside.batch.properties import all_properties
from pilotage.outside.batch.submission import (
    BatchListing,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)
from pilotage.twin.batch.faults import POSSIBLE_FAULTS, BatchFault, BatchFaultKind, BatchFaults, NoFaults
from pilotage.twin.batch.system import HELD_BY_ADMINISTRATOR, TwinBatchSystem

_REFUSALS = {
    BatchFaultKind.FULL: SubmissionRefusal.FULL,
    BatchFaultKind.REFUSED: SubmissionRefusal.REFUSED,
}


class TwinBatchAdapter:
    """A `BatchAdapter` whose batch system is an object.

    The facts of its batch job reach a pilot with its start, so no text of a shell tells them. Native arguments that
    restrict the nodes are ignored: all nodes of a kind are alike.
    """

    holds = True
    keeps_ended = False
    index_variable = "BATCH_INDEX"
    pilot_options: Mapping[str, str] = MappingProxyType({})
    place = ""

    def __init__(self, system: TwinBatchSystem, faults: BatchFaults | None = None) -> None:
        self._system = system
        self._faults: BatchFaults = faults or NoFaults()
        self._closed = False

    def _fault(self, command: str) -> BatchFault | None:
        """The fault of a command. `Unreachable` if it is that the command reaches nobody."""
        system, fault = self._system, self._faults.next(command)
        if fault is not None and fault.kind not in POSSIBLE_FAULTS[command]:
            raise ValueError(f"{command} cannot have the fault {fault.kind}")
        if self._closed:
            raise Unreachable("the adapter is closed")
        if (
            fault is not None and fault.kind is BatchFaultKind.LOST_BEFORE
        ) or system.clock() < system.away_until:
            raise Unreachable(f"{system.settings.name} did not answer {command}")
        return fault

    def submit(self, submission: BatchSubmission) -> Receipt:
        try:
            fault = self._fault("submit")
        except Unreachable as error:
            raise SubmissionFailed(SubmissionRefusal.IN_DOUBT, str(error)) from None
        if fault is not None and fault.kind in _REFUSALS:
            raise SubmissionFailed(_REFUSALS[fault.kind], f"{fault.kind} for no reason")
        refused = self._refusal(submission)
        if fault is not None:
            part = fault.part if fault.kind is BatchFaultKind.PARTLY else 1.0
            if refused is None:
                self._system.submit(submission, int(submission.count * part))
            raise SubmissionFailed(SubmissionRefusal.IN_DOUBT, "the answer to submit was lost")
        if refused is not None:
            raise refused
        array = self._system.submit(submission, submission.count)
        return Receipt(array.id, tuple(task.batch_id for task in array.tasks.values()))

    def _refusal(self, submission: BatchSubmission) -> SubmissionFailed | None:
        if reason := self._system.refusal(submission.shape):
            return SubmissionFailed(SubmissionRefusal.REFUSED, reason)
        if self._system.is_full(submission.count):
            return SubmissionFailed(SubmissionRefusal.FULL, "too many batch jobs")
        return None

    def release(self, stamps: Sequence[str]) -> None:
        for stamp in stamps:
            self._change("release", partial(self._release, stamp))

    def _release(self, stamp: str) -> None:
        if not self._system.release(stamp):
            raise SubmissionFailed(SubmissionRefusal.REFUSED, HELD_BY_ADMINISTRATOR)

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        system = self._system
        for stamp in stamps:
            tasks = system.books.of_stamps([stamp])
            self._change("cancel", partial(system.cancel, tasks, waiting_only=waiting_only))

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        if batch_ids:
            self._change("cancel_tasks", partial(self._cancel_tasks, batch_ids, epoch))

    def _cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        system = self._system
        if epoch != system.epoch:
            raise Unreachable(
                f"{system.settings.name} was started again: its ids may belong to other jobs now"
            )
        for batch_id in batch_ids:
            system.cancel(system.books.of_id(batch_id))

    def _change(self, command: str, change: Callable[[], None]) -> None:
        """Give a command that changes something."""
        fault = self._fault(command)
        if fault is not None and fault.kind is BatchFaultKind.LIES:
            return
        if fault is not None and fault.kind is BatchFaultKind.REFUSED:
            raise SubmissionFailed(SubmissionRefusal.REFUSED, f"{fault.kind} for no reason")
        try:
            change()
        except (SubmissionFailed, Unreachable):
            if fault is None:
                raise
        if fault is not None:
            raise Unreachable(f"the answer to {command} was lost")

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        books, epoch = self._system.books, self._system.epoch
        if stamps is not None and not stamps:
            return BatchListing(epoch)
        try:
            fault = self._fault("list_pilots")
        except Unreachable as error:
            return BatchListing(failure=str(error))
        wanted = None if stamps is None else dict.fromkeys(stamps)
        if fault is not None and fault.kind is BatchFaultKind.STALE:
            tasks = books.listed_at(wanted, self._system.clock() - fault.age)
        else:
            tasks = [task.listed for task in books.of_stamps(wanted)]
        if fault is None or fault.kind is BatchFaultKind.STALE:
            return BatchListing(epoch, tuple(tasks))
        part = 0.0 if fault.kind is BatchFaultKind.LIES else fault.part
        failure = "the listing was cut off" if fault.kind is BatchFaultKind.PARTLY else ""
        return BatchListing(epoch, tuple(tasks[: int(len(tasks) * part)]), failure)

    def status(self, batch_ids: Mapping[str, str]) -> BatchListing:
        return self.list_pilots(submissions_of(batch_ids))

    def list_accounted(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        self._fault("list_accounted")
        system = self._system
        return [task.listed for task in system.books.accounted(stamps, system.clock() - since)]

    def properties(
        self, stamps: Collection[str] | None = None
    ) -> dict[tuple[str, int | None], dict[str, str]]:
        self._fault("properties")
        wanted = None if stamps is None else dict.fromkeys(stamps)
        return {
            (task.array.submission.stamp, task.index): all_properties(task.array.submission)
            for task in self._system.books.of_stamps(wanted)
            if task.state is not NativeState.ENDED
        }

    def describe(self) -> list[BatchPartition]:
        self._fault("describe")
        settings = self._system.settings
        return [BatchPartition(settings.name, True, settings.wall_limit, tuple(settings.kinds), default=True)]

    def information(self) -> CeInformation:
        self._fault("information")
        system = self._system
        settings, nodes, counts = system.settings, system.nodes, system.books.counts
        classes = self._host_classes()
        waiting = counts[NativeState.HELD] + counts[NativeState.WAITING]
        attributes: dict[str, Value] = {
            **minima_of_hosts(classes),
            **job_counts(counts[NativeState.RUNNING], waiting),
            "GlueCEName": settings.name,
            "GlueCEInfoLRMSType": "twin",
            "GlueCEInfoTotalCPUs": nodes.total_processors,
            "GlueCEStateStatus": "Production" if classes else "Queueing",
            "GlueCEStateFreeCPUs": nodes.free_processors,
            "UnavailableHosts": len(nodes.named) - sum(known.count for known in classes),
        }
        limits = {
            "GlueCEPolicyMaxWallClockTime": settings.wall_limit,
            "GlueCEPolicyMaxTotalJobs": settings.most_jobs,
        }
        return CeInformation(attributes | known_limits(limits), classes)

    def _host_classes(self) -> tuple[HostClass, ...]:
        """The nodes that are up."""
        settings = self._system.settings
        known: dict[tuple[int, int], Mapping[str, Value]] = {
            (kind.processors, kind.memory): {
                "GlueHostArchitectureSMPSize": kind.processors,
                **({"GlueHostMainMemoryRAMSize": kind.memory} if kind.memory > 1 else {}),
                **settings.host_attributes,
            }
            for kind in settings.kinds
        }
        nodes = self._system.nodes.named.values()
        return group_hosts(Host(node.name, known[node.processors, node.memory]) for node in nodes if node.up)

    def accounts(self) -> list[BatchAccount]:
        self._fault("accounts")
        return []

    def check(self, shape: Shape) -> str:
        self._fault("check")
        return self._system.refusal(shape)

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        self._fault("check_terms")
        return unknown_hosts(hosts, self._system.nodes.named)

    def output(self, stamp: str, index: int, most: int) -> str:
        """Its pilots print nothing."""
        return ""

    def close(self) -> None:
        self._closed = True
