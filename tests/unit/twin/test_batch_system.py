"""The batch system in virtual time: nodes, the queue, and the life of a batch job."""

from __future__ import annotations

import sys

import pytest

from pilotage.core.pilots.waits import WaitClass
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import Shape
from pilotage.outside.batch.submission import NativeState, SubmissionFailed, SubmissionRefusal
from tests.unit.twin.batch_site import WALL, BatchSite

HELD, WAITING, RUNNING, ENDED = (
    NativeState.HELD,
    NativeState.WAITING,
    NativeState.RUNNING,
    NativeState.ENDED,
)


def test_a_released_pilot_starts_with_all_that_it_can_know() -> None:
    site = BatchSite(start_delay=5.0, wall_limit=WALL)
    site.timers.advance(100)
    [_, second] = site.submit("s", 2)
    site.timers.run()
    assert site.pilots == []
    assert {(task.reason, task.wait) for task in site.tasks()} == {("held by its user", WaitClass.USER)}
    site.batch.release(["s"])
    site.timers.advance(5)
    start = site.pilots[1].start
    assert (start.submission.stamp, start.submission.script) == ("s", "secret of s")
    assert (start.index, start.batch_id, start.restarts) == (1, second, 0)
    assert (start.node_processors, start.node_memory) == (4, 4000)
    assert start.node == site.tasks()[1].node
    assert (start.batch_start, start.batch_end) == (100, 100 + WALL)
    assert site.pilots[1].began == 105


def test_pilots_start_in_their_order_and_one_that_fits_nowhere_delays_the_others() -> None:
    site = BatchSite(NodeSize(1, 4, 4000))
    site.run("first", 1, Shape(3))
    site.run("large", 1, Shape(2))
    site.run("small", 1, Shape(1))
    assert [pilot.start.submission.stamp for pilot in site.pilots] == ["first"]
    site.pilots[0].leave(0)
    site.timers.advance(0)
    assert [pilot.start.submission.stamp for pilot in site.pilots] == ["first", "large", "small"]


def test_the_end_of_the_first_in_the_queue_lets_the_others_start() -> None:
    site = BatchSite(NodeSize(1, 4, 4000))
    site.run("first", 1, Shape(3))
    site.run("large", 1, Shape(2))
    site.run("small", 1, Shape(1))
    site.batch.cancel(["large"])
    site.timers.advance(0)
    assert site.started() == ["1.0", "3.0"]


@pytest.mark.parametrize(("shape", "fit"), [(Shape(1, 1500), 4), (Shape(2, 100), 4), (Shape(3), 2)])
def test_no_node_has_more_than_it_has_room_for(shape: Shape, fit: int) -> None:
    site = BatchSite()
    site.run("s", 9, shape)
    assert site.states() == {RUNNING: fit, WAITING: 9 - fit}
    nodes = [pilot.start.node for pilot in site.pilots]
    assert max(nodes.count(node) for node in nodes) == fit // 2
    site.pilots[0].leave(0)
    site.timers.advance(0)
    assert site.pilots[-1].start.node == site.pilots[0].start.node


def test_a_pilot_goes_where_it_leaves_least_free() -> None:
    site = BatchSite(NodeSize(1, 8, 8000), NodeSize(1, 4, 4000))
    site.run("s", 2, Shape(2))
    site.run("whole", 1, Shape(8))
    assert [pilot.start.node for pilot in site.pilots] == ["node2", "node2", "node1"]


def test_memory_that_a_pilot_does_not_ask_for_is_the_default_of_its_processors() -> None:
    site = BatchSite(NodeSize(1, 4, 4000), memory_per_processor=2000)
    site.run("s", 3)
    assert site.states() == {RUNNING: 2, WAITING: 1}
    unknown = BatchSite(NodeSize(1, 4, 1), memory_per_processor=2000)
    unknown.run("s", 3)
    assert unknown.states() == {RUNNING: 3}


def test_a_queue_of_other_users_lets_pilots_wait_as_drawn() -> None:
    waits = iter([50.0, 10.0, 0.0])
    site = BatchSite(waits=lambda rng: next(waits))
    site.run("s", 3)
    site.timers.run()
    assert [(pilot.start.index, pilot.began) for pilot in site.pilots] == [(2, 0.0), (1, 10.0), (0, 50.0)]


