"""The adapter of the batch system in virtual time: each fault, and what is true beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pilotage.core.errors import Unreachable
from pilotage.core.pilots.handover import Seen
from pilotage.outside.batch.adapter import Shape
from pilotage.outside.batch.submission import NativeState, SubmissionFailed, SubmissionRefusal
from pilotage.twin.batch.faults import POSSIBLE_FAULTS, BatchFaultKind
from tests.unit.twin.batch_site import BatchSite

LOST_BEFORE, LOST_AFTER, LIES, FULL, REFUSED, PARTLY, CUT, STALE = BatchFaultKind
HELD, WAITING, RUNNING, ENDED = (
    NativeState.HELD,
    NativeState.WAITING,
    NativeState.RUNNING,
    NativeState.ENDED,
)


@pytest.mark.parametrize(
    ("kind", "refusal", "accepted"),
    [
        (LOST_BEFORE, SubmissionRefusal.IN_DOUBT, 0),
        (LOST_AFTER, SubmissionRefusal.IN_DOUBT, 4),
        (PARTLY, SubmissionRefusal.IN_DOUBT, 3),
        (FULL, SubmissionRefusal.FULL, 0),
        (REFUSED, SubmissionRefusal.REFUSED, 0),
    ],
)
def test_a_submission_fails(kind: BatchFaultKind, refusal: SubmissionRefusal, accepted: int) -> None:
    site = BatchSite()
    site.faults.plan("submit", kind, part=0.75)
    with pytest.raises(SubmissionFailed) as failed:
        site.submit("s", 4)
    assert failed.value.refusal is refusal
    assert failed.value.reason
    assert site.states() == ({HELD: accepted} if accepted else {})
    assert len(site.submit("t", 4)) == 4, "the next one does not fail"


def test_a_lost_answer_does_not_even_tell_of_a_refusal() -> None:
    site = BatchSite()
    site.faults.plan("submit", LOST_AFTER)
    with pytest.raises(SubmissionFailed) as failed:
        site.submit("s", 1, Shape(1000))
    assert failed.value.refusal is SubmissionRefusal.IN_DOUBT
    assert site.tasks() == []


@pytest.mark.parametrize(
    ("kind", "error", "state"),
    [
        (LOST_BEFORE, Unreachable, HELD),
        (LOST_AFTER, Unreachable, RUNNING),
        (LIES, None, HELD),
        (REFUSED, SubmissionFailed, HELD),
    ],
)
def test_a_release_fails(kind: BatchFaultKind, error: type[Exception] | None, state: NativeState) -> None:
    site = BatchSite()
    site.submit("s")
    site.faults.plan("release", kind)
    if error is None:
        site.batch.release(["s"])
    else:
        with pytest.raises(error):
            site.batch.release(["s"])
    site.timers.advance(0)
    assert site.states() == {state: 1}
    site.batch.release(["s"])
    site.timers.advance(0)
    assert site.states() == {RUNNING: 1}


@pytest.mark.parametrize("command", ["cancel", "cancel_tasks"])
@pytest.mark.parametrize(
    ("kind", "raises", "state"), [(LOST_BEFORE, True, HELD), (LOST_AFTER, True, ENDED), (LIES, False, HELD)]
)
def test_a_cancellation_fails(command: str, kind: BatchFaultKind, raises: bool, state: NativeState) -> None:
    site = BatchSite()
    ids, epoch = site.submit("s"), site.batch.list_pilots().epoch

    def cancel() -> None:
        if command == "cancel":
            site.batch.cancel(["s"])
        else:
            site.batch.cancel_tasks(ids, epoch)

    site.faults.plan(command, kind)
    if raises:
        with pytest.raises(Unreachable):
            cancel()
    else:
        cancel()
    assert site.states() == {state: 1}
    cancel()
    assert site.states() == {ENDED: 1}


def test_each_submission_of_one_call_has_its_own_fault() -> None:
    site = BatchSite()
    site.submit("done")
    site.submit("lost")
    site.submit("not tried")
    site.faults.planned["release"] = []
    site.faults.plan("cancel", LIES)
    site.batch.cancel(["lost", "done"])
    assert {task.stamp: task.state for task in site.tasks()} == {
        "done": ENDED,
        "lost": HELD,
        "not tried": HELD,
    }
    site.faults.plan("cancel", LOST_AFTER)
    with pytest.raises(Unreachable):
        site.batch.cancel(["lost", "not tried"])
    assert site.states("lost", "not tried") == {ENDED: 1, HELD: 1}


def test_ids_of_an_earlier_start_cancel_nothing() -> None:
    site = BatchSite()
    ids, epoch = site.submit("s"), site.batch.list_pilots().epoch
    site.system.restart()
    with pytest.raises(Unreachable, match="started again"):
        site.batch.cancel_tasks(ids, epoch)
    assert site.states() == {HELD: 1}
    site.batch.cancel_tasks(["1.7", "1.x", "9", *ids], site.batch.list_pilots().epoch)
    assert site.states() == {ENDED: 1}


def test_a_listing_is_cut_or_empty_and_may_not_know_it() -> None:
    site = BatchSite()
    site.submit("s", 4)
    site.faults.plan("list_pilots", LOST_BEFORE)
    site.faults.plan("list_pilots", PARTLY, part=0.5)
    site.faults.plan("list_pilots", CUT, part=0.5)
    site.faults.plan("list_pilots", LIES)
    unanswered, partial, cut, empty = (site.batch.list_pilots() for _ in range(4))
    assert (len(unanswered.tasks), unanswered.complete) == (0, False)
    assert (len(partial.tasks), partial.complete) == (2, False)
    assert (len(cut.tasks), cut.complete) == (2, True)
    assert (len(empty.tasks), empty.complete) == (0, True)
    assert partial.find("s", 3) == (Seen.UNKNOWN, "")
    assert cut.find("s", 3) == (Seen.ABSENT, "")
    assert site.batch.status({"s/3": ""}).find("s", 3) == (Seen.SEEN, "1.3")


def test_a_stale_listing_is_as_it_was() -> None:
    site = BatchSite(past=100.0, remembered=20.0)
    site.submit("early", 2)
    truth = {}
    for second in range(0, 60, 10):
        site.timers.run(float(second))
        if second == 10:
            site.batch.release(["early"])
        if second == 20:
            site.pilots[0].leave(0)
        if second == 30:
            site.submit("late")
        site.timers.run(second + 5.0)
        truth[second + 5.0] = site.tasks()
    site.timers.run(60.0)
    for when, tasks in truth.items():
        site.faults.plan("list_pilots", STALE, age=60.0 - when)
        listing = site.batch.list_pilots()
        assert listing.complete
        assert set(listing.tasks) == set(tasks), when
        site.faults.plan("list_pilots", STALE, age=60.0 - when)
        assert set(site.tasks("early")) == {task for task in tasks if task.stamp == "early"}
    assert len({frozenset(tasks) for tasks in truth.values()}) == 5


def test_the_past_is_kept_no_longer_than_it_is_asked_for() -> None:
    site = BatchSite(past=10.0)
    for second in range(100):
        site.timers.run(float(second))
        site.run(f"s{second}")
        site.pilots[-1].leave(0)
    assert len(site.system.books._changes) <= 11 * 4


def test_a_question_without_an_answer_raises() -> None:
    site = BatchSite()
    calls: dict[str, Callable[[], object]] = {
        "list_accounted": lambda: site.batch.list_accounted(["s"], 10),
        "properties": site.batch.properties,
        "describe": site.batch.describe,
        "information": site.batch.information,
        "accounts": site.batch.accounts,
        "check": lambda: site.batch.check(Shape(1)),
        "check_terms": lambda: site.batch.check_terms({}, []),
    }
    assert {"submit", "release", "cancel", "cancel_tasks", "list_pilots", *calls} == set(POSSIBLE_FAULTS)
    for command, call in calls.items():
        site.faults.plan(command, LOST_BEFORE)
        with pytest.raises(Unreachable, match=command):
            call()
        call()


def test_a_fault_that_a_command_cannot_have_is_a_mistake() -> None:
    site = BatchSite()
    site.faults.plan("cancel", STALE)
    with pytest.raises(ValueError, match="cancel cannot have the fault stale"):
        site.batch.cancel(["s"])


def test_a_closed_adapter_asks_nothing_more() -> None:
    site = BatchSite()
    site.submit("s")
    site.batch.close()
    with pytest.raises(Unreachable, match="closed"):
        site.batch.cancel(["s"])
    with pytest.raises(SubmissionFailed) as failed:
        site.submit("t")
    assert failed.value.refusal is SubmissionRefusal.IN_DOUBT
    assert site.batch.list_pilots().failure == "the adapter is closed"


def test_hosts_that_it_does_not_have_are_named() -> None:
    site = BatchSite()
    assert site.batch.check_terms({}, ["node1", "node3"]) == ["hosts: the batch system has no host node3"]
