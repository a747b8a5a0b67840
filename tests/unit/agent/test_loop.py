"""The loop of an agent against a queue in memory: each part of an element gets one job, despite any fault."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest

from pilotage.core.errors import Conflict, Forbidden, InvalidInput, PilotageError
from pilotage.core.splitting.mask import FileRange, FileRecord, LumiRange, Mask
from pilotage.wire.agents import SiteOfAgent
from tests.unit.agent.fake_queue import FakeQueue, Killed, Overloaded, Unreachable, run_agent
from tests.unit.core.splitting.elements import assert_each_once


def files(count: int, first: int = 1) -> list[FileRecord]:
    return [FileRecord(n, f"f{n}", 10, 100) for n in range(first, first + count)]


def queue_of(*sizes: int) -> FakeQueue:
    queue = FakeQueue()
    for size in sizes:
        queue.add(files(size))
    return queue


def assert_split(queue: FakeQueue) -> None:
    for number, element in queue.elements.items():
        assert element.is_split, f"element {number} is not split"
        assert not element.holder
        assert_each_once(element.masks.values(), element.files)


@pytest.fixture(autouse=True)
def _small_posts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several posts for each element."""
    monkeypatch.setattr("pilotage.agent.splitting.MASKS_PER_POST", 2)


def test_elements_are_pulled_split_and_finished() -> None:
    queue = queue_of(7, 1, 4)
    run_agent(queue)
    assert_split(queue)
    assert queue.calls[:3] == ["join", "sync", "sync"], "the second sync brings the slots"
    assert queue.waits == [5.0], "the agent has waited although it had work"
    assert len(queue.elements[1].masks) == 4


def calls_of_a_whole_run() -> list[str]:
    queue = queue_of(7, 3)
    run_agent(queue)
    return queue.calls


CALLS = calls_of_a_whole_run()


@pytest.mark.parametrize("number", range(len(CALLS) + 4), ids=lambda number: f"call{number}")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_request_or_answer_loses_and_doubles_nothing(number: int, when: str) -> None:
    queue = queue_of(7, 3)

    def lose(call: int, name: str) -> None:
        if call == number:
            raise Unreachable("the connection was cut")

    setattr(queue, when, lose)
    run_agent(queue)
    assert_split(queue)


@pytest.mark.parametrize("number", range(len(CALLS)), ids=lambda number: f"call{number}-{CALLS[number]}")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_agent_leaves_exactly_the_rest_to_the_next(number: int, when: str) -> None:
    queue = queue_of(7, 3)

    def kill(call: int, name: str) -> None:
        if call == number:
            raise Killed

    setattr(queue, when, kill)
    with pytest.raises(Killed):
        run_agent(queue)
    run_agent(queue, "second")
    assert_split(queue)


@pytest.mark.parametrize("number", range(2, len(CALLS)), ids=lambda number: f"call{number}-{CALLS[number]}")
def test_an_agent_that_wakes_after_its_lease_makes_nothing_twice(number: int) -> None:
    """The elements go to another process while the first sleeps; then both run in turn."""
    queue = queue_of(7, 3)

    def sleep(call: int, name: str) -> None:
        if call == number:
            run_agent(queue, "second", limit=2)

    queue.before = sleep
    # Its next sync tells that another process has its name; after the last post there is none.
    with suppress(Conflict):
        run_agent(queue)
    run_agent(queue, "third")
    assert_split(queue)


def test_masks_with_other_boundaries_are_adopted_and_only_the_rest_is_made() -> None:
    queue = queue_of(7)
    earlier = Mask((FileRange(2), FileRange(3), FileRange(6)), events=300)
    queue.elements[1].masks[earlier.digest] = earlier
    run_agent(queue)
    assert_split(queue)
    assert earlier.digest in queue.elements[1].masks
    assert queue.calls.count("masks") == 1


def test_an_absent_server_is_waited_for_with_growing_pauses() -> None:
    queue = queue_of(5)
    away = range(4, 16)

    def fail(call: int, name: str) -> None:
        if call in away:
            raise Unreachable("refused")

    queue.before = fail
    run_agent(queue)
    assert_split(queue)
    pauses = queue.waits[: len(away)]
    assert all(later > earlier for earlier, later in pairwise(pauses[:7])), pauses
    assert max(pauses) <= 15.0 * 1.3


def test_a_busy_server_is_asked_again_when_it_says() -> None:
    queue = queue_of(5)

    def refuse(call: int, name: str) -> None:
        if call == 4:
            raise Overloaded("busy", retry_after=42.0)

    queue.before = refuse
    run_agent(queue)
    assert_split(queue)
    assert any(42.0 <= wait <= 42.0 * 1.3 for wait in queue.waits)


def test_a_server_that_never_answers_ends_a_starting_agent() -> None:
    queue = queue_of(5)

    def fail(call: int, name: str) -> None:
        raise Unreachable("refused")

    queue.before = fail
    with pytest.raises(Unreachable):
        run_agent(queue, patience=60.0)
    assert 30.0 < queue.now <= 60.0


def test_a_forgotten_agent_joins_again_and_goes_on() -> None:
    queue = queue_of(7, 3)

    def forget(call: int, name: str) -> None:
        if call == 5:
            queue.is_forgotten = True
            queue._free_all()

    queue.before = forget
    run_agent(queue)
    assert_split(queue)
    assert queue.joins == 2