def test_a_pilot_that_is_cancelled_while_it_waits_never_starts() -> None:
    site = BatchSite(NodeSize(1, 1, 1000), waits=lambda rng: 10.0, start_delay=5.0)
    site.run("first")
    site.run("second")
    site.timers.advance(12)
    site.batch.cancel(["first"])
    site.timers.advance(4)
    site.batch.cancel(["second"])
    site.timers.run()
    assert site.pilots == []
    assert {task.native for task in site.tasks()} == {"cancelled"}


def test_a_cancelled_pilot_is_signalled_once_and_killed_later() -> None:
    site = BatchSite(kill_wait=30.0)
    site.run("s", 2)
    polite, deaf = site.pilots
    polite.polite = True
    site.batch.cancel(["s"])
    assert site.states() == {ENDED: 1, RUNNING: 1}
    site.timers.advance(20)
    site.batch.cancel(["s"])
    site.timers.advance(9)
    assert (deaf.signals, deaf.killed) == (["SIGTERM"], False)
    site.timers.advance(1)
    assert (polite.killed, deaf.killed) == (False, True)
    assert {task.native for task in site.tasks()} == {"cancelled"}


def test_the_wall_limit_signals_and_kills() -> None:
    site = BatchSite(kill_wait=30.0, wall_limit=WALL)
    [limited, short] = [*site.run("limited"), *site.run("short", 1, Shape(1, wall=60.0))]
    site.timers.advance(60)
    assert site.pilots[1].signals == ["SIGTERM"]
    site.timers.advance(30)
    assert site.pilots[1].killed
    assert site.native(short) == ("timeout", "its time was over")
    site.timers.run()
    assert (site.timers.now, site.pilots[0].killed) == (WALL + 30, True)
    assert site.native(limited)[0] == "timeout"


def test_the_exit_code_of_a_pilot_is_told() -> None:
    site = BatchSite()
    good, bad = site.run("s", 2)
    site.pilots[0].leave(0)
    site.pilots[1].leave(3)
    assert site.native(good) == ("completed", "")
    assert site.native(bad) == ("failed", "exit code 3")


def test_a_pilot_may_end_while_it_is_started() -> None:
    site = BatchSite(NodeSize(1, 1, 1000), wall_limit=WALL)
    start = site.system._start_pilot

    def start_and_end(start_: object, ended: object) -> object:
        pilot = start(start_, ended)  # type: ignore[arg-type]
        pilot.leave(1)  # type: ignore[attr-defined]
        return pilot

    site.system._start_pilot = start_and_end  # type: ignore[assignment]
    site.run("s", 3)
    assert site.states() == {ENDED: 3}
    site.timers.run()
    assert site.timers.now == WALL
    assert [pilot.signals for pilot in site.pilots] == [[], [], []]


def test_ended_batch_jobs_are_listed_and_accounted_for_a_time() -> None:
    site = BatchSite(remembered=300.0, accounted=1000.0)
    site.run("s", 2)
    site.pilots[0].leave(0)
    site.timers.advance(299)
    assert site.states() == {ENDED: 1, RUNNING: 1}
    site.timers.advance(1)
    assert site.states() == {RUNNING: 1}
    assert [task.native for task in site.batch.list_accounted(["s", "t"], 300)] == ["completed", "running"]
    assert [task.native for task in site.batch.list_accounted(["s"], 299)] == ["running"]
    site.pilots[1].leave(0)
    site.timers.advance(700)
    assert [task.index for task in site.batch.list_accounted(["s"], 5000)] == [1]
    assert site.tasks() == []
    assert not site.system.books.arrays
    site.timers.advance(300)
    assert site.batch.list_accounted(["s"], 5000) == []


def test_a_shape_that_no_node_has_is_refused() -> None:
    site = BatchSite(NodeSize(1, 8, 1000), NodeSize(1, 2, 9000), wall_limit=WALL, most_jobs=3)
    for shape in (Shape(9), Shape(3, 1001), Shape(1, 9001), Shape(1, wall=WALL + 1)):
        assert site.batch.check(shape)
        with pytest.raises(SubmissionFailed) as failed:
            site.submit("s", 1, shape)
        assert failed.value.refusal is SubmissionRefusal.REFUSED
    assert site.batch.check(Shape(8, 1000, WALL)) == site.batch.check(Shape(2, 9000)) == ""
    site.run("s", 2)
    with pytest.raises(SubmissionFailed) as failed:
        site.submit("more", 2)
    assert failed.value.refusal is SubmissionRefusal.FULL
    site.pilots[0].leave(0)
    assert site.submit("more", 2)


