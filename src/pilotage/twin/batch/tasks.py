"""The batch jobs of a batch system, and the books in which it keeps them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pilotage.core.pilots.waits import WaitClass
from pilotage.outside.batch.adapter import BatchSubmission
from pilotage.outside.batch.submission import ListedTask, NativeState


class Timer(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Let it not happen."""


class StartedPilot(Protocol):
    """The process of a pilot. It reports its exit through the callback that it was started with."""

    def signal(self, name: str) -> None:
        """Tell it the name of a signal, such as SIGTERM. It may leave, at once or later."""

    def kill(self) -> None:
        """End it at once."""


@dataclass(frozen=True, slots=True)
class BatchPilotStart:
    """All that a pilot can know of its batch job when it starts."""

    submission: BatchSubmission
    """The submission as it was made."""
    index: int
    batch_id: str
    node: str
    node_processors: int
    node_memory: int
    """MB of the whole node."""
    restarts: int
    batch_start: float
    """When the batch system began it, as its own clock tells it."""
    batch_end: float
    """When the batch system will end it, by the same clock; 0: never."""


class TaskEnd(NamedTuple):
    """How a batch job ends."""

    native: str
    reason: str = ""
    requeue: bool = False
    """It waits again instead."""


_WAITS = {NativeState.HELD: WaitClass.USER, NativeState.WAITING: WaitClass.TRANSIENT}