def test_a_stopped_agent_gives_back_its_elements_and_the_posted_masks_stay() -> None:
    queue = queue_of(9, 3)
    posts = 0

    def count_posts(call: int, name: str) -> None:
        nonlocal posts
        posts += name == "post"

    queue.after = count_posts
    from tests.unit.agent import fake_queue

    stop = fake_queue.VirtualStop(queue)
    queue.before = lambda call, name: stop.set() if posts == 1 else None

    _run_with(queue, stop)
    assert [element.holder for element in queue.elements.values()] == ["", ""]
    assert len(queue.elements[1].masks) == 2
    assert {element for element, _ in queue.releases} == {1, 2}
    queue.before = lambda call, name: None
    run_agent(queue, "second")
    assert_split(queue)


def _run_with(queue: FakeQueue, stop: object) -> None:
    from random import Random
    from typing import Any, cast

    from pilotage.agent.loop import AgentLoop
    from pilotage.wire.agents import JoinRequest

    AgentLoop(
        cast(Any, queue),
        JoinRequest("agent", "home", "first"),
        cast(Any, stop),
        monotonic=lambda: queue.now,
        rng=Random(1),
        first_patience=60.0,
    ).run()


def test_an_administrator_drains_an_agent_and_lets_it_work_again() -> None:
    queue = queue_of(5)
    queue.drain = True

    def enable(call: int, name: str) -> None:
        if call == 6:
            assert queue.elements[1].epoch == 0, "a draining agent has pulled"
            queue.drain = False

    queue.before = enable
    run_agent(queue)
    assert_split(queue)


def test_parameters_that_cannot_be_read_end_the_element_with_the_reason() -> None:
    queue = queue_of(2)
    queue.elements[1].splitting.parameters = {"files_per_jobs": 2}
    queue.add(files(2))
    run_agent(queue)
    assert "files_per_jobs" in queue.elements[1].failure
    assert "files_per_job?" in queue.elements[1].failure
    assert queue.elements[2].is_split


def test_an_element_without_files_ends_with_the_reason() -> None:
    queue = queue_of(0)
    run_agent(queue)
    assert "nothing to process" in queue.elements[1].failure


def test_a_file_with_a_lumi_of_more_than_two_days_is_refused_and_the_rest_goes_on() -> None:
    queue = queue_of(2)
    long = FileRecord(50, "long", events=40_000, lumis=(LumiRange(1, 8, 9),))
    short = FileRecord(51, "short", events=100, lumis=(LumiRange(1, 10, 11),))
    queue.add([long, short], "EventAwareLumiBased", events_per_job=100)
    run_agent(queue)
    assert queue.elements[1].is_split
    assert queue.elements[2].is_split
    [refused, made] = sorted(queue.elements[2].masks.values(), key=lambda mask: mask.ranges)
    assert "lumi 8 of run 1 has about 20,000 events, which take 66.7 h" in refused.refused
    assert (refused.ranges, made.ranges) == ((FileRange(50),), (FileRange(51),))
    assert not made.refused


@pytest.mark.parametrize(
    "error", [InvalidInput("masks: one is refused"), ZeroDivisionError("a mistake of ours")]
)
def test_an_element_that_always_fails_ends_and_the_others_go_on(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(2, 2)
    post = queue._post

    def refuse(number: int, request: object) -> object:
        if number == 1 and not request.failure:  # type: ignore[attr-defined]
            raise error
        return post(number, request)  # type: ignore[arg-type]

    monkeypatch.setattr(queue, "_post", refuse)
    run_agent(queue)
    assert str(error) in queue.elements[1].failure
    assert queue.calls.count("post") == 3 + 1 + 1
    assert queue.elements[2].is_split


def test_an_error_of_the_server_gives_the_element_back_for_another_try() -> None:
    queue = queue_of(3)
    failures = 3

    def fail(call: int, name: str) -> None:
        nonlocal failures
        if name == "post" and failures:
            failures -= 1
            raise PilotageError("the server answered 500")

    queue.before = fail
    run_agent(queue)
    assert_split(queue)
    assert queue.elements[1].epoch == 4


def test_a_withdrawn_right_ends_the_agent() -> None:
    queue = queue_of(3)

    def refuse(call: int, name: str) -> None:
        if name == "post":
            raise Forbidden("alice may run no agent")

    queue.before = refuse
    with pytest.raises(Forbidden):
        run_agent(queue)


def test_generated_events_need_no_files() -> None:
    queue = FakeQueue()
    number = queue.add([], "EventBased", events_per_job=30)
    queue.elements[number].mask = Mask((), 1, 100, 1, 4).to_json()
    run_agent(queue)
    masks = queue.elements[number].masks.values()
    assert sorted((mask.first_event, mask.events, mask.first_lumi) for mask in masks) == [
        (1, 30, 1),
        (31, 30, 2),
        (61, 30, 3),
        (91, 10, 4),
    ]
    assert "files" not in queue.calls


def test_a_long_splitting_renews_the_lease() -> None:
    queue = queue_of(60)

    def pass_time(call: int, name: str) -> None:
        queue.now += 2.0

    queue.after = pass_time
    run_agent(queue)
    assert_split(queue)
    first, last = queue.calls.index("files"), len(queue.calls) - 1 - queue.calls[::-1].index("post")
    between = [place for place in range(first, last) if queue.calls[place] == "sync"]
    assert len(between) >= 10
    assert all(later - earlier <= 4 for earlier, later in pairwise(between))


def test_work_waits_for_a_site_without_room() -> None:
    queue = queue_of(4, 4)
    queue.sites["here"] = SiteOfAgent("here", "normal", 10, 10)

    def free_slots(call: int, name: str) -> None:
        if call == 6:
            assert not queue.elements[1].masks
            queue.sites["here"] = SiteOfAgent("here", "normal", 10, 2)

    queue.before = free_slots
    run_agent(queue)
    assert_split(queue)