def test_a_preempted_pilot_ends_or_waits_again() -> None:
    site = BatchSite()
    ended, again = site.run("s", 2)
    site.system.preempt(ended)
    site.system.preempt(again, requeue=True)
    assert [pilot.signals for pilot in site.pilots] == [["SIGTERM"]] * 2
    for pilot in site.pilots:
        pilot.leave(0)
    assert site.native(ended)[0] == "preempted"
    site.timers.advance(0)
    assert site.started() == [ended, again, again]
    assert site.pilots[-1].start.restarts == 1


def test_a_requeued_pilot_is_started_twice_and_its_first_process_is_heard_no_more() -> None:
    site = BatchSite()
    [batch_id] = site.run("s")
    site.system.requeue(batch_id)
    site.timers.advance(0)
    first, second = site.pilots
    assert first.killed
    assert (second.start.batch_id, second.start.restarts) == (batch_id, 1)
    first.leave(1)
    assert site.native(batch_id) == ("running", "")
    second.leave(0)
    assert site.native(batch_id) == ("completed", "")


def test_a_cancelled_pilot_is_never_requeued() -> None:
    site = BatchSite()
    ids = site.run("s", 3)
    preempted, requeued, on_lost_node = ids
    site.system.preempt(preempted, requeue=True)
    site.batch.cancel(["s"])
    site.system.requeue(requeued)
    site.system.preempt(on_lost_node, requeue=True)
    for name in site.system.nodes.named:
        site.system.fail_node(name, requeue=True)
    site.timers.run()
    assert [site.native(batch_id)[0] for batch_id in ids] == ["cancelled"] * 3
    assert site.started() == list(ids)


def test_an_administrator_kills_without_a_word() -> None:
    site = BatchSite()
    [batch_id] = site.run("s")
    site.system.kill(batch_id)
    assert (site.pilots[0].signals, site.pilots[0].killed) == ([], True)
    assert site.native(batch_id) == ("failed", "signal 9")


def test_pilots_that_an_administrator_holds_cannot_be_released() -> None:
    site = BatchSite(NodeSize(1, 1, 1000))
    [running] = site.run("first")
    site.run("held", 2)
    site.system.hold("held")
    site.system.hold("first")
    assert site.states("held") == {HELD: 2}
    assert {task.reason for task in site.tasks("held")} == {"held by an administrator"}
    with pytest.raises(SubmissionFailed) as failed:
        site.batch.release(["held"])
    assert failed.value.refusal is SubmissionRefusal.REFUSED
    site.pilots[0].leave(0)
    site.timers.run()
    assert site.started() == [running]
    site.system.unhold("held")
    site.timers.advance(0)
    assert site.states("held") == {RUNNING: 1, WAITING: 1}


@pytest.mark.parametrize("pilots_live", [False, True])
def test_a_lost_node_takes_its_pilots_along(pilots_live: bool) -> None:
    site = BatchSite()
    ids = site.run("s", 3, Shape(4))
    lost = site.pilots[0].start.node
    site.system.fail_node(lost, pilots_live=pilots_live)
    site.timers.advance(0)
    assert site.native(ids[0]) == ("node failed", "")
    assert site.pilots[0].killed is not pilots_live
    assert site.states() == {ENDED: 1, RUNNING: 1, WAITING: 1}
    information = site.batch.information()
    assert information.attributes["UnavailableHosts"] == 1
    assert lost not in information.host_classes[0].hosts
    site.pilots[1].leave(0)
    site.timers.advance(0)
    assert site.pilots[2].start.node == site.pilots[1].start.node != lost
    site.run("more", 1, Shape(4))
    site.system.repair_node(lost)
    site.timers.advance(0)
    assert site.pilots[3].start.node == lost
    site.pilots[0].leave(0)
    assert site.states()[RUNNING] == 2


