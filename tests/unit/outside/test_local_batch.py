"""The adapter of the local CE, on real processes: identity is the stamp, and a process id is not one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.errors import PilotageError
from pilotage.core.pilots.handover import Seen
from pilotage.core.policy.batch_systems.arc import ArcOptions
from pilotage.core.policy.storage_model import S3Options
from pilotage.outside import service_keys
from pilotage.outside.batch.adapter import BatchSubmission, Shape, split_stamp
from pilotage.outside.batch.arc.credentials import find_credential
from pilotage.outside.batch.local import LocalBatch, own_environment
from pilotage.outside.catalogue.rucio.credentials import find_token
from pilotage.outside.service_keys import is_key
from pilotage.outside.storage.credentials import find_credentials
from pilotage.outside.storage.operations import S3Operation
from pilotage.outside.storage.s3 import S3Place
from pilotage.server.duties.batch_clients import outer_environment
from tests.deadlines import PATIENCE


def stamp() -> str:
    """One for each test process: a listing of stamps sees the whole machine."""
    return f"pilotage-test-{os.getpid()}"


def until(find: Callable[[], object], within: float = PATIENCE) -> None:
    deadline = time.monotonic() + within
    while not find():
        assert time.monotonic() < deadline, find
        time.sleep(0.01)


class Started:
    """Processes of a test, which all end with it."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.batches: list[LocalBatch] = []

    def end(self) -> None:
        for pid in self.pids:
            for kill in (os.killpg, os.kill):  # a pilot leads its group; a child of it does not
                with contextlib.suppress(ProcessLookupError):
                    kill(pid, signal.SIGKILL)
        for batch in self.batches:
            until(lambda batch=batch: status(batch, {}) == {} and not batch._children)


@pytest.fixture
def started() -> Iterator[Started]:
    processes = Started()
    yield processes
    processes.end()


def status(batch: LocalBatch, batch_ids: Mapping[str, str]) -> dict[str, tuple[Seen, str]]:
    listing = batch.status(batch_ids)
    return {stamp: listing.find(*split_stamp(stamp)) for stamp in batch_ids}


def start(batch: LocalBatch, stamp: str, started: Started, script: str = "sleep 600") -> str:
    batch_id = batch.submit(BatchSubmission(stamp, 1, Shape(1), script)).array
    started.pids.append(int(batch_id.partition(":")[0]))
    # A process that is just being started has no arguments yet: that says nothing, least of all that it is gone.
    until(lambda: batch.list_pilots([stamp]).find(stamp)[0] is not Seen.UNKNOWN)
    started.batches.append(batch)
    return batch_id


def test_a_pilot_whose_start_was_not_recorded_is_found_by_its_stamp(tmp_path: Path, started: Started) -> None:
    batch_id = start(LocalBatch({}, tmp_path), stamp(), started)
    other = LocalBatch({}, tmp_path)
    found = status(other, {stamp(): "", f"{stamp()}-b": ""})
    assert found[stamp()] == (Seen.SEEN, batch_id)
    assert found[f"{stamp()}-b"] == (Seen.ABSENT, "")


def test_a_batch_id_that_is_not_the_pilots_does_not_lose_it(tmp_path: Path, started: Started) -> None:
    batch = LocalBatch({}, tmp_path)
    batch_id = start(batch, stamp(), started)
    pid, _, begun = batch_id.partition(":")
    for wrong in ("4711", "4711.server", f"{os.getpid()}:1", f"{pid}:{int(begun) + 1}", "x:y", "1[2]:3"):
        assert status(batch, {stamp(): wrong}) == {stamp(): (Seen.SEEN, batch_id)}


def test_a_process_id_that_is_used_again_is_nobodys(tmp_path: Path, started: Started) -> None:
    batch = LocalBatch({}, tmp_path)
    # Another living process has the id; it was started at another instant, and it has no such stamp.
    assert status(batch, {stamp(): f"{os.getpid()}:1"}) == {stamp(): (Seen.ABSENT, "")}
    batch.cancel_tasks([f"{os.getpid()}:1"], batch.list_pilots([]).epoch)
    batch_id = start(batch, stamp(), started)
    os.kill(started.pids[0], signal.SIGKILL)
    until(lambda: status(batch, {stamp(): batch_id})[stamp()][0] is Seen.ABSENT)


def test_pilots_of_another_host_are_unknown_here(tmp_path: Path, started: Started) -> None:
    here = LocalBatch({}, tmp_path, host="here")
    batch_id = start(here, stamp(), started)
    assert batch_id.endswith("@here")
    assert status(here, {stamp(): "@here"}) == {stamp(): (Seen.SEEN, batch_id)}
    there = LocalBatch({}, tmp_path, host="there")
    assert there.place == "@there"
    assert status(there, {stamp(): batch_id, "b": "@here"}) == {
        stamp(): (Seen.UNKNOWN, batch_id),
        "b": (Seen.UNKNOWN, "@here"),
    }


def test_the_leader_of_the_session_is_the_pilot_and_its_children_keep_it_seen(
    tmp_path: Path, started: Started
) -> None:
    batch = LocalBatch({}, tmp_path)
    script = f'sh -c "sleep 600; :" child {stamp()} & wait'
    batch_id = start(batch, stamp(), started, script)
    [leader] = started.pids

    def child() -> int:
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(leader)], capture_output=True, text=True)
        return int(listed.stdout.split()[0]) if listed.stdout.split() else 0

    until(child)
    started.pids.append(child())
    assert status(LocalBatch({}, tmp_path), {stamp(): ""})[stamp()] == (Seen.SEEN, batch_id)
    os.kill(leader, signal.SIGKILL)
    until(lambda: not batch._children or (status(batch, {}) == {} and not batch._children))
    # The leader is gone, its child goes on: not absent, and nothing to record either.
    assert status(batch, {stamp(): batch_id})[stamp()] == (Seen.SEEN, batch_id)
    os.killpg(leader, signal.SIGKILL)
    until(lambda: status(batch, {stamp(): batch_id})[stamp()][0] is Seen.ABSENT)