class BatchTask:
    """One batch job: one pilot of a submission."""

    __slots__ = (
        *("array", "batch_id", "end", "ended", "index", "memory", "native", "node", "pilot", "processors"),
        *("reason", "restarts", "run", "started", "state", "timer", "_listed"),
    )

    def __init__(self, array: BatchArray, index: int, memory: int) -> None:
        self.array = array
        self.index = index
        self.batch_id = f"{array.id}.{index}"
        self.processors = array.submission.shape.processors
        self.memory = memory
        self.restarts = 0
        self.run = 0
        """Differs from one start to the next. Reports of an earlier start are out of date."""
        self.node = ""
        self.started = self.ended = 0.0
        self.pilot: StartedPilot | None = None
        self.end: TaskEnd | None = None
        """Its end when it leaves; None: it was not told to leave."""
        self.timer: Timer | None = None
        """The end of its wait, its start, its limit or its kill: it has one at a time."""
        self.set_state(NativeState.HELD, "held", "held by its user")

    def set_state(self, state: NativeState, native: str, reason: str = "") -> None:
        self.state = state
        self.native = native
        self.reason = reason
        self._listed: ListedTask | None = None

    def set_timer(self, timer: Timer | None) -> None:
        """Replace its timer."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer

    @property
    def listed(self) -> ListedTask:
        """Its line in a listing."""
        if self._listed is None:
            array = self.array
            self._listed = ListedTask(
                array.submission.stamp,
                self.index,
                self.batch_id,
                self.state,
                self.native,
                self.reason,
                self.node,
                array.id,
                _WAITS.get(self.state),
            )
        return self._listed


class BatchArray:
    """The batch jobs of one submission that the batch system still knows, by index."""

    __slots__ = ("id", "submission", "tasks")

    def __init__(self, id_: str, submission: BatchSubmission) -> None:
        self.id = id_
        self.submission = submission
        self.tasks: dict[int, BatchTask] = {}


class TaskBooks:
    """Which batch jobs there are, and which there were."""

    def __init__(
        self, clock: Callable[[], float], *, remembered: float, accounted: float, past: float = 0.0
    ) -> None:
        """`remembered`: seconds for which ended batch jobs are listed. `accounted`: for which the accounting has them.

        `past`: seconds for which earlier listings can be given.
        """
        self.arrays: dict[str, BatchArray] = {}
        """Arrays by batch id."""
        self.counts = dict.fromkeys(NativeState, 0)
        """The number of batch jobs in each state. Ended ones count as long as they are listed."""
        self._clock = clock
        self._remembered = remembered
        self._accounted = accounted
        self._past = past
        self._changes: deque[tuple[float, BatchTask, ListedTask | None]] = deque()
        """The line that a batch job had before each change; None: it was not there."""
        self._by_stamp: dict[str, dict[str, BatchArray]] = {}
        self._ended: deque[BatchTask] = deque()
        self._accounted_tasks: deque[BatchTask] = deque()
        self._accounted_of: dict[str, deque[BatchTask]] = {}

    def add(self, task: BatchTask) -> None:
        """A new batch job, or one that comes back."""
        array = task.array
        if (known := array.tasks.get(task.index)) is not None:
            self.remove(known)
        self._note(task, None)
        if array.id not in self.arrays:
            self.arrays[array.id] = array
            self._by_stamp.setdefault(array.submission.stamp, {})[array.id] = array
        array.tasks[task.index] = task
        self.counts[task.state] += 1

    def remove(self, task: BatchTask) -> None:
        """Forget a batch job."""
        array = task.array
        self._note(task, task.listed if self._past else None)
        self.counts[task.state] -= 1
        del array.tasks[task.index]
        if not array.tasks:
            del self.arrays[array.id]
            of_stamp = self._by_stamp[array.submission.stamp]
            del of_stamp[array.id]
            if not of_stamp:
                del self._by_stamp[array.submission.stamp]

    def move(
        self, task: BatchTask, state: NativeState, native: str, reason: str = "", node: str | None = None
    ) -> None:
        """Change the state of a batch job. `node`: None leaves it where it is."""
        self._note(task, task.listed if self._past else None)
        self.counts[task.state] -= 1
        self.counts[state] += 1
        task.set_state(state, native, reason)
        if node is not None:
            task.node = node

    def _note(self, task: BatchTask, before: ListedTask | None) -> None:
        if self._past:
            now, changes = self._clock(), self._changes
            changes.append((now, task, before))
            while changes[0][0] < now - self._past:
                changes.popleft()

    def end(self, task: BatchTask, end: TaskEnd) -> None:
        self.move(task, NativeState.ENDED, end.native, end.reason)
        task.ended = self._clock()
        self._ended.append(task)
        self._accounted_tasks.append(task)
        self._accounted_of.setdefault(task.array.submission.stamp, deque()).append(task)

    def of_stamps(self, stamps: Collection[str] | None) -> Iterator[BatchTask]:
        """The batch jobs of these submissions; None: all."""
        self.forget()
        if stamps is None:
            for array in self.arrays.values():
                yield from array.tasks.values()
            return
        for stamp in stamps:
            for array in self._by_stamp.get(stamp, {}).values():
                yield from array.tasks.values()

    def listed_at(self, stamps: Collection[str] | None, when: float) -> list[ListedTask]:
        """The listing as it was then, or as far back as is known."""
        lines: dict[BatchTask, ListedTask | None] = {task: task.listed for task in self.of_stamps(stamps)}
        for changed, task, before in reversed(self._changes):
            if changed <= when:
                break
            if stamps is None or task.array.submission.stamp in stamps:
                lines[task] = before
        return [line for line in lines.values() if line is not None]

    def of_id(self, batch_id: str) -> Iterator[BatchTask]:
        """The batch jobs with this id: one, all of an array, or none."""
        array_id, dot, index = batch_id.partition(".")
        array = self.arrays.get(array_id)
        if array is not None and not dot:
            yield from array.tasks.values()
        elif array is not None and index.isdecimal() and int(index) in array.tasks:
            yield array.tasks[int(index)]

    def accounted(self, stamps: Collection[str], since: float) -> Iterator[BatchTask]:
        """The batch jobs of these submissions that run, or have ended not before `since`."""
        self.forget()
        for stamp in dict.fromkeys(stamps):
            yield from (task for task in self._accounted_of.get(stamp, ()) if task.ended >= since)
            for array in self._by_stamp.get(stamp, {}).values():
                yield from (task for task in array.tasks.values() if task.state is NativeState.RUNNING)

    def forget(self) -> None:
        """Drop batch jobs that have ended long ago. Each one costs this once."""
        now = self._clock()
        while self._ended and self._ended[0].ended <= now - self._remembered:
            task = self._ended.popleft()
            # It may have come back meanwhile, as another batch job of the same id.
            if task.array.tasks.get(task.index) is task:
                self.remove(task)
        while self._accounted_tasks and self._accounted_tasks[0].ended <= now - self._accounted:
            stamp = self._accounted_tasks.popleft().array.submission.stamp
            of_stamp = self._accounted_of[stamp]
            of_stamp.popleft()
            if not of_stamp:
                del self._accounted_of[stamp]