def test_batch_jobs_of_a_lost_node_may_be_started_elsewhere_while_their_pilots_live() -> None:
    site = BatchSite()
    [batch_id] = site.run("s")
    site.system.fail_node(site.pilots[0].start.node, requeue=True, pilots_live=True)
    site.timers.advance(0)
    assert site.started() == [batch_id, batch_id]
    assert not site.pilots[0].killed
    for name in list(site.system.nodes.named):
        site.system.fail_node(name)
    assert site.batch.information().attributes["GlueCEStateStatus"] == "Queueing"
    assert site.batch.information().attributes["GlueCEStateFreeCPUs"] == 0


def test_a_clock_that_is_ahead_is_ahead_in_all_times_that_it_tells() -> None:
    site = BatchSite(wall_limit=WALL)
    site.system.skew = 90.0
    site.run("s")
    start = site.pilots[0].start
    assert (start.batch_start, start.batch_end) == (90, WALL + 90)
    site.timers.advance(WALL)
    assert site.pilots[0].signals == ["SIGTERM"]


def test_a_system_that_is_away_starts_nothing_until_it_is_back() -> None:
    site = BatchSite()
    site.submit("s")
    site.batch.release(["s"])
    site.system.go_away(50.0)
    site.timers.advance(49)
    assert not site.batch.list_pilots().complete
    assert site.pilots == []
    site.timers.advance(1)
    assert site.states() == {RUNNING: 1}
    assert site.pilots[0].began == 50


def test_a_cold_start_loses_what_was_not_saved_and_gives_ids_again() -> None:
    site = BatchSite()
    [kept] = site.run("kept")
    site.system.save()
    [lost] = site.run("lost")
    site.submit("lost and held")
    before = site.batch.list_pilots().epoch
    site.system.cold_start()
    assert site.batch.list_pilots().epoch != before
    assert [pilot.killed for pilot in site.pilots] == [False, True]
    assert [task.batch_id for task in site.tasks()] == [kept]
    assert site.submit("later") == (lost,)
    assert site.batch.list_accounted(["lost"], 100) == []
    site.pilots[0].leave(0)
    assert site.native(kept) == ("completed", "")


def test_a_cold_start_brings_back_what_has_ended_since() -> None:
    site = BatchSite(NodeSize(1, 1, 1000))
    [running] = site.run("running")
    [waiting] = site.run("waiting")
    [held] = site.submit("held")
    [cancelled] = site.submit("cancelled")
    [by_administrator] = site.submit("by an administrator")
    site.system.hold("by an administrator")
    site.system.save()
    site.system.unhold("by an administrator")
    site.batch.release(["held"])
    site.batch.cancel(["cancelled"])
    for number in range(2):
        site.pilots[number].leave(0)
        site.timers.advance(0)
    assert site.started() == [running, waiting, by_administrator]
    site.system.cold_start()
    assert {task.batch_id: (task.state, task.reason) for task in site.tasks()} == {
        running: (ENDED, ""),
        waiting: (WAITING, "waits for its turn"),
        held: (HELD, "held by its user"),
        cancelled: (HELD, "held by its user"),
        by_administrator: (RUNNING, ""),
    }
    site.pilots[2].leave(0)
    site.timers.advance(0)
    assert site.started()[3:] == [waiting]
    site.timers.advance(10_000)
    assert {task.batch_id for task in site.tasks()} == {waiting, held, cancelled}


def test_a_warm_start_forgets_nothing() -> None:
    site = BatchSite()
    ids = site.run("s", 9)
    before = site.batch.list_pilots()
    site.system.restart()
    after = site.batch.list_pilots()
    assert after.epoch != before.epoch
    assert after.tasks == before.tasks
    assert len(ids) == len(after.tasks)


def calls_per_pilot(nodes: int) -> float:
    """Calls of Python functions for each pilot, with three pilots for each core."""
    site = BatchSite(NodeSize(nodes, 4, 4000), wall_limit=WALL)
    site.polite = True
    pilots, calls = 12 * nodes, 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for number in range(pilots // 6):
            site.run(f"s{number}", 6)
            site.states(f"s{number}")
        site.timers.run()
    finally:
        sys.setprofile(None)
    assert len(site.pilots) == pilots
    return calls / pilots


def test_the_work_for_a_pilot_does_not_grow_with_nodes_and_pilots() -> None:
    few, many = calls_per_pilot(10), calls_per_pilot(100)
    assert many < 1.05 * few < 100
