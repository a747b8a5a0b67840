"""The assignments of the pilot: one record for each offered job and epoch, grouped by stage."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from pilotage.wire.finish_size import MAX_REPORTED, size_of
from pilotage.wire.pilot import MAX_OTHER_FOLDERS, Finish, OfferedJob, Reference, Release, StartedPayload

from .events import Key


class Stage(enum.Enum):
    """The stage of an assignment. The comment names the event that ends the stage."""

    OFFERED = "offered"  # the next exchange carries the confirm.
    CONFIRMING = "confirming"  # the verdict of that exchange, or its loss (back to OFFERED).
    READY = "ready"  # free processors on the node.
    RUNNING = "running"  # the end of its processes, or a Kill.
    STORING = "storing"  # the end of its uploads; it uses no cores.
    STOPPING = "stopping"  # the end of its processes; then it is released or reported as cut off.
    DROPPED = "dropped"  # the end of its processes; then it is removed, as it is no longer ours.
    FINISHED = "finished"  # the verdict on its Finish.
    RELEASED = "released"  # the verdict on its Release.

    # Hash by identity: members are unique, and the enumeration's own hash is a slow call in Python.
    __hash__ = object.__hash__


ALLOWED: Dict[Stage, Tuple[Stage, ...]] = {
    Stage.OFFERED: (Stage.CONFIRMING, Stage.RELEASED),
    Stage.CONFIRMING: (Stage.READY, Stage.OFFERED),
    Stage.READY: (Stage.RUNNING, Stage.RELEASED),
    Stage.RUNNING: (Stage.STORING, Stage.STOPPING, Stage.DROPPED, Stage.FINISHED),
    Stage.STORING: (Stage.STOPPING, Stage.DROPPED, Stage.FINISHED),
    Stage.STOPPING: (Stage.DROPPED, Stage.FINISHED, Stage.RELEASED),
    Stage.DROPPED: (),
    Stage.FINISHED: (),
    Stage.RELEASED: (),
}
"""Allowed changes of stage. Besides these, `Assignments.remove` may end an assignment in any stage."""

WAITING = (Stage.OFFERED, Stage.CONFIRMING, Stage.READY)
ACTIVE = (Stage.RUNNING, Stage.STORING, Stage.STOPPING, Stage.DROPPED)
OCCUPYING = (Stage.RUNNING, Stage.STOPPING, Stage.DROPPED)
"""Stages that use cores, memory and disk."""


@dataclass
class Assignment:
    """An offered job and its stage on this pilot."""

    offer: OfferedJob
    since: float
    """Instant at which the present stage began."""
    stage: Stage = Stage.OFFERED
    finish: Optional[Finish] = None
    reason: str = ""
    """Why it is being stopped or released."""
    ahead: bool = False
    """The server holds it for a job that has not started."""
    began: Optional[float] = None
    """Instant of the start of its payload; None: it has none."""
    written: int = 0
    """MB that it has written to the disk, as far as it was measured."""

    @property
    def key(self) -> Key:
        return (self.offer.job, self.offer.epoch)

    def ran(self) -> float:
        """Seconds from the start of its payload to the begin of the present stage; 0 without a start."""
        return 0.0 if self.began is None else max(0.0, self.since - self.began)


class Used(NamedTuple):
    """Resources of some assignments. Memory and disk in MB."""

    processors: int
    memory: int
    disk: int
    """All that they asked for."""
    written: int
    """The part of `disk` that they have written."""


class Assignments:
    """All assignments. Each is in exactly one stage; within a stage they keep their order of arrival."""

    def __init__(self) -> None:
        self._stages: Dict[Stage, Dict[Key, Assignment]] = {stage: {} for stage in Stage}
        self._stage_of: Dict[Key, Stage] = {}
        self.free_disk = math.inf
        """MB that the disk of the work folder has free; infinite: not known."""
        self.other_folders: Tuple[str, ...] = ()
        """Folders of jobs in place that this node does not share."""

    def __contains__(self, key: Key) -> bool:
        return key in self._stage_of

    def __len__(self) -> int:
        return len(self._stage_of)

    def add(self, assignment: Assignment) -> None:
        self._stage_of[assignment.key] = assignment.stage
        self._stages[assignment.stage][assignment.key] = assignment

    def get(self, key: Key) -> Optional[Assignment]:
        stage = self._stage_of.get(key)
        return None if stage is None else self._stages[stage][key]

    def move(self, assignment: Assignment, stage: Stage, now: float) -> None:
        """Change the stage of an assignment. A change outside of ALLOWED is an AssertionError."""
        if stage not in ALLOWED[assignment.stage]:
            raise AssertionError(f"{assignment.key}: {assignment.stage.value} to {stage.value}")
        del self._stages[assignment.stage][assignment.key]
        assignment.stage, assignment.since = stage, now
        if stage is Stage.RUNNING:
            assignment.began = now
        self._stages[stage][assignment.key] = assignment
        self._stage_of[assignment.key] = stage

    def remove(self, assignment: Assignment) -> None:
        del self._stages[assignment.stage][assignment.key]
        del self._stage_of[assignment.key]

    def remove_reported(self, key: Key, stage: Stage) -> None:
        """Remove an assignment if it is in this stage: the server has its report."""
        assignment = self.get(key)
        if assignment is not None and assignment.stage is stage:
            self.remove(assignment)

    def count(self, *stages: Stage) -> int:
        number = 0
        for stage in stages:  # called several times for each payload: a generator costs twice as much
            number += len(self._stages[stage])
        return number

    def in_stages(self, *stages: Stage) -> List[Assignment]:
        assignments: List[Assignment] = []
        for stage in stages:
            assignments += self._stages[stage].values()
        return assignments

    def oldest(self, stage: Stage) -> Optional[Assignment]:
        """The assignment that has been in this stage for the longest time."""
        return next(iter(self._stages[stage].values()), None)

    def waiting_since(self) -> float:
        """The instant since which an assignment waits for a confirm or for free processors; infinite: none does."""
        offered, ready = self.oldest(Stage.OFFERED), self.oldest(Stage.READY)
        return min(offered.since if offered else math.inf, ready.since if ready else math.inf)

    def note_disk(self, free: float, written: Mapping[Key, int]) -> None:
        """Record the MB that are free, and the MB that these assignments have written."""
        self.free_disk = free
        for key, megabytes in written.items():
            assignment = self.get(key)
            if assignment is not None:
                assignment.written = megabytes

    def give_up_folder(self, key: Key, folder: str, reason: str, now: float) -> None:
        """The node does not share this folder: give back all assignments that need it."""
        self.other_folders = (*self.other_folders, folder)[-MAX_OTHER_FOLDERS:]
        tried = self.get(key)
        if tried is not None and tried.stage is Stage.DROPPED:
            self.remove(tried)
        elif tried is not None:
            if tried.stage is Stage.RUNNING:
                self.move(tried, Stage.STOPPING, now)
            self._give_back(tried, reason, now)
        for waiting in self.in_stages(Stage.OFFERED, Stage.READY):
            if waiting.offer.payload.folder == folder:
                self._give_back(waiting, reason, now)

    def _give_back(self, assignment: Assignment, reason: str, now: float) -> None:
        assignment.reason = reason
        self.move(assignment, Stage.RELEASED, now)

    def resources_used(self, *stages: Stage) -> Used:
        """The resources of the assignments in these stages."""
        return used_by(self._each(stages))

    def _each(self, stages: Iterable[Stage]) -> Iterator[Assignment]:
        for stage in stages:
            yield from self._stages[stage].values()

    def finishes(self) -> List[Finish]:
        """The finishes for one message, oldest first. There is at least one, if there is any."""
        chosen: List[Finish] = []
        size = 0
        for assignment in self._stages[Stage.FINISHED].values():
            if assignment.finish is not None:
                size += size_of(assignment.finish)
                if chosen and size > MAX_REPORTED:
                    break
                chosen.append(assignment.finish)
        return chosen

    def releases(self) -> List[Release]:
        return [
            Release(assignment.offer.job, assignment.offer.epoch, assignment.reason, assignment.ran())
            for assignment in self._stages[Stage.RELEASED].values()
        ]

    def starts(self, now: float, age: float) -> List[StartedPayload]:
        """The untold starts of jobs taken ahead. Their payloads have run for `age` seconds or more."""
        return [
            StartedPayload(assignment.offer.job, assignment.offer.epoch, now - assignment.since)
            for assignment in self._untold()
            if now >= assignment.since + age
        ]

    def first_untold(self) -> float:
        """The first start of a running payload that the server does not know; infinite: it knows all."""
        return min((assignment.since for assignment in self._untold()), default=math.inf)

    def note_told(self, starts: Iterable[StartedPayload]) -> None:
        """The server has heard of these starts."""
        for start in starts:
            assignment = self.get((start.job, start.epoch))
            if assignment is not None:
                assignment.ahead = False

    def _untold(self) -> Iterator[Assignment]:
        return (assignment for assignment in self._stages[Stage.RUNNING].values() if assignment.ahead)

    def references(self, *stages: Stage) -> List[Reference]:
        return [Reference(assignment.offer.job, assignment.offer.epoch) for assignment in self._each(stages)]


def used_by(assignments: Iterable[Assignment]) -> Used:
    processors = memory = disk = written = 0
    for assignment in assignments:
        payload = assignment.offer.payload
        processors += payload.processors
        memory += payload.memory
        if payload.disk:
            disk += payload.disk
            written += min(payload.disk, assignment.written)
    return Used(processors, memory, disk, written)
