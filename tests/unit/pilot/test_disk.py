"""The disk of the work folder: what is free, what payloads have written, and what a pilot offers of it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from pilotage.pilot.assignments import Assignment, Assignments, Stage
from pilotage.pilot.disk import FREE_PERIOD, MAX_ENTRIES, WRITTEN_PERIOD, WorkDisk, contents, free_space
from pilotage.pilot.events import DiskMeasured, Event, PayloadEnded, Tick
from pilotage.pilot.job_rate import JobRate
from pilotage.pilot.pilot_config import PilotConfig
from pilotage.pilot.room import may_ever_hold, present_room
from pilotage.pilot.take_request import next_take
from pilotage.wire.pilot import MB, Finish, Node, OfferedJob, Payload

NODE = Node(hostname="n", processors=8, memory=8000)
CONFIG = PilotConfig(1, NODE, 100.0, 10.0, 50.0)


def holding(*disks: int, free: float = 1000.0, written: Sequence[int] = ()) -> Assignments:
    """Running payloads that ask for so much disk, on a disk with so much left."""
    assignments = Assignments()
    for job, disk in enumerate(disks):
        assignment = Assignment(OfferedJob(job, 1, Payload("x", disk=disk)), 0.0)
        assignments.add(assignment)
        for stage in (Stage.CONFIRMING, Stage.READY, Stage.RUNNING):
            assignments.move(assignment, stage, 0.0)
    assignments.note_disk(free, {(job, 1): megabytes for job, megabytes in enumerate(written)})
    return assignments


def offered(assignments: Assignments, most: int = 0) -> int:
    config = PilotConfig(1, NODE, 100.0, 10.0, 50.0, disk=most)
    take = next_take(1, assignments, JobRate(), config, 1.0)
    assert take is not None
    return take.node.disk


def test_a_pilot_offers_what_is_free_less_what_its_payloads_will_still_write() -> None:
    assert offered(holding()) == 1000
    assert offered(holding(300, 200)) == 500
    assert offered(holding(300, 200, written=[100, 0])) == 600
    assert offered(holding(300, written=[500])) == 1000, "more than it asked for is gone, and owed to nobody"
    assert offered(holding(1000)) == 1, "0 would mean that it does not know"
    assert offered(holding(free=0.0)) == 1
    assert offered(holding(free=math.inf)) == 0


def test_a_pilot_offers_no_more_than_its_part() -> None:
    assert offered(holding(), most=400) == 400
    assert offered(holding(300, written=[300]), most=400) == 100, "the part counts with what is written"
    assert offered(holding(free=50.0), most=400) == 50
    assert offered(holding(free=math.inf), most=400) == 400


def test_a_payload_waits_for_disk_that_others_hold_and_goes_where_there_is_never_enough() -> None:
    payload = Payload("x", disk=800)
    half = holding(300, free=900.0, written=[100])
    assert not present_room(CONFIG, half).holds(payload)
    assert may_ever_hold(CONFIG, half, payload)
    assert not may_ever_hold(CONFIG, holding(300, free=600.0, written=[100]), payload)
    assert present_room(CONFIG, holding(free=0.0)).holds(Payload("x")), "it asks for none"


def test_free_space_is_what_this_user_may_write(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    assert free_space(str(tmp_path)) == pytest.approx(status.f_bavail * status.f_frsize / MB, rel=0.05)
    assert free_space(str(tmp_path / "gone")) == math.inf


def test_written_counts_all_files_below_and_follows_no_link(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "payload", tmp_path / "elsewhere"
    (folder / "deep" / "deeper").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "large").write_bytes(os.urandom(4 * MB))
    before = contents((str(folder),)).written
    (folder / "deep" / "deeper" / "file").write_bytes(os.urandom(MB))
    (folder / "link").symlink_to(elsewhere)
    with (folder / "sparse").open("wb") as file:
        file.truncate(100 * MB)
    assert MB <= contents((str(folder), str(tmp_path / "gone"))).written - before < 2 * MB


def test_a_tree_of_any_size_is_read_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilotage.pilot.disk.MAX_ENTRIES", 3)
    for number in range(9):
        (tmp_path / f"f{number}").write_bytes(b"x" * 4096)
    assert 0 < contents((str(tmp_path),)).written <= 3 * 8192 < 9 * 4096
    assert MAX_ENTRIES > 3


class Background:
    """A pool of threads that runs its tasks when it is told to."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def submit(self, work: Any, done: Any) -> None:
        self.tasks.append(lambda: done(work(None), None))


class Running:
    """A payload in a folder."""

    def __init__(self, folder: Path, disk: int) -> None:
        self.payload = Payload("x", disk=disk)
        self.work_dir = self
        self.folder = self.tmp = str(folder)


def test_disk_is_measured_now_and_then_and_when_a_payload_ends(tmp_path: Path) -> None:
    now, pool = [0.0], Background()
    watch = WorkDisk(str(tmp_path), cast(Any, pool), lambda: now[0])
    (tmp_path / "file").write_bytes(os.urandom(3 * MB))
    running: Any = {(1, 1): Running(tmp_path, 500), (2, 1): Running(tmp_path, 0)}

    def measured(*events: Event) -> list[dict[Any, int]]:
        found = watch.measure(running, list(events))
        assert all(isinstance(event, DiskMeasured) for event in found)
        return [dict(event.written) for event in found if isinstance(event, DiskMeasured)]

    assert measured() == [{}]
    assert measured(Tick()) == []
    [task] = pool.tasks
    task()
    assert measured(PayloadEnded(Finish(9, 1))) == [{(1, 1): 6}], "of its folder and its other folder"
    now[0] += FREE_PERIOD
    assert measured() == [{(1, 1): 6}]
    assert len(pool.tasks) == 1, "folders are read more seldom"
    now[0] += WRITTEN_PERIOD
    measured()
    assert len(pool.tasks) == 2
    running.clear()
    pool.tasks[1]()
    now[0] += WRITTEN_PERIOD
    assert measured() == [{}]
    assert len(pool.tasks) == 2, "nobody asks for disk"
