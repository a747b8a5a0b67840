"""A batch system in virtual time: nodes, a queue, and batch jobs that are pilots.

It has no clock, timers or chance of its own, and starts no processes: all of these are given to it. A submission is an
array of held batch jobs. Released ones wait for their turn: first come, first served. A batch job that fits no node
lets all later ones wait.

The start of a pilot carries the submission as it was made. As in production, the script is the only way of a secret to
its pilot, and the batch system never reads the script. So the director of the twin writes scripts that are the secret
alone: nothing must be parsed, and `BatchSubmission` needs no field that real adapters would have to hide.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from math import inf
from typing import Final, TypeAlias

from pilotage.core.glue.information import Value
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.submission import CLUSTER_MARK, NativeState
from pilotage.twin.batch.nodes import BatchNode, NodePool
from pilotage.twin.batch.tasks import (
    BatchArray,
    BatchPilotStart,
    BatchTask,
    StartedPilot,
    TaskBooks,
    TaskEnd,
    Timer,
)

CallAt: TypeAlias = Callable[[float, Callable[[], None]], Timer]
"""Sets a callback that is due at an instant of the clock, as `call_at` of an event loop does."""
StartPilot: TypeAlias = Callable[[BatchPilotStart, Callable[[int], None]], StartedPilot]
"""Starts the process of a pilot. It calls the function that it gets once, with its exit code, when it ends."""

HELD_BY_ADMINISTRATOR: Final = "held by an administrator"
_CANCELLED: Final = TaskEnd("cancelled")
_TIMEOUT: Final = TaskEnd("timeout", "its time was over")
_NODE_FAILED: Final = TaskEnd("node failed")
_KILLED: Final = TaskEnd("failed", "signal 9")


@dataclass(frozen=True, slots=True)
class BatchSystemSettings:
    """A batch system as its site has set it up."""

    name: str
    kinds: Sequence[NodeSize]
    """Its nodes. Memory of at most 1 MB bounds no batch job."""
    _: KW_ONLY
    wall_limit: float | None = None
    """Seconds: the longest time of a batch job, and the time of one that asks for none. None: no limit."""
    kill_wait: float = 30.0
    """Seconds from the signal that asks a pilot to leave until it is killed."""
    start_delay: float = 0.0
    """Seconds from the begin of a batch job until its pilot starts."""
    waits: Callable[[random.Random], float] | None = None
    """Draws the seconds that other users' batch jobs let one wait, although a node may be free. None: no others."""
    most_jobs: int | None = None
    """Batch jobs that it knows at most; further ones are refused for now."""
    memory_per_processor: int = 0
    """MB that a batch job gets which asks for none."""
    remembered: float = 300.0
    """Seconds for which listings have batch jobs that have ended."""
    accounted: float = 86_400.0
    """Seconds for which the accounting has them."""
    past: float = 0.0
    """Seconds of the past that a stale listing can show."""
    host_attributes: dict[str, Value] = field(default_factory=dict)
    """Further attributes of each node, in GLUE names."""


