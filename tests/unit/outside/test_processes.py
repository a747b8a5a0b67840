"""Listings of processes while others are being started: between fork and exec a process has no arguments."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.core.errors import Unreachable
from pilotage.outside.batch.local import LocalBatch
from pilotage.outside.batch.processes import Processes
from tests.deadlines import PATIENCE

KERNEL_THREAD = 0x208040
EXITING = 0x400104
ORDINARY = 0x400100


def stamp() -> str:
    """The stamp of a batch job of this process."""
    return f"pilotage-process-{os.getpid()}"


class Proc:
    """A folder like /proc. Its processes change at a given look."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.looks = 0
        self.waited = 0.0
        self.at: dict[int, tuple[int, bytes | None]] = {}
        """By process: the number of the further look before which it has other arguments, or is gone."""
        self.add(1, b"/sbin/init\0", age=100)

    def add(self, pid: int, arguments: bytes, age: float = 0.1, flags: int = ORDINARY) -> None:
        started = int((time.clock_gettime(time.CLOCK_BOOTTIME) - age) * os.sysconf("SC_CLK_TCK"))
        numbers = [1, pid, pid, 0, -1, flags, *([0] * 12), started, 0]
        (self.folder / str(pid)).mkdir()
        (self.folder / str(pid) / "stat").write_text(f"{pid} (a name) S " + " ".join(map(str, numbers)))
        (self.folder / str(pid) / "cmdline").write_bytes(arguments)

    def pause(self, seconds: float) -> None:
        self.looks += 1
        self.waited += seconds
        for pid, (look, arguments) in self.at.items():
            if look == self.looks and arguments is None:
                for name in ("stat", "cmdline"):
                    (self.folder / str(pid) / name).unlink()
            elif look == self.looks and arguments is not None:
                (self.folder / str(pid) / "cmdline").write_bytes(arguments)

    @property
    def processes(self) -> Processes:
        return Processes(self.folder, self.pause)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    folder = tmp_path / "proc"
    folder.mkdir()
    return Proc(folder)


@pytest.fixture
def pilot() -> Iterator[subprocess.Popen[bytes]]:
    """A real process that has a pilot's stamp among its arguments and leads its session."""
    command = ["/bin/sh", "-c", "read line", "sh", f"{stamp()}/0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as shell:
        yield shell
        shell.kill()


def test_a_process_that_gets_its_arguments_during_the_listing_is_in_it(proc: Proc) -> None:
    proc.add(10, b"")
    proc.add(11, b"")
    proc.at = {10: (3, f"sh\0-s\0{stamp()}/0\0".encode()), 11: (2, b"sleep\x0060\0")}
    listed, complete = proc.processes.with_stamps([stamp()])
    assert {name: [process.pid for process in found] for name, found in listed.items()} == {
        (stamp(), 0): [10]
    }
    assert complete
    assert proc.looks == 3


def test_a_process_that_ends_during_the_listing_does_not_make_it_incomplete(proc: Proc) -> None:
    proc.add(10, b"")
    proc.at = {10: (4, None)}
    assert proc.processes.with_stamps(None) == ({}, True)


def test_a_young_process_that_gets_no_arguments_makes_the_listing_incomplete_in_bounded_time(
    proc: Proc,
) -> None:
    proc.add(10, b"")
    assert proc.processes.with_stamps([stamp()]) == ({}, False)
    assert 0.3 < proc.waited < 1


def test_processes_that_never_get_arguments_cost_few_looks(proc: Proc) -> None:
    proc.add(10, b"", flags=KERNEL_THREAD)
    proc.add(11, b"", flags=EXITING)
    assert proc.processes.with_stamps([stamp()]) == ({}, True)
    assert proc.looks == 0
    proc.add(12, b"", age=30)
    assert proc.processes.with_stamps([stamp()]) == ({}, True)
    assert proc.waited < 0.02


def test_an_old_shell_that_becomes_another_program_is_in_the_listing(proc: Proc) -> None:
    proc.add(10, b"", age=30)
    proc.at = {10: (2, f"python\0{stamp()}/0\0".encode())}
    listed, complete = proc.processes.with_stamps([stamp()])
    assert list(listed) == [(stamp(), 0)]
    assert complete


def test_a_start_of_another_program_does_not_make_a_cancellation_fail(
    proc: Proc, pilot: subprocess.Popen[bytes]
) -> None:
    (proc.folder / str(pilot.pid)).symlink_to(f"/proc/{pilot.pid}")
    other = pilot.pid + 1
    proc.add(other, b"")
    proc.at = {other: (5, b"ls\0")}
    LocalBatch({}, proc.folder, processes=proc.processes).cancel([stamp()])
    assert pilot.wait(PATIENCE) == -signal.SIGTERM


def test_a_cancellation_that_may_have_missed_a_pilot_says_so(
    proc: Proc, pilot: subprocess.Popen[bytes]
) -> None:
    (proc.folder / str(pilot.pid)).symlink_to(f"/proc/{pilot.pid}")
    proc.add(pilot.pid + 1, b"")
    with pytest.raises(Unreachable):
        LocalBatch({}, proc.folder, processes=proc.processes).cancel([stamp()])
    assert pilot.wait(PATIENCE) == -signal.SIGTERM, "the pilots that it saw are cancelled all the same"
