"""One suite for all batch systems that hold submissions, and for the paper one that stands in for them."""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from secrets import token_hex

import pytest

from pilotage.core.errors import Unreachable
from pilotage.core.policy.model import SlurmOptions
from pilotage.outside.batch.runner import LocalRunner
from pilotage.outside.batch.slurm.adapter import SlurmBatch
from pilotage.outside.batch.slurm.commands import SlurmPilotSize
from pilotage.outside.batch.submission import BatchListing, ListedTask, NativeState, Refusal, SubmissionFailed
from pilotage.server.duties.batch_ces import BatchSystem
from tests import slurm
from tests.instance import until
from tests.paper_batch import PaperBatch

SIZE = SlurmPilotSize(processors=1, memory=100, wall=120.0)
SLEEP = "#!/bin/sh\nexec sleep 60\n"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class World:
    """A batch system with room for every submission, and the power to start its waiting jobs."""

    def __init__(
        self, batch: BatchSystem, start: Callable[[], object], restart: Callable[[], object]
    ) -> None:
        self.batch = batch
        self.start = start
        self.restart = restart
        """Start the controller again."""

    def states(self, stamp: str) -> Counter[NativeState]:
        """States of the pilots of a submission that have not ended."""
        listing = self.batch.list_pilots()
        assert listing.complete, listing.failure
        states = Counter(task.state for task in listing.tasks if task.stamp == stamp)
        del states[NativeState.ENDED]
        return states

    def reach(self, stamp: str, **states: int) -> None:
        """Wait until the pilots of a submission are in these states."""
        wanted = Counter({NativeState(name): count for name, count in states.items()})

        def reached() -> bool:
            self.start()
            return self.states(stamp) == wanted

        until(reached, 30, f"{states} instead of {self.states(stamp)}")


@contextmanager
def paper() -> Iterator[World]:
    batch = PaperBatch()

    def restart() -> None:
        batch.save_state()
        batch.crash()

    yield World(batch, batch.start, restart)


@contextmanager
def on_slurm() -> Iterator[World]:
    with slurm.cluster(nodes=1, processors=16) as made:
        batch = SlurmBatch(LocalRunner(made.environment), getpass.getuser(), SlurmOptions())
        yield World(batch, lambda: None, made.restart_controller)


SYSTEMS: dict[str, Callable[[], AbstractContextManager[World]]] = {"paper": paper, "slurm": on_slurm}


@pytest.fixture(scope="module", params=SYSTEMS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with SYSTEMS[request.param]() as made:
        yield made


@pytest.fixture
def stamp(world: World) -> Iterator[str]:
    made = f"pilotage-{token_hex(8)}"
    yield made
    world.batch.cancel(made)
    until(lambda: not world.states(made), 30, "the end of the test's pilots")


def test_a_submission_is_held_until_it_is_released(world: World, stamp: str) -> None:
    array = world.batch.submit(stamp, 3, SIZE, SLEEP)
    world.start()
    assert world.states(stamp) == {NativeState.HELD: 3}
    tasks = [task for task in world.batch.list_pilots().tasks if task.stamp == stamp]
    assert sorted((task.index, task.batch_id) for task in tasks) == [(n, f"{array}_{n}") for n in range(3)]
    world.batch.release(stamp)
    world.reach(stamp, running=3)
    world.batch.release(stamp)
    assert world.states(stamp) == {NativeState.RUNNING: 3}, "a second release does no harm"


def test_a_release_concerns_its_submission_alone(world: World, stamp: str) -> None:
    other = f"{stamp}0"
    world.batch.submit(stamp, 1, SIZE, SLEEP)
    world.batch.submit(other, 1, SIZE, SLEEP)
    world.batch.release(stamp)
    world.reach(stamp, running=1)
    assert world.states(other) == {NativeState.HELD: 1}
    world.batch.cancel(other)
    until(lambda: not world.states(other), 30, "the end of the other one")
    assert world.states(stamp) == {NativeState.RUNNING: 1}, "a cancel concerns its submission alone"


def test_a_release_of_nothing_is_no_error_or_unreachable(world: World) -> None:
    with suppress(Unreachable):
        world.batch.release("pilotage-that nobody has submitted")


def test_waiting_pilots_can_be_cancelled_without_the_running_ones(world: World, stamp: str) -> None:
    world.batch.submit(stamp, 2, SIZE, SLEEP)
    world.batch.cancel(stamp, waiting_only=True)
    until(lambda: not world.states(stamp), 30, "the end of held pilots")
    again = f"{stamp}1"
    world.batch.submit(again, 1, SIZE, SLEEP)
    world.batch.release(again)
    world.reach(again, running=1)
    world.batch.cancel(again, waiting_only=True)
    assert world.states(again) == {NativeState.RUNNING: 1}
    world.batch.cancel(again)
    until(lambda: not world.states(again), 30, "the end of running pilots")


def test_of_two_arrays_of_one_stamp_one_can_be_cancelled(world: World, stamp: str) -> None:
    first = world.batch.submit(stamp, 2, SIZE, SLEEP)
    second = world.batch.submit(stamp, 2, SIZE, SLEEP)
    assert world.states(stamp) == {NativeState.HELD: 4}
    world.batch.cancel_tasks([second], world.batch.list_pilots().epoch)
    until(lambda: world.states(stamp) == {NativeState.HELD: 2}, 30, "the end of the second array")
    ids = {task.batch_id for task in alive(world.batch.list_pilots(), stamp)}
    assert ids == {f"{first}_0", f"{first}_1"}


def test_a_started_controller_has_another_epoch_and_the_same_pilots(world: World, stamp: str) -> None:
    array = world.batch.submit(stamp, 1, SIZE, SLEEP)
    world.batch.release(stamp)
    world.reach(stamp, running=1)
    before = world.batch.list_pilots().epoch

    def restarted() -> bool:
        world.restart()
        return world.batch.list_pilots().epoch not in ("", before)

    # Slurm tells its start in whole seconds.
    until(restarted, 30, "another epoch")
    with pytest.raises(Unreachable, match="started again"):
        world.batch.cancel_tasks([f"{array}_0"], before)
    assert world.states(stamp) == {NativeState.RUNNING: 1}


def test_a_refused_submission_is_told_and_nothing_is_listed(world: World) -> None:
    if isinstance(world.batch, PaperBatch):
        world.batch.fault = "refused"
        size = SIZE
    else:
        size = SlurmPilotSize(processors=1, memory=0, wall=120.0)
        world.batch._options = SlurmOptions(partition="nosuch")  # type: ignore[attr-defined]
    try:
        with pytest.raises(SubmissionFailed) as failed:
            world.batch.submit("pilotage-refused", 1, size, SLEEP)
    finally:
        if not isinstance(world.batch, PaperBatch):
            world.batch._options = SlurmOptions()  # type: ignore[attr-defined]
    assert failed.value.refusal is Refusal.REFUSED
    assert not world.states("pilotage-refused")


def alive(listing: BatchListing, stamp: str) -> list[ListedTask]:
    return [task for task in listing.tasks if task.stamp == stamp and task.state is not NativeState.ENDED]
