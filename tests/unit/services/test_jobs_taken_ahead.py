"""Jobs that a pilot takes ahead: they do not run, and only the time from their start counts."""

from __future__ import annotations

from typing import Any

import pytest

from pilotage.store.tables import listing, usage
from pilotage.wire.attempts import JobAttempt
from pilotage.wire.pilot import OfferedJob, Reference, Release, StartedPayload
from tests.unit.services.bench import LEASE, Bench, Paper, finished


def _taken(bench: Bench) -> tuple[int, Paper, OfferedJob]:
    [job] = bench.submit()
    pilot = bench.pilot()
    [offer] = pilot.take()
    _confirm_ahead(pilot, offer)
    return job, pilot, offer


def _confirm_ahead(pilot: Paper, offer: OfferedJob) -> None:
    answer = pilot.send(confirms=[Reference(offer.job, offer.epoch)], ahead=[offer.job])
    assert [verdict.verdict for verdict in answer.confirms] == ["accepted"]


def _held(bench: Bench, job: int) -> list[tuple[Any, ...]]:
    sql = "SELECT started, ended, ahead FROM attempts WHERE job_id = ? ORDER BY epoch"
    return [tuple(row) for row in bench.connection.execute(sql, (job,)).fetchall()]


def _seconds(bench: Bench, job: int) -> list[float]:
    return [attempt.wall for attempt in usage.attempts_of(bench.connection, [job], JobAttempt)]


def _outcomes(bench: Bench, job: int) -> list[str]:
    return [attempt.outcome for attempt in listing.attempts(bench.connection, job)]


def test_a_job_taken_ahead_does_not_run(bench: Bench) -> None:
    job, _, _ = _taken(bench)
    begin = bench.now
    bench.now += 10.0
    assert bench.state(job) == "Taken"
    assert _outcomes(bench, job) == ["taken ahead"]
    assert _held(bench, job) == [(begin, begin, 1)]


def test_a_job_given_back_before_its_start_has_no_time(bench: Bench) -> None:
    job, pilot, offer = _taken(bench)
    begin = bench.now
    bench.now += 2.0
    pilot.send(releases=[Release(offer.job, offer.epoch, "could not be started soon", 0.0)])
    assert bench.state(job) == "Waiting"
    assert _outcomes(bench, job) == ["given back before its start"]
    assert (_held(bench, job), _seconds(bench, job)) == ([(begin, begin, 1)], [0.0])
    assert usage.usage_by_account(bench.connection, 0.0, bench.now + 1) == []
    assert [event.new for event in bench.history(job)][-2:] == ["Taken", "Waiting"]


def test_a_job_that_was_to_start_at_once_and_did_not_has_no_time(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    assert bench.state(job) == "Running"
    bench.now += 2.0
    pilot.send(releases=[Release(offer.job, offer.epoch, "could not be started soon", 0.0)])
    assert (_outcomes(bench, job), _seconds(bench, job)) == (["given back before its start"], [0.0])


def test_an_old_pilot_does_not_tell(bench: Bench) -> None:
    [job] = bench.submit()
    pilot = bench.pilot()
    offer = pilot.hold()
    bench.now += 2.0
    pilot.release(offer)
    assert (_outcomes(bench, job), _seconds(bench, job)) == (["released"], [2.0])


def test_a_short_job_is_told_by_its_end(bench: Bench) -> None:
    job, pilot, offer = _taken(bench)
    begin = bench.now
    bench.now += 5.0
    pilot.send(finishes=[finished(offer, wall=0.5, download=0.25)])
    assert bench.state(job) == "Done"
    assert _held(bench, job) == [(begin + 4.25, begin + 5.0, 0)]


def test_a_start_is_told(bench: Bench) -> None:
    job, pilot, offer = _taken(bench)
    begin = bench.now
    bench.now += 5.0
    for ran in (1.0, 2.0):
        pilot.send(starts=[StartedPayload(offer.job, offer.epoch, ran)], holding=[offer])
        assert bench.state(job) == "Running"
        assert _held(bench, job) == [(begin + 4.0, None, 0)]
        bench.now += 1.0
    pilot.send(releases=[Release(offer.job, offer.epoch, "told to leave", 3.0)])
    assert _held(bench, job) == [(begin + 4.0, begin + 7.0, 0)]
    assert _outcomes(bench, job) == ["released"]


def test_a_confirm_that_is_repeated_because_there_is_room_by_now_is_a_start(bench: Bench) -> None:
    job, pilot, offer = _taken(bench)
    pilot.confirm(offer)
    assert bench.state(job) == "Running"


def test_a_start_of_a_job_of_somebody_else_changes_nothing(bench: Bench) -> None:
    job, _, offer = _taken(bench)
    bench.pilot().send(starts=[StartedPayload(offer.job, offer.epoch, 1.0)])
    assert bench.state(job) == "Taken"


@pytest.mark.parametrize("told", [False, True], ids=["not started", "started"])
def test_a_job_taken_ahead_stays_so_with_a_pilot_that_comes_back(bench: Bench, told: bool) -> None:
    job, pilot, offer = _taken(bench)
    bench.later(LEASE + 1)
    assert bench.state(job) == "Rescheduled"
    assert _seconds(bench, job) == [0.0]
    starts = [StartedPayload(offer.job, offer.epoch, 1.0)] if told else []
    pilot.send(holding=[offer], starts=starts)
    assert bench.state(job) == ("Running" if told else "Taken")
    pilot.finish(offer)
    assert bench.state(job) == "Done"
