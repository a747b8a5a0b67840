"""Plain machines as a batch system: pilots are processes, found by their stamps on each machine.

The batch id is `pid:start:boot@HOST`, the start in clock ticks since boot and a part of the boot's id, since process
ids are used again. A machine that does not answer is away: its pilots are unknown, and others are served.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TypeVar

from pilotage.core.brokering.host_classes import Host, group_hosts
from pilotage.core.errors import Unreachable
from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation, Value
from pilotage.core.plurals import plural
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import (
    BatchAccount,
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    split_stamp,
    unknown_hosts,
)
from pilotage.outside.batch.ce_facts import job_counts, minima_of_hosts
from pilotage.outside.batch.machines.far_machine import FarMachine, MachineSurvey, StartAnswer, StartOrder
from pilotage.outside.batch.properties import all_properties, read_properties, write_properties
from pilotage.outside.batch.submission import (
    BatchListing,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)

MOST_AT_ONCE = 16
"""Machines that are asked at the same time."""

EPOCH = "machines"
"""Batch ids have the boot of their machine in themselves, so ids of all times are told apart."""

_Answer = TypeVar("_Answer")


class MachinesBatch:
    """The adapter of one CE: a `BatchAdapter`. It keeps no state."""

    holds = False
    keeps_ended = False
    index_variable = "PILOTAGE_INDEX"
    pilot_options: Mapping[str, str] = MappingProxyType({"--cut-off": "leave"})
    """No batch system ends these pilots, and the machines belong to others."""
    place = ""

    def __init__(self, machines: Sequence[FarMachine], wall: float) -> None:
        """`wall`: seconds that a pilot may live, for the description of the CE."""
        self._machines = {machine.name: machine for machine in machines}
        self._wall = wall

    def _ask(
        self, names: Collection[str], call: Callable[[FarMachine], _Answer]
    ) -> tuple[dict[str, _Answer], dict[str, str]]:
        """The answers of these machines, all at the same time, and the reasons of the machines that are away."""
        answers, away = dict[str, _Answer](), dict[str, str]()
        if not names:
            return answers, away
        with ThreadPoolExecutor(min(MOST_AT_ONCE, len(names)), "machines") as threads:
            asked = {name: threads.submit(call, self._machines[name]) for name in names}
        for name, answer in asked.items():
            try:
                answers[name] = answer.result()
            except Unreachable as error:
                away[name] = error.message
        return answers, away

    def _survey(self) -> tuple[dict[str, MachineSurvey], dict[str, str]]:
        return self._ask(self._machines, FarMachine.survey)

    def submit(self, submission: BatchSubmission) -> Receipt:
        surveys, away = self._survey()
        chosen = _choose(surveys, submission)
        if len(chosen) < submission.count:
            raise SubmissionFailed(SubmissionRefusal.FULL, _no_room(surveys, away, submission))
        properties = write_properties(all_properties(submission))
        orders = {
            name: StartOrder(
                submission.stamp,
                tuple(index for index, other in enumerate(chosen) if other == name),
                max(1, submission.shape.processors),
                properties,
            )
            for name in dict.fromkeys(chosen)
        }
        starts, failed = self._ask(
            orders, lambda machine: machine.start(orders[machine.name], submission.script)
        )
        full = {name: start.full for name, start in starts.items() if start.full}
        if failed or (full and len(full) < len(orders)):
            raise SubmissionFailed(SubmissionRefusal.IN_DOUBT, "; ".join([*failed.values(), *_reasons(full)]))
        if full:
            raise SubmissionFailed(SubmissionRefusal.FULL, "; ".join(_reasons(full)))
        ids = _ids(starts)
        return Receipt(ids[0], tuple(ids[index] for index in range(submission.count)))

    def release(self, stamps: Sequence[str]) -> None:
        """Their submission has released them."""

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        """Ask each pilot to leave. None waits: each runs from its submission on."""
        if stamps and not waiting_only:
            self._end(self._machines, lambda name: (list(stamps), []))

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        if batch_ids and epoch != EPOCH:
            raise Unreachable("the CE was started again as another one: its ids are of other pilots")
        ids: dict[str, list[str]] = {}
        for batch_id in batch_ids:
            process, _, name = batch_id.partition("@")
            if name in self._machines:
                ids.setdefault(name, []).append(process)
        self._end(ids, lambda name: ([], ids[name]))

    def _end(self, names: Collection[str], which: Callable[[str], tuple[list[str], list[str]]]) -> None:
        _, away = self._ask(names, lambda machine: machine.end(*which(machine.name)))
        if away:
            raise Unreachable("; ".join(away.values()))

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        """A listing of the machines that answer. It is complete if all do."""
        if stamps is not None and not stamps:
            return BatchListing(EPOCH)
        surveys, away = self._survey()
        tasks = tuple(task for task in _tasks(surveys) if stamps is None or task.stamp in stamps)
        return BatchListing(EPOCH, tasks, "; ".join(away.values()))

    def status(self, batch_ids: Mapping[str, str]) -> BatchListing:
        """All pilots of the machines that answer, and as unknown the pilots that may be on another one.

        The listing has failed only if no machine answers.
        """
        surveys, away = self._survey()
        if not surveys:
            return BatchListing(EPOCH, failure="; ".join(away.values()) or "the CE has no machines")
        tasks = list(_tasks(surveys))
        listed = {f"{task.stamp}/{task.index}" for task in tasks}
        for stamp, batch_id in batch_ids.items():
            name = batch_id.partition("@")[2]
            if stamp not in listed and away and (not name or name in away):
                submission, index = split_stamp(stamp)
                tasks.append(
                    ListedTask(
                        submission, index, batch_id, NativeState.UNKNOWN, "away", away.get(name, ""), name
                    )
                )
        return BatchListing(EPOCH, tuple(tasks))

    def list_accounted(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        """Processes have no accounting."""
        return []

    def properties(
        self, stamps: Collection[str] | None = None
    ) -> dict[tuple[str, int | None], dict[str, str]]:
        return {
            split_stamp(pilot.stamp): read_properties(pilot.properties)
            for survey in self._answering().values()
            for pilot in survey.pilots
            if stamps is None or split_stamp(pilot.stamp)[0] in stamps
        }

    def describe(self) -> list[BatchPartition]:
        surveys = self._answering()
        kinds = tuple(NodeSize(1, survey.cores, survey.memory) for survey in surveys.values())
        return [BatchPartition("machines", True, None, kinds, default=True)]

    def _answering(self) -> dict[str, MachineSurvey]:
        """The machines that answer. `Unreachable` if none does."""
        surveys, away = self._survey()
        if not surveys:
            raise Unreachable("; ".join(away.values()) or "the CE has no machines")
        return surveys

    def information(self) -> CeInformation:
        """The machines that answer now."""
        surveys = self._answering()
        classes = group_hosts(
            Host(
                name,
                {
                    "GlueHostArchitecturePlatformType": survey.architecture,
                    "GlueHostArchitectureSMPSize": survey.cores,
                    "GlueHostMainMemoryRAMSize": survey.memory,
                },
            )
            for name, survey in surveys.items()
        )
        attributes: dict[str, Value] = {
            **minima_of_hosts(classes),
            "GlueCEName": "machines",
            "GlueCEInfoLRMSType": "machines",
            "GlueCEInfoHostName": next(iter(surveys)),
            "GlueCEInfoTotalCPUs": sum(survey.cores for survey in surveys.values()),
            "GlueCEStateStatus": "Production",
            "GlueCEStateFreeCPUs": sum(survey.free for survey in surveys.values()),
            "GlueCEPolicyMaxWallClockTime": int(self._wall),
            **job_counts(sum(len(survey.pilots) for survey in surveys.values()), 0),
        }
        return CeInformation(attributes, classes, homogeneous=len(classes) == 1)

    def accounts(self) -> list[BatchAccount]:
        return []

    def check(self, shape: Shape) -> str:
        surveys = self._answering()
        most = max(survey.cores for survey in surveys.values())
        if shape.processors <= most:
            return ""
        return f"the largest machine that answers has {plural(most, 'core')}, not {shape.processors}"

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        """There is no forward table."""
        return unknown_hosts(hosts, self._machines)

    def output(self, stamp: str, index: int, most: int) -> str:
        """The end of a pilot's output, from the machine that has some."""
        tails, _ = self._ask(self._machines, lambda machine: machine.tail(f"{stamp}/{index}", 4 * most))
        return next((text[-most:] for text in tails.values() if text), "")

    def close(self) -> None:
        for machine in self._machines.values():
            machine.close()