class TwinBatchSystem:
    """The controller of a batch system, its nodes, and its administrators."""

    def __init__(
        self,
        settings: BatchSystemSettings,
        start_pilot: StartPilot,
        *,
        clock: Callable[[], float],
        call_at: CallAt,
        rng: random.Random,
    ) -> None:
        self.settings = settings
        self.nodes = NodePool(settings.kinds)
        self.books = TaskBooks(
            clock, remembered=settings.remembered, accounted=settings.accounted, past=settings.past
        )
        self.clock = clock
        self.skew = 0.0
        """Seconds by which its clock is ahead, in all times that it tells."""
        self.starts = 1
        """Starts of its controller."""
        self.away_until = -inf
        self._start_pilot, self._call_at, self._rng = start_pilot, call_at, rng
        self._queue: OrderedDict[BatchTask, None] = OrderedDict()
        self._next_id = 1
        self._pass: Timer | None = None
        self._saved: tuple[list[tuple[BatchTask, NativeState, str, str]], int] = ([], 1)

    @property
    def epoch(self) -> str:
        return f"{self.starts}{CLUSTER_MARK}{self.settings.name}"

    # Users

    def refusal(self, shape: Shape) -> str:
        """Why no batch job of this shape will ever run; "": it will."""
        limit, memory = self.settings.wall_limit, self._memory(shape)
        if limit is not None and shape.wall > limit:
            return f"a batch job may run for {limit:g} s, not {shape.wall:g} s"
        if not any(
            kind.processors >= shape.processors and (kind.memory <= 1 or kind.memory >= memory)
            for kind in self.settings.kinds
        ):
            return f"no node has {shape.processors} processors and {memory} MB"
        return ""

    def is_full(self, more: int) -> bool:
        """Whether it has no room for this number of further batch jobs."""
        counts = self.books.counts
        known = sum(counts.values()) - counts[NativeState.ENDED]
        return self.settings.most_jobs is not None and known + more > self.settings.most_jobs

    def submit(self, submission: BatchSubmission, count: int) -> BatchArray:
        """Accept the first `count` pilots of a submission, held."""
        array = BatchArray(str(self._next_id), submission)
        self._next_id += 1
        memory = self._memory(submission.shape)
        for index in range(count):
            self.books.add(BatchTask(array, index, memory))
        return array

    def _memory(self, shape: Shape) -> int:
        return shape.memory or self.settings.memory_per_processor * shape.processors

    def release(self, stamp: str) -> bool:
        """Let the batch jobs of a submission wait for their turn. False: an administrator holds some."""
        free = True
        for task in list(self.books.of_stamps([stamp])):
            if task.state is NativeState.HELD:
                if task.reason == HELD_BY_ADMINISTRATOR:
                    free = False
                else:
                    self._enqueue(task)
        return free

    def cancel(self, tasks: Iterable[BatchTask], *, waiting_only: bool = False) -> None:
        """Cancel batch jobs. One that runs is asked to leave, and is killed later."""
        for task in list(tasks):
            if task.state in (NativeState.HELD, NativeState.WAITING):
                self._end(task, _CANCELLED)
            elif task.state is NativeState.RUNNING and not waiting_only:
                self._ask_to_leave(task, _CANCELLED)

    # The way of a batch job

    def _enqueue(self, task: BatchTask) -> None:
        self.books.move(task, NativeState.WAITING, "waiting", "waits for its turn", "")
        waits = self.settings.waits
        wait = 0.0 if waits is None else waits(self._rng)
        if wait > 0:
            task.set_timer(self._call_at(self.clock() + wait, partial(self._come_up, task)))
        else:
            self._come_up(task)

    def _come_up(self, task: BatchTask) -> None:
        task.timer = None
        self._queue[task] = None
        self._plan_pass()

    def _plan_pass(self) -> None:
        """Start waiting batch jobs soon, but not in the middle of somebody's call."""
        if self._pass is None and self._queue and self.clock() >= self.away_until:
            self._pass = self._call_at(self.clock(), self._start_waiting)

    def _start_waiting(self) -> None:
        self._pass = None
        if self.clock() < self.away_until:
            return
        while self._queue:
            task = next(iter(self._queue))
            node = self.nodes.take(task)
            if node is None:
                break
            del self._queue[task]
            self._begin(task, node)

    def _begin(self, task: BatchTask, node: BatchNode) -> None:
        task.started = self.clock()
        self.books.move(task, NativeState.RUNNING, "running", "", node.name)
        if self.settings.start_delay > 0:
            start = partial(self._launch, task, node)
            task.set_timer(self._call_at(task.started + self.settings.start_delay, start))
        else:
            self._launch(task, node)

    def _launch(self, task: BatchTask, node: BatchNode) -> None:
        run, submission = task.run, task.array.submission
        wall = submission.shape.wall or self.settings.wall_limit
        end = task.started + wall if wall else 0.0
        task.timer = None
        if wall:
            task.timer = self._call_at(end, partial(self._ask_to_leave, task, _TIMEOUT))
        start = BatchPilotStart(
            submission,
            task.index,
            task.batch_id,
            node.name,
            node.processors,
            node.memory,
            task.restarts,
            task.started + self.skew,
            end + self.skew if wall else 0.0,
        )
        pilot = self._start_pilot(start, partial(self._left, task, run))
        if task.run == run:
            task.pilot = pilot

    def _left(self, task: BatchTask, run: int, code: int) -> None:
        """The process of a pilot has ended by itself."""
        if task.run == run:
            self._end(task, TaskEnd("failed", f"exit code {code}") if code else TaskEnd("completed"))

    def _ask_to_leave(self, task: BatchTask, end: TaskEnd) -> None:
        """Signal a pilot. The first cause counts, but a requeued batch job that is cancelled does not come back."""
        if task.end is not None:
            # A second signal would give it more time.
            task.end = end if task.end.requeue else task.end
            return
        if task.pilot is None:
            self._end(task, end)
            return
        task.end = end
        kill = partial(self._kill, task, end)
        task.set_timer(self._call_at(self.clock() + self.settings.kill_wait, kill))
        task.pilot.signal("SIGTERM")

    def _kill(self, task: BatchTask, end: TaskEnd) -> None:
        """End a batch job that runs, and its pilot with it."""
        pilot = task.pilot
        self._end(task, end)
        if pilot is not None:
            pilot.kill()

    def _end(self, task: BatchTask, end: TaskEnd) -> None:
        """End a batch job. An earlier cause, for which it was asked to leave, counts more."""
        end = task.end or end
        self._leave_node(task)
        if end.requeue:
            task.restarts += 1
            self._enqueue(task)
        else:
            self.books.end(task, end)

    def _leave_node(self, task: BatchTask) -> None:
        """Take a batch job from its node, or from the queue."""
        task.set_timer(None)
        task.pilot = task.end = None
        task.run += 1
        if task.state is NativeState.RUNNING:
            self.nodes.give_back(self.nodes.named[task.node], task)
            self._plan_pass()
        elif task in self._queue:
            # Later ones may fit.
            del self._queue[task]
            self._plan_pass()

    # Administrators and failures

    def hold(self, stamp: str) -> None:
        """An administrator holds the batch jobs of a submission that wait."""
        for task in list(self.books.of_stamps([stamp])):
            if task.state in (NativeState.HELD, NativeState.WAITING):
                self._leave_node(task)
                self.books.move(task, NativeState.HELD, "held", HELD_BY_ADMINISTRATOR)

    def unhold(self, stamp: str) -> None:
        """The administrator lets them go on."""
        for task in list(self.books.of_stamps([stamp])):
            if task.state is NativeState.HELD and task.reason == HELD_BY_ADMINISTRATOR:
                self._enqueue(task)

    def preempt(self, batch_id: str, *, requeue: bool = False) -> None:
        """Ask a running batch job to leave, for one that is worth more."""
        for task in self._running(batch_id):
            self._ask_to_leave(task, TaskEnd("preempted", "made room for another", requeue))

    def requeue(self, batch_id: str) -> None:
        """Kill a running batch job, and let it wait to be started again."""
        for task in self._running(batch_id):
            self._kill(task, TaskEnd("requeued", "", requeue=True))

    def kill(self, batch_id: str) -> None:
        """End a running batch job without a signal before."""
        for task in self._running(batch_id):
            self._kill(task, _KILLED)

    def _running(self, batch_id: str) -> list[BatchTask]:
        return [task for task in self.books.of_id(batch_id) if task.state is NativeState.RUNNING]

    def fail_node(self, name: str, *, requeue: bool = False, pilots_live: bool = False) -> None:
        """A node is lost, with its batch jobs. `pilots_live`: only its network is, and nobody can end its pilots."""
        node = self.nodes.named[name]
        self.nodes.set_up(node, False)
        end = _NODE_FAILED._replace(requeue=requeue)
        for task in list(node.tasks):
            if pilots_live:
                self._end(task, end)
            else:
                self._kill(task, end)

    def repair_node(self, name: str) -> None:
        """A node is there again."""
        self.nodes.set_up(self.nodes.named[name], True)
        self._plan_pass()

    def go_away(self, until: float) -> None:
        """The controller answers nobody and starts nothing until then. Running pilots run on."""
        self.away_until = until
        if until < inf:
            self._call_at(max(until, self.clock()), self._plan_pass)

    def restart(self) -> None:
        """The controller starts again, and knows all that it knew."""
        self.starts += 1

    def save(self) -> None:
        """Keep the state of now for a cold start, as a controller does every few seconds."""
        self._saved = self._now_saved(), self._next_id

    def _now_saved(self) -> list[tuple[BatchTask, NativeState, str, str]]:
        return [
            (task, task.state, task.native, task.reason)
            for task in self.books.of_stamps(None)
            if task.state is not NativeState.ENDED
        ]

    def cold_start(self) -> None:
        """The controller starts again from its saved state. It gives later batch ids a second time.

        Nodes tell which of the saved batch jobs still run. Later ones are lost, and their pilots are killed. Saved ones
        that waited then wait again, even if they have run and ended since.
        """
        saved, self._next_id = self._saved
        known = {task for task, *_ in saved}
        for task, *_ in self._now_saved():
            if task not in known:
                self._lose(task)
        for task, state, native, reason in saved:
            if state in (NativeState.HELD, NativeState.WAITING):
                self._come_back(task, state, native, reason)
        self.starts += 1

    def _lose(self, task: BatchTask) -> None:
        pilot = task.pilot
        self._leave_node(task)
        self.books.remove(task)
        if pilot is not None:
            pilot.kill()

    def _come_back(self, task: BatchTask, state: NativeState, native: str, reason: str) -> None:
        if task.state is NativeState.ENDED:
            task = BatchTask(task.array, task.index, task.memory)
            self.books.add(task)
        if state is NativeState.HELD and task.state is not NativeState.RUNNING:
            self._leave_node(task)
            self.books.move(task, state, native, reason)
        elif task.state is NativeState.HELD:
            self._enqueue(task)
