"""What is told of a disk without room, and how often."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from pilotage.core.errors import DiskFull, Overloaded, Unreachable
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.server.disk_space import FAILURE_HOLD, DiskSpace, DiskWatch, FailureLog, Reserve

MB = 1_000_000


class _Disk(NamedTuple):
    """MB."""

    size: int
    left: int

    @property
    def total(self) -> int:
        return self.size * MB

    @property
    def free(self) -> int:
        return self.left * MB


@pytest.mark.parametrize(
    ("disk", "low"),
    [
        (_Disk(10_000, 499), True),
        (_Disk(10_000, 501), False),
        (_Disk(1_000, 63), True),
        (_Disk(1_000, 65), False),
        (_Disk(40, 9), True),
        (_Disk(40, 11), False),
    ],
)
def test_the_floor_is_a_fraction_of_the_disk_or_a_number_of_bytes(disk: _Disk, low: bool) -> None:
    """The larger one; of a small disk not all of it."""
    space = DiskSpace({"sandboxes": Path("/somewhere")}, time.monotonic, usage=lambda folder: disk)
    space.refresh()
    assert bool(space.low) == low
    assert space.free() == {"sandboxes": disk.free}


def test_a_little_more_than_the_floor_is_needed_to_go_on() -> None:
    left = [499]
    space = DiskSpace(
        {"sandboxes": Path("/somewhere")}, time.monotonic, usage=lambda folder: _Disk(10_000, left[0])
    )
    with pytest.raises(DiskFull, match="the disk of the server's sandboxes is nearly full") as told:
        space.check()
    assert told.value.retry_after > 0
    left[0] = 510
    with pytest.raises(DiskFull):
        space.check()
    left[0] = 560
    space.check()
    left[0] = 510
    space.check()


@pytest.mark.parametrize(
    ("databases", "sandboxes", "held"),
    [(1_000, 1_000, True), (1_000, 1, True), (3, 1_000, False), (70, 1_000, False)],
)
def test_the_reserve_is_of_the_databases_disk(
    tmp_path: Path, databases: int, sandboxes: int, held: bool
) -> None:
    left = {"database": databases, "sandboxes": sandboxes}
    folders = {name: Path("/") / name for name in left}
    reserve = Reserve(tmp_path / "kept", size=16 * MB)
    space = DiskSpace(folders, time.monotonic, reserve, usage=lambda folder: _Disk(1_200, left[folder.name]))
    space.refresh()
    assert reserve.held == held


def test_a_small_disk_has_no_reserve(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "kept", size=16 * MB)
    DiskSpace({"database": tmp_path}, time.monotonic, reserve, usage=lambda folder: _Disk(100, 90)).refresh()
    assert not reserve.held


def test_a_failed_write_refuses_new_work_until_one_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    space = DiskSpace({"sandboxes": tmp_path}, lambda: now[0], least=0)
    full = [True]

    async def write() -> None:
        if full[0]:
            raise DiskFull("the disk of the database is full")

    duty = DiskWatch(space, write)
    space.write_failed(DiskFull("the disk of the database is full"))
    for _ in range(50):
        now[0] += 1.0
        asyncio.run(duty.look())
        with pytest.raises(DiskFull, match="the disk of the database is full"):
            space.check()
    full[0] = False
    asyncio.run(duty.look())
    with pytest.raises(DiskFull):
        space.check()
    now[0] += FAILURE_HOLD
    asyncio.run(duty.look())
    space.check()
    assert [record.message for record in caplog.records] == [
        "the disk of the database is full: nothing new is accepted",
        "the disk has room again: new work is accepted",
    ]


def test_the_reserve_takes_its_bytes_and_gives_them_back(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "kept", size=3 * MB)
    space = DiskSpace({"database": tmp_path}, time.monotonic, reserve, least=0)
    space.refresh()
    assert (tmp_path / "kept").stat().st_blocks * 512 >= 3 * MB
    space.write_failed(DiskFull("full"))
    assert not reserve.held
    space.refresh()
    assert not reserve.held, "taken again while the database has no room"
    space.write_succeeded()
    space.refresh()
    assert reserve.held


def test_a_reserve_that_cannot_be_had_leaves_nothing(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "kept", size=1 << 60)
    reserve.keep()
    assert not reserve.held
    Reserve(tmp_path / "no folder" / "kept").keep()


def test_a_duty_that_fails_is_told_when_that_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failures = FailureLog("LeaseDuty.cycle", DiskSpace({"sandboxes": tmp_path}, time.monotonic, least=0))
    for _ in range(3):
        failures.record_failure(Unreachable("no pilot could be started"))
    for _ in range(3):
        failures.record_failure(KeyError("a bug"))
    failures.record_failure(KeyError("another"))
    failures.record_success()
    failures.record_success()
    for _ in range(3):
        failures.record_failure(OSError(errno.ENOSPC, "No space left on device"))
    told = [(record.levelname, record.message, bool(record.exc_info)) for record in caplog.records]
    assert told == [
        ("WARNING", "LeaseDuty.cycle: no pilot could be started", False),
        ("ERROR", "LeaseDuty.cycle failed; it will be tried again", True),
        ("ERROR", "LeaseDuty.cycle failed; it will be tried again", True),
        ("WARNING", "LeaseDuty.cycle works again, after 7 failed cycles", False),
        (
            "WARNING",
            "LeaseDuty.cycle: a file cannot be written: No space left on device (free some space)",
            False,
        ),
    ]


def test_duties_without_room_are_told_as_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    space = DiskSpace({"sandboxes": tmp_path}, time.monotonic, least=0)
    for name in ("leases", "shares", "queues"):
        failures = FailureLog(name, space)
        for _ in range(10):
            failures.record_failure(DiskFull("the database cannot be written"))
        failures.record_success()
    assert [record.message for record in caplog.records] == [
        "the database cannot be written: nothing new is accepted"
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_sandbox_without_room_is_told(tmp_path: Path) -> None:
    sandbox = DirectorySandbox(tmp_path)
    tail = tmp_path / "tails" / "1" / "1.stdout"
    tail.parent.mkdir()
    tail.symlink_to("/dev/full")
    with pytest.raises(DiskFull, match="no room") as told:
        sandbox.append_tail(1, 1, "stdout", 0, b"some bytes")
    assert isinstance(told.value, Overloaded)
    tail.unlink()
    tail.mkdir()
    with pytest.raises(OSError, match="directory") as other:
        sandbox.append_tail(1, 1, "stdout", 0, b"some bytes")
    assert other.value.errno == errno.EISDIR
