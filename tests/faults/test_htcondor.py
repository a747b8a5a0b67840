"""Faults of a real HTCondor, of its people and of the server between two steps of a submission.

The server finds wrappers of HTCondor's commands first on its PATH. A wrapper makes one fault and then behaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests import htcondor
from tests.deadlines import PATIENCE
from tests.instance import Instance, until

JOBS = 8
COMMANDS = ("condor_submit", "condor_q", "condor_release", "condor_rm", "condor_status", "condor_history")
WRAPPER = """\
#!/bin/sh
# usage: the command's own. The fault is taken from a file, once.
name=${0##*/}
real=$REAL/$name
fault=
if [ -e "$FAULTS/$name" ]; then fault=$(cat "$FAULTS/$name"); rm -f "$FAULTS/$name"; fi
case $fault in
  kill-server-before) kill -9 $PPID; exit 1 ;;
  kill-server-after) "$real" "$@" >/dev/null; kill -9 $PPID; exit 1 ;;
  kill-me-before) kill -9 $$ ;;
  kill-me-after) "$real" "$@" >/dev/null; kill -9 $$ ;;
  silent-after) "$real" "$@" >/dev/null; exit 0 ;;
  kill-schedd-after) "$real" "$@"; kill -9 "$(cat "$FAULTS/schedd")" ;;
  lose-script) "$real" "$@"; rm -f $SCRIPTS/pilotage-* ;;
  partial) "$real" "$@" | head -c 100 ;;
  empty) exit 0 ;;
  garbage) echo '{"version": 2, "jobs": []}'; exit 0 ;;
  fail) echo "Error: Couldn't contact the condor_collector on cm." >&2; exit 1 ;;
  *) exec "$real" "$@" ;;
