"""Commands of batch systems: bounded in time, killed as a group, and never signalled after they were reaped."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pilotage.outside.batch.process_group import ProcessGroup
from pilotage.outside.batch.runner import MISSING, LocalRunner
from tests.deadlines import PATIENCE

PATH = {"PATH": "/usr/bin:/bin"}


def test_a_command_gets_its_text_and_its_environment_alone() -> None:
    result = LocalRunner({**PATH, "X": "1"}).run(
        ["sh", "-c", "cat; echo $X; echo bad >&2; exit 3"], text="ä\n"
    )
    assert (result.status, result.output, result.errors) == (3, "ä\n1\n", "bad\n")


def test_a_long_text_and_a_long_output_pass_each_other() -> None:
    text = "x" * 5_000_000
    assert LocalRunner(PATH).run(["cat"], text=text).output == text


def test_a_command_that_cannot_start_is_missing() -> None:
    for command in ("/nosuch", "a\0b"):
        result = LocalRunner(PATH).run([command])
        assert (result.status, result.errors.startswith(command)) == (MISSING, True)


def test_a_command_that_hangs_keeps_what_it_printed() -> None:
    result = LocalRunner(PATH).run(["sh", "-c", "echo begun; exec sleep 1000"], timeout=3.0)
    assert (result.status, result.output) == (None, "begun\n")


def test_a_process_that_left_the_group_does_not_hold_the_answer_back() -> None:
    result = LocalRunner(PATH).run(["sh", "-c", "setsid sleep 30 & echo begun"], timeout=3.0)
    assert (result.status, result.output) == (None, "begun\n")


def test_a_runner_that_closes_kills_its_commands_and_takes_no_more(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    runner = LocalRunner(PATH)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(
            runner.run, ["sh", "-c", f"echo > {tmp_path}/started; exec sleep 1000"], timeout=10 * PATIENCE
        )
        (tmp_path / "started").read_text()
        runner.close()
        assert answer.result(PATIENCE).status == -9
    assert runner.run(["true"]).status is None


def test_a_group_is_not_signalled_once_its_leader_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then its id may be that of a foreign group. `kill` of another thread comes before or after, never amid."""
    is_reaped: list[bool] = []
    kill = os.killpg

    def watched(group: int, number: int) -> None:
        is_reaped.append(not Path(f"/proc/{group}").exists())
        kill(group, number)

    monkeypatch.setattr(os, "killpg", watched)
    for _ in range(50):
        group = ProcessGroup(["true"], PATH)
        killer = threading.Thread(target=lambda group=group: [group.kill() for _ in range(20)])
        killer.start()
        group.reap()
        killer.join()
        group.kill()
    assert not any(is_reaped)
