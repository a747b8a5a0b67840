"""Faults of a real Grid Engine, of its administrator and of the server between two steps of a submission.

The server finds wrappers of Grid Engine's commands first on its PATH. A wrapper makes one fault and then behaves.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests import sge
from tests.deadlines import PATIENCE
from tests.instance import Instance, until

JOBS = 8
COMMANDS = ("qsub", "qstat", "qrls", "qdel", "qping", "qacct")
WRAPPER = """\
#!/bin/sh
# usage: the command's own. The fault is taken from a file, once.
name=${0##*/}
real=$(PATH=$REAL_PATH command -v "$name")
fault=
if [ -e "$FAULTS/$name" ]; then fault=$(cat "$FAULTS/$name"); rm -f "$FAULTS/$name"; fi
case $fault in
  kill-server-before) kill -9 $PPID; exit 1 ;;
  kill-server-after) "$real" "$@" >/dev/null; kill -9 $PPID; exit 1 ;;
  kill-me-before) kill -9 $$ ;;
  kill-me-after) "$real" "$@" >/dev/null; kill -9 $$ ;;
  silent-after) "$real" "$@" >/dev/null; exit 0 ;;
  crash-master-after) "$real" "$@"; kill -9 "$(cat "$FAULTS/master")" ;;
  partial) "$real" "$@" | head -c 200 ;;
  empty) exit 0 ;;
  garbage) echo "error: commlib error: got read error (closing connection)"; exit 0 ;;
  fail) echo "error: unable to contact qmaster using port 6444 on host \\"vm\\"" >&2; exit 1 ;;
  *) exec "$real" "$@" ;;