esac
"""

CE = f"""\
[ces.condor]
site = "here"
type = "htcondor"
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
[ces.condor.htcondor]
owner = "{htcondor.ACCOUNT}"
[director]
demand = "matched"
"""


class Faulty:
    """A pool, and a server whose calls to it can be made to fail once."""

    def __init__(self, pool: htcondor.CondorPool, folder: Path) -> None:
        self.pool = pool
        self._faults, programs = folder / "faults", folder / "programs"
        for made in (self._faults, programs):
            made.mkdir()
        # The server hands only some variables down, so the wrappers have their own in their text.
        scripts = f"{htcondor.ROOT}/home/{htcondor.ACCOUNT}/.cache/pilotage/htcondor"
        head = f"#!/bin/sh\nREAL={pool.folder}/bin\nFAULTS={self._faults}\nSCRIPTS={scripts}\n"
        for name in COMMANDS:
            (programs / name).write_text(WRAPPER.replace("#!/bin/sh\n", head, 1))
            (programs / name).chmod(0o755)
        self.environment = {**pool.environment, "PATH": f"{programs}:{pool.environment['PATH']}"}

    def clear(self) -> None:
        """Forget the faults that no call has had."""
        for fault in self._faults.iterdir():
            fault.unlink()

    def set(self, command: str, fault: str) -> Path:
        """The next call of `command` has this fault; the file is there until then."""
        (self._faults / "schedd").write_text(str(self.pool.pid()))
        (self._faults / command).write_text(fault)
        return self._faults / command


@pytest.fixture(scope="module")
def pool() -> Iterator[htcondor.CondorPool]:
    with htcondor.condor_pool() as made:
        yield made


@pytest.fixture(scope="module")
def faulty(pool: htcondor.CondorPool, tmp_path_factory: pytest.TempPathFactory) -> Faulty:
    return Faulty(pool, tmp_path_factory.mktemp("faulty"))


@pytest.fixture(scope="module")
def server(faulty: Faulty, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    instance = Instance(tmp_path_factory.mktemp("server"))
    begin, _, rest = instance.policy.partition("[ces.local]")
    instance.policy = begin + CE + "[jobs]" + rest.partition("[jobs]")[2]
    instance.environment = faulty.environment
    try:
        instance.start()
        instance.apply()
        yield instance
    finally:
        instance.close()


@pytest.fixture
def instance(server: Instance, faulty: Faulty) -> Instance:
    """The one server of all tests."""
    end_pause(server)
    faulty.clear()
    return server


def end_pause(server: Instance) -> None:
    """A change of the CE ends the pause that a test has caused."""
    old, new = ("lease = 60", "lease = 61") if "lease = 60" in server.policy else ("lease = 61", "lease = 60")
    server.policy = server.policy.replace(old, new)
    server.apply()


def submit(instance: Instance, seconds: float = 0.2, count: int = JOBS) -> Selection:
    sent = instance.client().submit({"executable": "sleep", "arguments": [str(seconds)]}, values=range(count))
    return Selection(submission=sent.submission)


def assert_all_done(
    instance: Instance, pool: htcondor.CondorPool, jobs: Selection, count: int = JOBS
) -> None:
    """Every job is done and was applied once; no pilot and no batch job is left."""
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Done") == count, what=f"the end of {count} jobs")
    until(lambda: not pool.run("condor_q", "-allusers", "-af", "ClusterId"), what="the end of all batch jobs")
    until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")
    for job in client.jobs(jobs):
        assert instance.events(job.id).count("finished") == 1


def wait_for_use(fault: Path) -> None:
    until(lambda: not fault.exists(), what="the fault")


def running_pilot(instance: Instance, jobs: Selection) -> str:
    """The batch id of a pilot that runs one of these jobs."""
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    [pilot] = [pilot for pilot in client.pilots() if not pilot.ended]
    return pilot.batch_id


@pytest.mark.parametrize("command", ["condor_submit", "condor_release"])
@pytest.mark.parametrize("fault", ["kill-server-before", "kill-server-after"])
def test_a_server_that_dies_in_a_call(instance: Instance, faulty: Faulty, command: str, fault: str) -> None:
    """Between intent and id, between id and release; before and after the schedd has acted."""
    faulty.set(command, fault)
    jobs = submit(instance)
    until(lambda: instance.process is not None and instance.process.poll() is not None, what="its death")
    instance.start()
    assert_all_done(instance, faulty.pool, jobs)


@pytest.mark.parametrize("fault", ["kill-me-before", "kill-me-after", "silent-after", "garbage"])
def test_a_submission_without_a_clear_answer(instance: Instance, faulty: Faulty, fault: str) -> None:
    used = faulty.set("condor_submit", fault)
    jobs = submit(instance)
    wait_for_use(used)
    assert_all_done(instance, faulty.pool, jobs)
    ids = [pilot.batch_id for pilot in instance.client().pilots() if pilot.batch_id]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("fault", ["kill-me-before", "kill-me-after"])
def test_a_release_without_an_answer(instance: Instance, faulty: Faulty, fault: str) -> None:
    used = faulty.set("condor_release", fault)
    jobs = submit(instance)
    wait_for_use(used)
    assert_all_done(instance, faulty.pool, jobs)


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        *(("condor_q", fault) for fault in ("partial", "garbage", "empty", "fail")),
        *(("condor_status", fault) for fault in ("partial", "garbage", "empty")),
    ],
)
def test_a_listing_that_is_no_listing(instance: Instance, faulty: Faulty, command: str, fault: str) -> None:
    client = instance.client()
    before = {pilot.id for pilot in client.pilots()}
    jobs = submit(instance, seconds=1, count=6)
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    for _ in range(3):
        wait_for_use(faulty.set(command, fault))
    assert_all_done(instance, faulty.pool, jobs, 6)
    assert {pilot.state for pilot in client.pilots() if pilot.id not in before} == {"Done"}


def test_a_schedd_that_hangs_during_a_submission(instance: Instance, faulty: Faulty) -> None:
    with faulty.pool.stopped():
        jobs = submit(instance)
        until(lambda: "CE condor:" in instance.log(), 2 * PATIENCE, "the failure of a call")
    assert_all_done(instance, faulty.pool, jobs)


def test_a_schedd_that_is_killed_after_the_acknowledgement(instance: Instance, faulty: Faulty) -> None:
    """Its queue is on disk, so it knows the pilots when it is back, and they are found by their stamp."""
    used = faulty.set("condor_submit", "kill-schedd-after")
    jobs = submit(instance)
    wait_for_use(used)
    faulty.pool.kill()
    faulty.pool.start_schedd()
    assert_all_done(instance, faulty.pool, jobs)


def test_a_schedd_that_has_lost_its_queue_gives_the_ids_again(instance: Instance, faulty: Faulty) -> None:
    """The server cancels nothing by an id of the time before: it may belong to another job now."""
    pool, used = faulty.pool, faulty.set("condor_submit", "kill-schedd-after")
    jobs = submit(instance)
    wait_for_use(used)
    pool.kill()
    pool.forget_queue()
    pool.start_schedd()
    lines = "executable = /bin/sleep\narguments = 600\ntransfer_executable = false\ninitialdir = /\nqueue 4\n"
    foreign = pool.run("condor_submit", "-terse", "-", text=lines)
    assert foreign.startswith("1.0"), "the first id is given again"
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Done") == JOBS, what="the end of all jobs")
    assert len(pool.run("condor_q", "1", "-allusers", "-af", "ProcId").split()) == 4
    pool.run("condor_rm", "1")
    assert_all_done(instance, pool, jobs)


def test_a_pilot_that_somebody_removes(instance: Instance, faulty: Faulty) -> None:
    jobs = submit(instance, seconds=3, count=1)
    faulty.pool.run("condor_rm", running_pilot(instance, jobs))
    assert_all_done(instance, faulty.pool, jobs, 1)


def test_a_running_pilot_that_somebody_holds_is_removed_with_the_reason(
    instance: Instance, faulty: Faulty
) -> None:
    """A pilot that has been started cannot start again, so it would be held for ever. Its job runs elsewhere."""
    jobs = submit(instance, seconds=3, count=1)
    batch_id = running_pilot(instance, jobs)
    faulty.pool.run("condor_hold", "-reason", "for the test", batch_id)
    assert_all_done(instance, faulty.pool, jobs, 1)
    told = faulty.pool.run("condor_history", batch_id, "-af", "RemoveReason")
    assert "held after its start" in told
    assert "for the test" in told


def test_pilots_that_htcondor_holds_are_told_in_plain_words(instance: Instance, faulty: Faulty) -> None:
    """They can never start, so they are cancelled, and the CE pauses."""
    used = faulty.set("condor_submit", "lose-script")
    jobs = submit(instance, count=1)
    wait_for_use(used)

    def told() -> bool:
        return "could not be transferred" in instance.cli("ce", "show", "condor").stdout + instance.log()

    until(told, what="the reason of the hold")
    until(lambda: "paused" in instance.cli("ce", "list").stdout, what="a pause")
    end_pause(instance)
    assert_all_done(instance, faulty.pool, jobs, 1)


def test_an_evicted_pilot_is_not_started_again(instance: Instance, faulty: Faulty) -> None:
    jobs = submit(instance, seconds=3, count=1)
    batch_id = running_pilot(instance, jobs)
    faulty.pool.run("condor_vacate_job", "-fast", batch_id)
    assert_all_done(instance, faulty.pool, jobs, 1)
    process = batch_id.partition(".")[2]
    told = faulty.pool.run("condor_history", batch_id, "-af", "ProcId", "JobStatus", "NumShadowStarts")
    assert told.split() == [process, "3", "1"]


def test_a_schedd_that_is_absent_is_told_and_nothing_is_submitted(instance: Instance, faulty: Faulty) -> None:
    """The reason stands in the list of CEs and once in the log. Pilots begin again when it is back."""
    pool = faulty.pool
    pool.kill()
    jobs = submit(instance, count=2)

    def listed() -> bool:
        return "condor_status" in instance.cli("ce", "list").stdout

    until(listed, what="the reason in the list")
    tested = instance.cli("ce", "test", "condor")
    assert tested.returncode
    assert "condor_status" in tested.stdout + tested.stderr
    said = instance.log().count("Can't connect to running schedd")
    until(lambda: instance.client().counts(jobs).states.get("Waiting") == 2, what="waiting jobs")
    pool.start_schedd()
    assert_all_done(instance, pool, jobs, 2)
    assert instance.log().count("Can't connect to running schedd") <= said + 1
