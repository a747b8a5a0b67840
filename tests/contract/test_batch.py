"""The contract of a batch adapter. A further adapter is a further row of `SYSTEMS` and passes the same tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from pilotage.core.pilots.handover import Seen
from pilotage.outside.batch.adapter import BatchAdapter, BatchJob, Listing, Receipt, Shape, Sighting
from pilotage.outside.batch.local import LocalBatch

SLEEP = "sleep 600\n"
SHAPE = Shape(1)
DEADLINE = 30.0


class System(Protocol):
    """A batch system of the tests' own."""

    def adapter(self) -> BatchAdapter:
        """A new one each time, as after a restart of the server."""

    def broken(self) -> BatchAdapter:
        """One that cannot submit anything."""

    def kill(self, batch_id: str) -> None:
        """End a batch job behind the adapter's back, without a chance to say goodbye."""

    def shown_to_everybody(self) -> str:
        """All that any account of the machine is shown of the batch jobs."""

    def end(self) -> None:
        """End all batch jobs."""


class LocalSystem:
    """Processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._adapters: list[LocalBatch] = []

    def adapter(self) -> LocalBatch:
        self._adapters.append(LocalBatch(os.environ, self._folder / "logs"))
        return self._adapters[-1]

    def broken(self) -> LocalBatch:
        (self._folder / "a-file").touch()
        return LocalBatch(os.environ, self._folder / "a-file")

    def kill(self, batch_id: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(batch_id.partition(":")[0]), signal.SIGKILL)

    def shown_to_everybody(self) -> str:
        return subprocess.run(["ps", "-e", "-o", "args="], capture_output=True, text=True, check=True).stdout

    def end(self) -> None:
        for adapter in self._adapters:
            for pid in list(adapter._children):
                self.kill(str(pid))
            until(lambda adapter=adapter: adapter.status({}, 0.0).at == 0.0 and not adapter._children)


SYSTEMS: dict[str, Callable[[Path], System]] = {"local": LocalSystem}


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[System]:
    made = SYSTEMS[request.param](tmp_path)
    yield made
    made.end()


@pytest.fixture
def adapter(system: System) -> BatchAdapter:
    return system.adapter()


@pytest.fixture
def stamps(tmp_path: Path) -> list[str]:
    """Stamps that nothing else on this machine has."""
    unique = f"{os.getpid()}-{tmp_path.name}-{time.monotonic_ns()}"
    return [f"stamp-{unique}-{number}" for number in range(3)]


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < deadline, holds
        time.sleep(0.02)


def submitted(adapter: BatchAdapter, stamps: Sequence[str], script: str = SLEEP) -> dict[str, str]:
    """Submit batch jobs and wait until a listing has them; their ids by stamp."""
    receipts = adapter.submit(SHAPE, [BatchJob(stamp, script) for stamp in stamps])
    assert all(receipt.batch_id and not receipt.refused for receipt in receipts.values()), receipts
    until(lambda: seen(adapter.find(stamps, 0.0)) == {Seen.SEEN})
    return {stamp: receipt.batch_id for stamp, receipt in receipts.items()}


def seen(listing: Listing) -> set[Seen]:
    return {sighting.seen for sighting in listing.sightings.values()}


def expected(ids: dict[str, str]) -> dict[str, Sighting]:
    return {stamp: Sighting(Seen.SEEN, batch_id) for stamp, batch_id in ids.items()}


def test_one_call_submits_many_and_answers_for_each(adapter: BatchAdapter, stamps: list[str]) -> None:
    ids = submitted(adapter, stamps)
    assert list(ids) == stamps
    assert len(set(ids.values())) == len(stamps)
    assert adapter.status(ids, 0.0).sightings == expected(ids)


def test_none_is_many_too(adapter: BatchAdapter) -> None:
    assert adapter.submit(SHAPE, []) == {}
    assert adapter.find([], 5.0) == adapter.status({}, 5.0) == Listing(5.0, {})
    adapter.cancel([])


def test_another_server_finds_batch_jobs_by_their_stamps(system: System, stamps: list[str]) -> None:
    ids = submitted(system.adapter(), stamps[:2])
    listing = system.adapter().find(stamps, 7.0)
    assert listing.at == 7.0
    assert listing.sightings == {**expected(ids), stamps[2]: Sighting(Seen.ABSENT, "")}


def test_the_stamp_decides_where_the_batch_id_is_anothers(adapter: BatchAdapter, stamps: list[str]) -> None:
    first, second, third = stamps
    ids = submitted(adapter, [first, second])
    swapped = {first: "", second: "no-such-id", third: "no-such-id"}
    assert adapter.status(swapped, 0.0).sightings == {
        **expected(ids), third: Sighting(Seen.ABSENT, "no-such-id"),
    }  # fmt: skip


def test_a_batch_job_that_was_killed_is_absent_by_id_and_by_stamp(
    system: System, adapter: BatchAdapter, stamps: list[str]
) -> None:
    ids = submitted(adapter, stamps)
    dead, *living = stamps
    system.kill(ids[dead])
    until(lambda: adapter.status(ids, 0.0).sightings[dead].seen is Seen.ABSENT)
    assert seen(adapter.status({stamp: ids[stamp] for stamp in living}, 0.0)) == {Seen.SEEN}
    assert system.adapter().find([dead], 0.0).sightings[dead].seen is Seen.ABSENT


def test_cancel_reaches_many_and_no_others(adapter: BatchAdapter, stamps: list[str]) -> None:
    ids = submitted(adapter, stamps, "trap 'exit 0' TERM\nwhile :; do sleep 0.1; done\n")
    *cancelled, kept = stamps
    adapter.cancel([ids[stamp] for stamp in cancelled])
    until(lambda: seen(adapter.find(cancelled, 0.0)) == {Seen.ABSENT})
    assert adapter.status({kept: ids[kept]}, 0.0).sightings == expected({kept: ids[kept]})
    # Gone, never there, and not an id at all.
    adapter.cancel([ids[cancelled[0]], "0:0", "no-such-id", ""])
    assert seen(adapter.status({kept: ids[kept]}, 0.0)) == {Seen.SEEN}


def test_the_script_is_shown_to_nobody(system: System, adapter: BatchAdapter, stamps: list[str]) -> None:
    secret = f"secret-of-{stamps[0]}"
    batch_job = BatchJob(stamps[0], f"key={secret}\n{SLEEP}")
    assert secret not in repr(batch_job)
    submitted(adapter, stamps[:1], batch_job.script)
    shown = system.shown_to_everybody()
    assert stamps[0] in shown
    assert secret not in shown


def test_the_end_of_the_output_is_read_back(system: System, adapter: BatchAdapter, stamps: list[str]) -> None:
    submitted(adapter, stamps[:1], f"echo first; printf 'no Python here: \\303\\274' >&2\n{SLEEP}")
    until(lambda: adapter.output(stamps[0], 100).endswith("\u00fc"))
    assert adapter.output(stamps[0], 100) == "first\nno Python here: \u00fc"
    assert system.adapter().output(stamps[0], 7) == "here: \u00fc"
    assert adapter.output(stamps[1], 100) == ""


def test_what_is_refused_has_a_reason_and_is_not_there(system: System, stamps: list[str]) -> None:
    adapter = system.broken()
    receipts = adapter.submit(SHAPE, [BatchJob(stamp, SLEEP) for stamp in stamps])
    assert list(receipts) == stamps
    for receipt in receipts.values():
        assert receipt == Receipt(refused=receipt.refused)
        assert receipt.refused
    assert seen(adapter.find(stamps, 0.0)) == {Seen.ABSENT}
