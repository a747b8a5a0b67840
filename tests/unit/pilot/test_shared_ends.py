"""A payload that the batch system kills together with its pilot is not reported as failed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pilotage.pilot.events import PayloadEnded
from pilotage.pilot.orphans import Orphans
from pilotage.pilot.payload_runner import PayloadRunner
from pilotage.pilot.shared_ends import SHARED_END_GRACE
from pilotage.pilot.thread_pool import ThreadPool
from pilotage.pilot.transport import ServerConnection
from pilotage.wire.pilot import Finish, OfferedJob, Payload


@pytest.fixture(autouse=True)
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot ends all processes below it, and this process has other tests' servers below it."""
    monkeypatch.setattr(Orphans, "sweep", lambda *_: None)


class Run:
    """One payload of a runner whose clock the test sets. Nothing of it needs a server."""

    def __init__(self, folder: Path, script: str) -> None:
        self.now = 0.0
        background = ThreadPool(_no_connection, lambda: None)
        self.runner = PayloadRunner(
            str(folder), (0,), 1.0, {"PATH": "/usr/bin:/bin"}, background, lambda: self.now
        )
        self.key = (1, 1)
        self.runner.start(OfferedJob(*self.key, Payload("/bin/sh", arguments=["-c", script])))
        self.pid = self.runner.running[self.key].pid

    def end(self) -> None:
        """Wait for the end of the payload's first process, and reap it."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self.runner.reap()

    def wait(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.now += seconds
        self.runner.enforce_limits()

    @property
    def finishes(self) -> list[Finish]:
        return [event.finish for event in self.runner.events if isinstance(event, PayloadEnded)]


def _no_connection() -> ServerConnection:
    raise AssertionError("no server is needed")


@pytest.mark.parametrize("script", ["kill -9 $$", "kill -15 $$", "exit 137", "exit 143"])
def test_its_end_is_reported_after_a_pause(tmp_path: Path, script: str) -> None:
    run = Run(tmp_path, script)
    run.end()
    assert run.finishes == []
    assert run.runner.next_at() <= SHARED_END_GRACE
    run.wait(SHARED_END_GRACE / 2)
    assert run.finishes == []
    run.wait(SHARED_END_GRACE / 2)
    [finish] = run.finishes
    assert finish.failure == ""
    assert finish.signal in (9, 15) or finish.exit_code in (137, 143)
    assert run.runner.running == {}


def test_it_is_given_back_if_the_pilot_has_to_leave_meanwhile(tmp_path: Path) -> None:
    run = Run(tmp_path, "kill -9 $$")
    run.end()
    run.runner.kill(run.key, "received SIGTERM")
    [finish] = run.finishes
    assert (finish.failure, finish.message) == ("killed", "received SIGTERM")
    run.wait(2 * SHARED_END_GRACE)
    assert len(run.finishes) == 1


@pytest.mark.parametrize("script", ["true", "exit 1", "exit 129", f"kill -{int(signal.SIGSEGV)} $$"])
def test_other_ends_are_reported_at_once(tmp_path: Path, script: str) -> None:
    run = Run(tmp_path, script)
    run.end()
    assert len(run.finishes) == 1


def test_a_limit_is_no_doubtful_end(tmp_path: Path) -> None:
    """The pilot itself has killed the payload, so its end is reported with the limit at once."""
    run = Run(tmp_path, "sleep 600")
    run.runner._terminate(run.runner.running[run.key], "limit-wall", "ran longer than 1 s")
    run.end()
    assert [finish.failure for finish in run.finishes] == ["limit-wall"]
