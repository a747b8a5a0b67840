"""Pilots that came in vain: events are counted, not pilots."""

from __future__ import annotations

from pilotage.core.ids import PilotId, QueueId
from pilotage.core.pilots.backoff import FIRST, BackOff, LastSeen

QUEUE = QueueId(1)
WAITING = {QUEUE: 10}


def started(*pilots: int) -> BackOff:
    back_off = BackOff()
    back_off.started_for.update((PilotId(pilot), QUEUE) for pilot in pilots)
    return back_off


def in_vain(submission: str, *pilots: int) -> list[LastSeen]:
    return [LastSeen(PilotId(pilot), submission, had_job=False, in_vain=True) for pilot in pilots]


def test_six_preempted_pilots_of_one_array_are_one_event() -> None:
    back_off = started(*range(6))
    back_off.observe(in_vain("a", 0, 1, 2), WAITING, 100.0)
    back_off.observe(in_vain("a", 3, 4, 5), WAITING, 101.0)
    pause = back_off.pauses[QUEUE]
    assert (pause.pilots, pause.events, pause.until) == (6, 1, 100.0 + FIRST)
    assert not back_off.pauses_for_all(102.0)
    assert back_off.paused_queues(102.0) == (1, 100.0 + FIRST)
    assert back_off.paused_queues(100.0 + FIRST) == (0, 0.0)


def test_pilots_of_several_submissions_in_one_cycle_are_one_event() -> None:
    back_off = started(1, 2, 3)
    back_off.observe([*in_vain("a", 1), *in_vain("b", 2), *in_vain("c", 3)], WAITING, 100.0)
    assert back_off.pauses[QUEUE].events == 1


def test_each_further_submission_doubles_the_pause_and_three_pause_the_ce() -> None:
    back_off = started(1, 2, 3)
    for number in (1, 2, 3):
        back_off.observe(in_vain(str(number), number), WAITING, 100.0)
    assert back_off.pauses[QUEUE].until == 100.0 + 4 * FIRST
    assert back_off.pauses_for_all(101.0)
    assert back_off.paused_queues(101.0) == (0, back_off.all_until)


def test_a_queue_of_which_another_pilot_had_a_job_does_not_pause() -> None:
    back_off = started(1, 2)
    seen = [*in_vain("a", 1), LastSeen(PilotId(2), "a", had_job=True, in_vain=False)]
    back_off.observe(seen, WAITING, 100.0)
    assert not back_off.pauses


def test_enabling_the_ce_ends_all_pauses() -> None:
    back_off = started(1)
    back_off.follow_switch(None)
    back_off.observe(in_vain("a", 1), WAITING, 100.0)
    back_off.follow_switch(None)
    assert back_off.pauses_at(QUEUE, 101.0)
    back_off.follow_switch(100.5)
    assert not back_off.pauses_at(QUEUE, 101.0)