esac
"""

SGE_CE = """\
[ces.sge]
site = "here"
type = "sge"
owners = "any"
pilot_processors = 2
pilot_memory = 100
wall = 1500
max_waiting = 4
max_running = 8
listing_period = 0.5
submit_rate = 100
heartbeat = 0.5
lease = 60
idle = 2
settle = 2
[ces.sge.sge]
pe = "smp"
[director]
demand = "matched"
"""


class Faulty:
    """A cell, and a server whose calls to it can be made to fail once."""

    def __init__(self, engine: sge.GridEngine, folder: Path) -> None:
        self.engine = engine
        self._faults = folder / "faults"
        programs = folder / "programs"
        path = engine.environment["PATH"]
        for made in (self._faults, programs):
            made.mkdir()
        # The server hands only some variables down, so the wrappers have their own in their text.
        head = f"#!/bin/sh\nREAL_PATH={path}\nFAULTS={self._faults}\n"
        for name in COMMANDS:
            (programs / name).write_text(WRAPPER.replace("#!/bin/sh\n", head, 1))
            (programs / name).chmod(0o755)
        self.environment = {**engine.environment, "PATH": f"{programs}:{path}"}

    def clear(self) -> None:
        """Forget the faults that no call has had."""
        for fault in self._faults.iterdir():
            fault.unlink()

    def set(self, command: str, fault: str) -> Path:
        """The next call of `command` has this fault; the file is there until then."""
        (self._faults / "master").write_text(str(self.engine.pid()))
        (self._faults / command).write_text(fault)
        return self._faults / command


@pytest.fixture(scope="module")
def engine() -> Iterator[sge.GridEngine]:
    with sge.grid_engine() as made:
        yield made


@pytest.fixture(scope="module")
def faulty(engine: sge.GridEngine, tmp_path_factory: pytest.TempPathFactory) -> Faulty:
    return Faulty(engine, tmp_path_factory.mktemp("faulty"))


@pytest.fixture(scope="module")
def server(faulty: Faulty, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    instance = Instance(tmp_path_factory.mktemp("server"))
    begin, _, rest = instance.policy.partition("[ces.local]")
    instance.policy = begin + SGE_CE + "[jobs]" + rest.partition("[jobs]")[2]
    instance.environment = faulty.environment
    try:
        instance.start()
        instance.apply()
        yield instance
    finally:
        instance.close()


@pytest.fixture
def instance(server: Instance, faulty: Faulty) -> Instance:
    """The one server of all tests. A change of the CE ends the pause that the last test has caused."""
    old, new = ("lease = 60", "lease = 61") if "lease = 60" in server.policy else ("lease = 61", "lease = 60")
    server.policy = server.policy.replace(old, new)
    server.apply()
    faulty.clear()
    return server


def submit(instance: Instance, seconds: float = 0.2, count: int = JOBS) -> Selection:
    sent = instance.client().submit({"executable": "sleep", "arguments": [str(seconds)]}, values=range(count))
    return Selection(submission=sent.submission)


def assert_all_done(instance: Instance, engine: sge.GridEngine, jobs: Selection, count: int = JOBS) -> None:
    """Every job is done and was applied once; no pilot and no batch job is left."""
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Done") == count, what=f"the end of {count} jobs")
    until(lambda: not engine.run("qstat", "-u", "*"), what="the end of all batch jobs")
    until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")
    for job in client.jobs(jobs):
        assert instance.events(job.id).count("finished") == 1


def wait_for_use(fault: Path) -> None:
    until(lambda: not fault.exists(), what="the fault")


@pytest.mark.parametrize("command", ["qsub", "qrls"])
@pytest.mark.parametrize("fault", ["kill-server-before", "kill-server-after"])
def test_a_server_that_dies_in_a_call(instance: Instance, faulty: Faulty, command: str, fault: str) -> None:
    """Between intent and id, between id and release; before and after the master has acted."""
    faulty.set(command, fault)
    jobs = submit(instance)
    until(lambda: instance.process is not None and instance.process.poll() is not None, what="its death")
    instance.start()
    assert_all_done(instance, faulty.engine, jobs)


@pytest.mark.parametrize("fault", ["kill-me-before", "kill-me-after", "silent-after"])
def test_a_submission_without_a_clear_answer(instance: Instance, faulty: Faulty, fault: str) -> None:
    used = faulty.set("qsub", fault)
    jobs = submit(instance)
    wait_for_use(used)
    assert_all_done(instance, faulty.engine, jobs)
    ids = [pilot.batch_id for pilot in instance.client().pilots() if pilot.batch_id]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("fault", ["kill-me-before", "kill-me-after"])
def test_a_release_without_an_answer(instance: Instance, faulty: Faulty, fault: str) -> None:
    used = faulty.set("qrls", fault)
    jobs = submit(instance)
    wait_for_use(used)
    assert_all_done(instance, faulty.engine, jobs)


@pytest.mark.parametrize(
    ("command", "fault"),
    [("qstat", "partial"), ("qstat", "garbage"), ("qstat", "empty"), ("qstat", "fail"), ("qping", "partial")],
)
def test_a_listing_that_is_no_listing(instance: Instance, faulty: Faulty, command: str, fault: str) -> None:
    client = instance.client()
    before = {pilot.id for pilot in client.pilots()}
    jobs = submit(instance, seconds=1, count=6)
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    for _ in range(3):
        wait_for_use(faulty.set(command, fault))
    assert_all_done(instance, faulty.engine, jobs, 6)
    assert {pilot.state for pilot in client.pilots() if pilot.id not in before} == {"Done"}


def test_a_master_that_hangs_during_a_submission(instance: Instance, faulty: Faulty) -> None:
    with faulty.engine.stopped():
        jobs = submit(instance)
        until(lambda: "CE sge:" in instance.log(), 2 * PATIENCE, "the failure of a call")
    assert_all_done(instance, faulty.engine, jobs)


def test_a_master_that_crashes_right_after_its_answer(instance: Instance, faulty: Faulty) -> None:
    used = faulty.set("qsub", "crash-master-after")
    jobs = submit(instance)
    wait_for_use(used)
    faulty.engine.kill()
    faulty.engine.start_master()
    assert_all_done(instance, faulty.engine, jobs)


def test_a_master_that_is_started_again_while_pilots_run(instance: Instance, faulty: Faulty) -> None:
    jobs = submit(instance, seconds=3, count=4)
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    before = {pilot.id for pilot in client.pilots() if not pilot.ended}
    faulty.engine.kill()
    faulty.engine.start_master()
    assert_all_done(instance, faulty.engine, jobs, 4)
    assert {pilot.state for pilot in client.pilots() if pilot.id in before} == {"Done"}


def test_an_administrator_who_deletes_pilots(instance: Instance, faulty: Faulty) -> None:
    jobs = submit(instance, seconds=2, count=6)
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    faulty.engine.run("qdel", "-u", "*")
    assert_all_done(instance, faulty.engine, jobs, 6)


def test_a_pilot_that_is_killed_on_its_node_has_a_reason(instance: Instance, faulty: Faulty) -> None:
    client = instance.client()
    before = {pilot.id for pilot in client.pilots()}
    jobs = submit(instance, seconds=5, count=1)
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    [pilot] = [pilot for pilot in client.pilots() if pilot.id not in before and pilot.state == "Running"]
    for pid in faulty.engine.processes(pilot.batch_id):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert_all_done(instance, faulty.engine, jobs, 1)
    assert "signal 9" in client.pilot(pilot.id).pilot.reason


def test_a_full_batch_system_is_no_failure(instance: Instance, faulty: Faulty) -> None:
    """One array of one user at a time: the next one is refused until the first has ended."""
    faulty.engine.limit(max_u_jobs="1")
    try:
        jobs = submit(instance)
        more = submit(instance)
        client = instance.client()
        until(
            lambda: client.counts(jobs).final == client.counts(more).final == JOBS, what="the end of all jobs"
        )
    finally:
        faulty.engine.limit(max_u_jobs="0")
    assert_all_done(instance, faulty.engine, jobs)


def test_a_pilot_that_an_administrator_holds_goes_on_when_it_is_released(
    instance: Instance, faulty: Faulty
) -> None:
    engine, client = faulty.engine, instance.client()
    # Else the server submits no pilots once it has seen that no queue starts jobs.
    open_always = '[ces.sge.attributes]\nGlueCEStateStatus = "Production"\n[director]'
    client.apply_policy(instance.policy.replace("[director]", open_always))
    engine.run("qmod", "-d", "*")
    try:
        jobs = submit(instance)

        def released() -> bool:
            """Whether the server has released all pilots, so that it does not end the hold that follows."""
            return {pilot.state for pilot in client.pilots() if not pilot.ended} == {"Waiting"}

        until(released, what="waiting pilots")
        until(lambda: "disabled" in instance.cli("ce", "list").stdout, what="the reason of the wait")
        engine.run("qhold", "-h", "o", "-u", "*")
    finally:
        engine.run("qmod", "-e", "*")
    until(lambda: "hqw: held" in instance.cli("ce", "list").stdout, what="the hold")
    engine.run("qrls", "-h", "o", "-u", "*")
    assert_all_done(instance, engine, jobs)


def test_batch_jobs_in_the_error_state_are_cancelled(
    instance: Instance, faulty: Faulty, tmp_path: Path
) -> None:
    """A prolog that ends with 100 puts a job into Eqw, where Grid Engine leaves it."""
    engine = faulty.engine
    prolog = tmp_path / "prolog"
    prolog.write_text("#!/bin/sh\nexit 100\n")
    prolog.chmod(0o755)
    engine.replace_queue("all.q", prolog=str(prolog))
    try:
        jobs = submit(instance)
        until(lambda: "Eqw" in instance.cli("ce", "list").stdout, what="the reason of the pause")
        until(lambda: not engine.run("qstat", "-u", "*"), what="the cancel")
    finally:
        engine.replace_queue("all.q", prolog="NONE")
    instance.cli("ce", "enable", "sge")
    assert_all_done(instance, engine, jobs)
