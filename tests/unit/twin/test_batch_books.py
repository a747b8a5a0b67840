"""The batch system in virtual time under any order of calls and failures, beside the simplest books of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import Shape
from pilotage.outside.batch.submission import NativeState, SubmissionFailed
from tests.unit.twin.batch_site import BatchSite, Pilot

KINDS = (NodeSize(2, 4, 4000), NodeSize(1, 8, 3000))
SHAPES = st.builds(Shape, st.sampled_from([1, 2, 4, 8]), st.sampled_from([0, 500, 2000]), st.just(0.0))
ALIVE = (NativeState.HELD, NativeState.WAITING, NativeState.RUNNING)


@dataclass
class Known:
    """One batch job, as it must be."""

    stamp: str
    shape: Shape
    released: bool = False
    by_administrator: bool = False
    cancelled: bool = False
    may_start: int = 1
    starts: int = 0
    gone: bool = False


class Batch(RuleBasedStateMachine):
    """`known`: all batch jobs that were ever submitted, by id. `saved`: the ids at the last save."""

    @initialize(seed=st.integers(0, 99), delay=st.sampled_from([0.0, 5.0]), waits=st.booleans())
    def begin(self, seed: int, delay: float, waits: bool) -> None:
        draw = partial(Random.uniform, a=-5.0, b=20.0) if waits else None
        self.site = BatchSite(*KINDS, start_delay=delay, waits=draw, wall_limit=500.0, kill_wait=10.0)
        self.known: dict[str, Known] = {}
        self.alive: dict[str, Pilot] = {}
        self.stamps: list[str] = []
        self.seen = 0

    def look(self) -> None:
        """Take down the pilots that were started."""
        for pilot in self.site.pilots[self.seen :]:
            known = self.known[pilot.start.batch_id]
            known.starts += 1
            assert known.released
            assert not known.cancelled, "a cancelled one has started"
            assert not known.by_administrator
            assert pilot.start.restarts == known.starts - 1
            assert pilot.start.submission.stamp == known.stamp
        self.seen = len(self.site.pilots)

    @rule(shape=SHAPES, count=st.integers(1, 5))
    def submit(self, shape: Shape, count: int) -> None:
        if self.site.batch.check(shape):
            return
        stamp = f"s{len(self.stamps)}"
        self.stamps.append(stamp)
        for batch_id in self.site.submit(stamp, count, shape):
            assert batch_id not in self.known
            self.known[batch_id] = Known(stamp, shape)

    def of(self, data: st.DataObject) -> tuple[str, list[Known]]:
        stamp = data.draw(st.sampled_from(self.stamps))
        return stamp, [known for known in self.known.values() if known.stamp == stamp]

    @precondition(lambda self: self.stamps)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        stamp, members = self.of(data)
        try:
            self.site.batch.release([stamp])
        except SubmissionFailed:
            assert any(known.by_administrator for known in members)
        for known in members:
            known.released |= not known.by_administrator

    @precondition(lambda self: self.stamps)
    @rule(data=st.data(), waiting_only=st.booleans())
    def cancel(self, data: st.DataObject, waiting_only: bool) -> None:
        stamp, members = self.of(data)
        listed = {task.batch_id: task.state for task in self.site.tasks(stamp)}
        self.site.batch.cancel([stamp], waiting_only=waiting_only)
        for batch_id, known in self.known.items():
            if known in members and not (waiting_only and listed.get(batch_id) is NativeState.RUNNING):
                known.cancelled = True

    @precondition(lambda self: self.stamps)
    @rule(data=st.data())
    def cancel_one(self, data: st.DataObject) -> None:
        batch_id = data.draw(st.sampled_from(sorted(self.known)))
        self.site.batch.cancel_tasks([batch_id], self.site.batch.list_pilots().epoch)
        self.known[batch_id].cancelled = True

    @precondition(lambda self: self.stamps)
    @rule(data=st.data(), hold=st.booleans())
    def administrate(self, data: st.DataObject, hold: bool) -> None:
        stamp, _ = self.of(data)
        before = {task.batch_id: task for task in self.site.tasks(stamp)}
        (self.site.system.hold if hold else self.site.system.unhold)(stamp)
        for batch_id, task in before.items():
            known = self.known[batch_id]
            if hold and task.state in (NativeState.HELD, NativeState.WAITING):
                known.by_administrator = True
            elif not hold and known.by_administrator:
                known.by_administrator, known.released = False, True

    @precondition(lambda self: self.site.pilots)
    @rule(data=st.data(), how=st.sampled_from(["requeue", "preempt", "preempt and requeue", "kill"]))
    def disturb(self, data: st.DataObject, how: str) -> None:
        batch_id = data.draw(st.sampled_from(sorted({pilot.start.batch_id for pilot in self.site.pilots})))
        system = self.site.system
        if how == "requeue":
            system.requeue(batch_id)
        elif how == "kill":
            system.kill(batch_id)
        else:
            system.preempt(batch_id, requeue=how != "preempt")
        self.known[batch_id].may_start += how.endswith("requeue")

    @precondition(lambda self: self.site.pilots)
    @rule(data=st.data(), code=st.integers(0, 2))
    def leave(self, data: st.DataObject, code: int) -> None:
        """Also processes that have ended long ago."""
        data.draw(st.sampled_from(self.site.pilots)).leave(code)

    @rule(number=st.integers(1, 3), up=st.booleans(), requeue=st.booleans(), pilots_live=st.booleans())
    def change_node(self, number: int, up: bool, requeue: bool, pilots_live: bool) -> None:
        system, name = self.site.system, f"node{number}"
        if up:
            system.repair_node(name)
            return
        ran = [task.batch_id for task in self.site.tasks() if task.node == name]
        system.fail_node(name, requeue=requeue, pilots_live=pilots_live)
        for batch_id in ran:
            self.known[batch_id].may_start += requeue

    @rule(seconds=st.sampled_from([0.0, 1.0, 10.0, 100.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.site.timers.advance(seconds)

    @rule(seconds=st.sampled_from([0.0, 3.0, 50.0]))
    def go_away(self, seconds: float) -> None:
        self.site.system.go_away(self.site.timers.now + seconds)
        self.site.timers.advance(seconds)

    @rule(saved=st.booleans())
    def restart(self, saved: bool) -> None:
        """A cold start with a state that was just saved is a warm one."""
        before = self.site.tasks()
        if saved:
            self.site.system.save()
            self.site.system.cold_start()
        else:
            self.site.system.restart()
        assert self.site.tasks() == before

    @invariant()
    def the_books_are_right(self) -> None:
        if not hasattr(self, "site"):
            return
        self.look()
        tasks = self.site.tasks()
        assert len({task.batch_id for task in tasks}) == len(tasks)
        self.check_nodes(tasks)
        for task in tasks:
            known = self.known[task.batch_id]
            assert task.stamp == known.stamp
            assert known.starts <= known.may_start
            if known.cancelled and task.state in ALIVE:
                assert task.state is NativeState.RUNNING, "it was asked to leave"
            if not known.released and not known.by_administrator and not known.cancelled:
                assert task.state is NativeState.HELD
            assert bool(task.node) is (task.state is NativeState.RUNNING) or task.state is NativeState.ENDED
        live = {task.batch_id for task in tasks if task.state in ALIVE}
        assert self.site.batch.properties().keys() == {(t.stamp, t.index) for t in tasks if t.state in ALIVE}
        for batch_id, known in self.known.items():
            known.gone |= batch_id not in live
            assert not (known.gone and batch_id in live), "it came back"
        by_stamp = [task for stamp in self.stamps for task in self.site.tasks(stamp)] if self.stamps else []
        assert by_stamp == tasks

    def check_nodes(self, tasks: Any) -> None:
        pool = self.site.system.nodes
        processors: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        for task in tasks:
            if task.state is NativeState.RUNNING:
                processors[task.node] += self.known[task.batch_id].shape.processors
                memory[task.node] += self.known[task.batch_id].shape.memory
        free = 0
        for node in pool.named.values():
            assert processors[node.name] + node.free_processors == node.processors
            assert memory[node.name] + node.free_memory == node.memory
            assert min(node.free_processors, node.free_memory) >= 0
            free += node.free_processors if node.up else 0
        attributes = self.site.batch.information().attributes
        states = Counter(task.state for task in tasks)
        assert attributes["GlueCEStateFreeCPUs"] == pool.free_processors == free
        assert attributes["GlueCEStateRunningJobs"] == states[NativeState.RUNNING]
        waiting = states[NativeState.WAITING] + states[NativeState.HELD]
        assert attributes["GlueCEStateWaitingJobs"] == waiting

    def teardown(self) -> None:
        """Everything that may run does, and nothing is left."""
        if not hasattr(self, "site"):
            return
        site = self.site
        for name in site.system.nodes.named:
            site.system.repair_node(name)
        for stamp in self.stamps:
            site.system.unhold(stamp)
            site.batch.release([stamp])
        for known in self.known.values():
            known.released, known.by_administrator = True, False
        site.timers.run()
        self.look()
        assert {task.state for task in site.tasks()} <= {NativeState.ENDED}
        assert all(known.starts or known.cancelled for known in self.known.values())


TestBatch = Batch.TestCase
TestBatch.settings = settings(max_examples=settings().max_examples, stateful_step_count=40)