def _choose(surveys: Mapping[str, MachineSurvey], submission: BatchSubmission) -> list[str]:
    """The machine of each pilot, the one with the most free cores first; fewer machines than pilots: no room."""
    each = max(1, submission.shape.processors)
    free = {name: survey.free for name, survey in surveys.items()}
    chosen: list[str] = []
    while free and len(chosen) < submission.count:
        name = max(free, key=lambda name: free[name])
        if free[name] < each:
            break
        free[name] -= each
        chosen.append(name)
    return chosen


def _no_room(
    surveys: Mapping[str, MachineSurvey], away: Mapping[str, str], submission: BatchSubmission
) -> str:
    free = sum(survey.free for survey in surveys.values())
    text = f"{plural(free, 'core')} free on {plural(len(surveys), 'machine')} that answer"
    wanted = f"{plural(submission.count, 'pilot')} of {plural(max(1, submission.shape.processors), 'core')}"
    reasons = "; ".join(away.values())
    return f"{text}, {wanted} asked for" + (f"; {reasons}" if reasons else "")


def _reasons(full: Mapping[str, str]) -> list[str]:
    return [f"{name}: {reason}" for name, reason in full.items()]


def _ids(starts: Mapping[str, StartAnswer]) -> dict[int, str]:
    """The batch ids of started pilots, by index."""
    return {
        pilot.index: f"{pilot.pid}:{pilot.started}:{start.boot}@{name}"
        for name, start in starts.items()
        for pilot in start.started
    }


def _tasks(surveys: Mapping[str, MachineSurvey]) -> Iterator[ListedTask]:
    for name, survey in surveys.items():
        for pilot in survey.pilots:
            submission, index = split_stamp(pilot.stamp)
            batch_id = f"{pilot.pid}:{pilot.started}:{survey.boot}@{name}"
            yield ListedTask(submission, index, batch_id, NativeState.RUNNING, "running", "", survey.host)
