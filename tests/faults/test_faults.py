"""Real faults on real processes: nothing is lost, at most one attempt is applied, overlaps stand in the log."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests.deadlines import PATIENCE
from tests.faults.audit import audit
from tests.instance import Instance, alive, children, descendants, running, until

pytestmark = pytest.mark.slow

SHORT = {"lease": 6, "heartbeat": 0.5}
"""A loaded machine may keep a living pilot silent for seconds."""


def _started(instance: Instance, script: str, marker: Path, **more: object) -> int:
    """Submit a job that appends its process id to `marker`, and wait for its first start."""
    command = f"echo $$ >> {marker}; {script}"
    answer = instance.client().submit({"executable": "sh", "arguments": ["-c", command], **more})
    until(lambda: marker.exists() and marker.read_text(), what="the payload's start")
    instance.reaches(answer.first, "Running")
    return answer.first


def _pids(marker: Path) -> list[int]:
    return [int(line) for line in marker.read_text().split()]


@pytest.mark.parametrize("victim", ["pilot", "guardian", "both"])
def test_a_pilot_killed_in_the_middle_of_a_job_costs_a_try_and_nothing_else(
    tmp_path: Path, victim: str
) -> None:
    with running(tmp_path, **SHORT) as instance:
        marker = tmp_path / "starts"
        job = _started(instance, f"[ $(wc -l < {marker}) -ge 2 ] || exec sleep 600", marker)
        [guardian] = instance.pilot_pids()
        [pilot] = children(guardian)
        [payload] = _pids(marker)
        victims = {"pilot": [pilot], "guardian": [guardian], "both": [guardian, pilot]}[victim]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # neither can clean up after the other
            for pid in victims:
                os.kill(pid, number)
        done = instance.reaches(job, "Done")
        assert done.attempt == 2
        if victim == "both":
            # Nobody is left to end it: told in docs/reference/pilot.md.
            os.kill(payload, signal.SIGKILL)
        until(lambda: not alive(payload), what="the end of the first payload")
        # Without its guardian a pilot gives its jobs back; a dead one is found out.
        assert ("released" if victim == "guardian" else "lease-over") in instance.events(job)
        instance.close()
        assert audit(instance.home) == {"Done": 1}


def test_a_pilot_frozen_past_its_lease_does_no_harm_when_it_wakes(tmp_path: Path) -> None:
    with running(tmp_path, lease=6, heartbeat=0.5) as instance:
        marker, go_on = tmp_path / "starts", tmp_path / "go-on"
        job = _started(instance, f"while [ ! -e {go_on} ]; do sleep 0.05; done; echo $$", marker)
        [guardian] = instance.pilot_pids()
        frozen = [guardian, *children(guardian)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: "stalled" in instance.events(job), what="its state Stalled")
        until(lambda: len(_pids(marker)) == 2, what="the second start")
        assert instance.reaches(job, "Running").attempt == 2
        first, second = _pids(marker)
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        until(lambda: not alive(first), what="the end of the overtaken payload")
        assert alive(second)
        go_on.touch()
        instance.reaches(job, "Done")
        assert instance.client().log(job).data == f"{second}\n".encode()
        instance.close()
        assert audit(instance.home) == {"Done": 1}


def test_a_process_that_escapes_its_session_ends_with_its_job(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        escaped = tmp_path / "escaped"
        script = f"setsid sh -c 'setsid sh -c \"echo \\$\\$ > {escaped}; exec sleep 600\" & ' & sleep 0.3"
        answer = instance.client().submit({"executable": "sh", "arguments": ["-c", script]})
        until(lambda: escaped.exists() and escaped.read_text().strip(), what="the escape")
        instance.reaches(answer.first, "Done")
        until(lambda: not alive(int(escaped.read_text())), what="the end of the escaped process")


def test_a_server_killed_again_and_again_during_matches_and_reports_loses_nothing(tmp_path: Path) -> None:
    with running(tmp_path, **SHORT) as instance:
        answer = instance.client().submit(
            {"executable": "sleep", "arguments": ["0.05"]}, values=list(range(300))
        )
        selection = Selection(submission=answer.submission)
        for part in (40, 120, 200):
            until(lambda part=part: instance.client().counts(selection).final >= part, what="progress")
            instance.kill_server()
            instance.start()
        until(lambda: instance.client().counts(selection).final == 300, within=2 * PATIENCE, what="the end")
        instance.close()
        assert audit(instance.home) == {"Done": 300}


def test_a_server_away_for_longer_than_a_lease_loses_no_running_work(tmp_path: Path) -> None:
    with running(tmp_path, **SHORT) as instance:
        marker, go_on = tmp_path / "starts", tmp_path / "go-on"
        job = _started(instance, f"while [ ! -e {go_on} ]; do sleep 0.05; done", marker)
        instance.kill_server()
        _make_last_sign_of_life_older(instance, 3600)
        down_since = time.monotonic()
        until(
            lambda: time.monotonic() - down_since > SHORT["lease"] + 1, what="an outage longer than the lease"
        )
        go_on.touch()
        instance.start()
        assert instance.reaches(job, "Done").attempt == 1
        assert len(_pids(marker)) == 1
        instance.close()
        assert audit(instance.home) == {"Done": 1}


def _make_last_sign_of_life_older(instance: Instance, seconds: float) -> None:
    """As if the server had been away for so long: all its instants move back."""
    connection = sqlite3.connect(instance.home / "pilotage.db")
    with connection:
        connection.execute("UPDATE instance SET alive_at = alive_at - ?", (seconds,))
        connection.execute("UPDATE pilots SET lease_until = lease_until - ?", (seconds,))
    connection.close()


def test_a_drain_lets_running_jobs_end_and_keeps_waiting_ones(tmp_path: Path) -> None:
    with running(tmp_path, processors=1) as instance:
        marker, go_on = tmp_path / "starts", tmp_path / "go-on"
        job = _started(instance, f"while [ ! -e {go_on} ]; do sleep 0.05; done", marker)
        waiting = instance.client().submit({"executable": "true"}).first
        instance.client().shutdown("drain")
        assert instance.process is not None
        go_on.touch()
        assert instance.process.wait(PATIENCE) == 0
        instance.start()
        assert instance.job(job).state == "Done"
        instance.reaches(waiting, "Done")


def test_a_second_start_takes_over_the_pilots_of_the_first(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        marker, go_on = tmp_path / "starts", tmp_path / "go-on"
        job = _started(instance, f"while [ ! -e {go_on} ]; do sleep 0.05; done", marker)
        before = instance.pilot_pids()
        instance.stop_server()
        assert all(alive(pid) for pid in before)
        instance.start()
        assert instance.pilot_pids() == before
        go_on.touch()
        assert instance.reaches(job, "Done").attempt == 1
        assert len(list(instance.client().pilots())) == 1


def test_cancelled_pilots_give_their_jobs_back_at_no_cost(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        marker = tmp_path / "starts"
        job = _started(instance, f"[ $(wc -l < {marker}) -ge 2 ] || exec sleep 600", marker)
        pids = descendants(instance.pilot_pids()[0])
        instance.client().shutdown("cancel")
        assert instance.process is not None
        assert instance.process.wait(PATIENCE) == 0
        assert not [pid for pid in pids if alive(pid)]
        instance.start()
        done = instance.reaches(job, "Done")
        assert (done.attempt, done.failures) == (2, 0)