def test_a_pilot_knows_nothing_of_the_batch_job_that_its_server_runs_in(
    tmp_path: Path, started: Started
) -> None:
    foreign = {
        "SLURM_JOB_ID": "991", "SLURMD_NODENAME": "n", "PBS_JOBID": "7.pbs", "JOB_ID": "5", "SGE_TASK_ID": "1",
        "LSB_JOBID": "8", "_CONDOR_JOB_ID": "1.0", "GRID_GLOBAL_JOBID": "https://ce/1", "NSLOTS": "2",
        "OAR_JOB_ID": "3", "FLUX_JOB_ID": "f", "COBALT_JOBID": "4", "PBS_NP": "3", "PE_HOSTFILE": "/x",
    }  # fmt: skip
    own = {"PATH": "/usr/bin:/bin", "HOME": "/home/me", "JOB_IDEA": "mine"}
    assert own_environment(foreign | own) == own
    log = tmp_path / f"{stamp()}-0.log"
    start(LocalBatch(foreign | own, tmp_path), stamp(), started, "env; exec sleep 600")
    until(lambda: "JOB_IDEA=mine" in log.read_text())
    assert not [name for name in foreign if f"{name}=" in log.read_text()]


class Recorded(dict[str, str]):
    """Variables that notes by which names it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return default


def test_pilots_do_not_get_the_keys_of_the_server() -> None:
    """Each variable by which the server finds a key: one that is read in future is found here, too."""
    variables = Recorded()
    for find in (
        lambda: find_credentials(S3Options(), variables),
        lambda: find_token("", variables, 987654321),
        lambda: find_credential(ArcOptions(url="https://ce.example.org"), variables, 987654321),
    ):
        with pytest.raises(PilotageError):
            find()
    # A folder of the session has no key itself.
    secret = variables.asked - {"XDG_RUNTIME_DIR"}
    assert {"AWS_SECRET_ACCESS_KEY", "BEARER_TOKEN"} <= secret
    assert {name for name in secret if not is_key(name)} == {"BEARER_TOKEN_FILE"}, (
        "taken out of the environment"
    )
    assert own_environment(dict.fromkeys((*secret, "AWS_PROFILE", "LANG"), "x"), "") == {"LANG": "x"}


def test_keys_leave_the_environment_and_still_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "BEARER_TOKEN": "token"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(service_keys, "_taken", {})
    service_keys.take_keys()
    assert not given.keys() & {*os.environ, *outer_environment()}
    assert given.items() <= service_keys.with_keys().items()
    place = S3Place(S3Options(endpoint="https://s3.example.org", bucket="b"))
    assert "key" in place.sign(S3Operation("get", "s3://s3.example.org/b/x"), 1.0).address
    place.close()


def test_pilots_do_not_see_the_python_of_the_server(tmp_path: Path) -> None:
    server = tmp_path / "checkout/.venv"
    (server / "bin").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(server)
    mine = str(tmp_path / "mine/bin")
    environment = {
        "PATH": f"{server}/bin:{mine}:{link}/bin/:/usr/bin",
        "VIRTUAL_ENV": str(server),
        "VIRTUAL_ENV_PROMPT": "(checkout)",
        "PYTHONPATH": "/checkout/src",
        "PYTHONHOME": "/checkout",
        "PYTHONUNBUFFERED": "1",
        "HOME": "/home/me",
    }
    assert own_environment(environment, str(server)) == {"PATH": f"{mine}:/usr/bin", "HOME": "/home/me"}
    # A PATH of the server's programs alone is none: the pilot then has its own default.
    assert own_environment({"PATH": f"{server}/bin"}, str(server)) == {}
    # Without a virtual environment its Python is the node's own, and stays.
    assert own_environment({"PATH": "/usr/bin"}, "") == {"PATH": "/usr/bin"}
    found = own_environment({"PATH": f"{sys.prefix}/bin:/usr/bin"})["PATH"]
    assert found == ("/usr/bin" if sys.prefix != sys.base_prefix else f"{sys.prefix}/bin:/usr/bin")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_pilots_of_one_submission_spread_over_the_cores(tmp_path: Path, started: Started) -> None:
    batch = LocalBatch({}, tmp_path)
    cores = len(batch.cores)
    receipt = batch.submit(BatchSubmission(stamp(), cores, Shape(1), "sleep 600"))
    started.batches.append(batch)
    started.pids += [int(batch_id.partition(":")[0]) for batch_id in receipt.batch_ids]
    used = [os.sched_getaffinity(pid) for pid in started.pids]
    assert sorted(core for pinned in used for core in pinned) == batch.cores
    # The next one goes where the fewest are, and a pilot that is gone counts no more.
    os.kill(started.pids[0], signal.SIGKILL)
    ids = receipt.batch_ids
    until(lambda: status(batch, {"gone": ids[0]})["gone"][0] is Seen.ABSENT)
    again = batch.submit(BatchSubmission(f"{stamp()}-again", 1, Shape(1), "sleep 600", neighbours=ids))
    started.pids.append(int(again.array.partition(":")[0]))
    assert os.sched_getaffinity(started.pids[-1]) == used[0]
