"""Faults of a real Slurm, of its administrator and of the server between two steps of a submission.

The server finds wrappers of Slurm's commands first on its PATH. A wrapper makes a fault once, or until it is cleared.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests import slurm
from tests.acceptance.test_slurm import instance_on
from tests.instance import Instance, until

JOBS = 12
WRAPPER = """\
#!/bin/sh
# usage: the command's own. The fault is taken from a file: once, or each time if it begins with always-.
name=${0##*/}
real=$(PATH=$REAL_PATH command -v "$name")
# A listing calls scontrol too, so the release has faults of its own.
case "$name $1" in "scontrol release") name=release ;; esac
fault=
if [ -e "$FAULTS/$name" ]; then fault=$(cat "$FAULTS/$name"); fi
case $fault in "") ;; always-*) fault=${fault#always-} ;; *) rm -f "$FAULTS/$name" ;; esac
case $fault in
  kill-server-before) kill -9 $PPID; exit 1 ;;
  kill-server-after) "$real" "$@" >/dev/null; kill -9 $PPID; exit 1 ;;
  kill-me-before) kill -9 $$ ;;
  kill-me-after) "$real" "$@" >/dev/null; kill -9 $$ ;;
  silent-after) "$real" "$@" >/dev/null; exit 0 ;;
  fail-after) "$real" "$@" >/dev/null; exit 1 ;;
  wrong-id) "$real" "$@" >/dev/null; echo 999999 ;;
  twice) script=$(cat); echo "$script" | "$real" "$@" >/dev/null; echo "$script" | "$real" "$@" ;;
  crash-controller-after)
    "$real" "$@"; kill -9 "$(cat "$FAULTS/controller")" ;;
  partial) "$real" "$@" | head -c 40 ;;
  empty) exit 0 ;;
  garbage) echo "slurm_load_jobs error: Unexpected message received"; exit 0 ;;
  fail) echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1 ;;
  *) exec "$real" "$@" ;;
esac
"""


class Faulty:
    """A cluster, and a server whose calls to it can be made to fail once."""

    def __init__(self, cluster: slurm.Cluster, folder: Path) -> None:
        self.cluster = cluster
        self._faults = folder / "faults"
        programs = folder / "programs"
        for made in (self._faults, programs):
            made.mkdir()
        for name in ("sbatch", "squeue", "scontrol", "scancel"):
            (programs / name).write_text(WRAPPER)
            (programs / name).chmod(0o755)
        path = cluster.environment["PATH"]
        # The server hands only some variables down, so the wrappers have their own in their text.
        for name in ("sbatch", "squeue", "scontrol", "scancel"):
            text = (programs / name).read_text()
            head = f"#!/bin/sh\nREAL_PATH={path}\nFAULTS={self._faults}\n"
            (programs / name).write_text(text.replace("#!/bin/sh\n", head, 1))
        self.environment = {**cluster.environment, "PATH": f"{programs}:{path}"}

    def clear(self) -> None:
        """Forget the faults that no call has had."""
        for fault in self._faults.iterdir():
            fault.unlink()

    def set(self, command: str, fault: str) -> Path:
        """The next call of `command` has this fault; the file is there until then. always-FAULT: all calls have it."""
        (self._faults / "controller").write_text(str(self.cluster.pid()))
        (self._faults / command).write_text(fault)
        return self._faults / command


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm.Cluster]:
    with slurm.cluster(nodes=2, processors=8, MessageTimeout="2") as made:
        yield made


@pytest.fixture(scope="module")
def faulty(cluster: slurm.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Faulty:
    return Faulty(cluster, tmp_path_factory.mktemp("faulty"))


@pytest.fixture(scope="module")
def server(faulty: Faulty, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("server")
    with instance_on(
        faulty.cluster, folder, environment=faulty.environment, settle="2", max_waiting="8"
    ) as made:
        # Pilots shall wait in a partition that is down, which the director would not submit them to.
        head, mark, rest = made.policy.partition("[director]")
        made.policy = f'{head}[ces.slurm.attributes]\nGlueCEStateStatus = "Production"\n{mark}{rest}'
        yield made


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


def assert_all_done(instance: Instance, cluster: slurm.Cluster, jobs: Selection, count: int = JOBS) -> None:
    """Every job is done and was applied once; no pilot and no batch job is left."""
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Done") == count, what=f"the end of {count} jobs")
    until(lambda: not cluster.run("squeue", "-h"), what="the end of all batch jobs")
    until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")
    for job in client.jobs(jobs):
        assert instance.events(job.id).count("finished") == 1


def restarted(instance: Instance) -> None:
    """Wait for the death of the server, and start it again."""
    assert instance.process is not None
    until(lambda: instance.process is not None and instance.process.poll() is not None, what="its death")
    instance.start()


@pytest.mark.parametrize("command", ["sbatch", "release"])
@pytest.mark.parametrize("fault", ["kill-server-before", "kill-server-after"])
def test_a_server_that_dies_in_a_call(instance: Instance, faulty: Faulty, command: str, fault: str) -> None:
    """Between intent and id, between id and release; before and after the controller has acted."""
    faulty.set(command, fault)
    jobs = submit(instance)
    restarted(instance)
    assert_all_done(instance, faulty.cluster, jobs)


@pytest.mark.parametrize("fault", ["kill-me-before", "kill-me-after", "silent-after"])
def test_a_submission_without_a_clear_answer(instance: Instance, faulty: Faulty, fault: str) -> None:
    used = faulty.set("sbatch", fault)
    jobs = submit(instance)
    until(lambda: not used.exists(), what="the fault")
    assert_all_done(instance, faulty.cluster, jobs)
    names = [pilot.batch_id for pilot in instance.client().pilots() if pilot.batch_id]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("fault", ["kill-me-before", "kill-me-after"])
def test_a_release_without_an_answer(instance: Instance, faulty: Faulty, fault: str) -> None:
    used = faulty.set("release", fault)
    jobs = submit(instance)
    until(lambda: not used.exists(), what="the fault")
    assert_all_done(instance, faulty.cluster, jobs)


@pytest.mark.parametrize("fault", ["partial", "garbage", "empty", "fail"])
def test_a_listing_that_is_no_listing(instance: Instance, faulty: Faulty, fault: str) -> None:
    client = instance.client()
    before = {pilot.id for pilot in client.pilots()}
    jobs = submit(instance, seconds=1, count=8)
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    for _ in range(3):
        used = faulty.set("squeue", fault)
        until(lambda used=used: not used.exists(), what="the fault")
    assert_all_done(instance, faulty.cluster, jobs, 8)
    ends = {pilot.state for pilot in client.pilots() if pilot.id not in before}
    assert ends == {"Done"}


def test_a_controller_that_crashes_right_after_its_answer(instance: Instance, faulty: Faulty) -> None:
    """It forgets an acknowledged array in most of such crashes, and gives the id to the next one."""
    used = faulty.set("sbatch", "crash-controller-after")
    jobs = submit(instance)
    until(lambda: not used.exists(), what="the fault")
    faulty.cluster.kill()
    faulty.cluster.start_controller()
    assert_all_done(instance, faulty.cluster, jobs)


def test_a_controller_that_hangs_during_a_submission(instance: Instance, faulty: Faulty) -> None:
    with faulty.cluster.stopped():
        jobs = submit(instance)
        until(lambda: "CE slurm:" in instance.log(), what="the failure of a call")
    assert_all_done(instance, faulty.cluster, jobs)


def test_an_administrator_who_cancels_running_pilots(instance: Instance, faulty: Faulty) -> None:
    jobs = submit(instance, seconds=2, count=6)
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    faulty.cluster.run("scancel", "--user=root", "--state=RUNNING")
    assert_all_done(instance, faulty.cluster, jobs, 6)


def test_an_administrator_who_cancels_waiting_pilots(instance: Instance, faulty: Faulty) -> None:
    cluster = faulty.cluster
    cluster.run("scontrol", "update", "partitionname=short", "state=down")
    jobs = submit(instance)
    until(lambda: "PENDING" in cluster.run("squeue", "-h", "-o", "%T"), what="a waiting pilot")
    cluster.run("scancel", "--user=root", "--state=PENDING")
    cluster.run("scontrol", "update", "partitionname=short", "state=up")
    assert_all_done(instance, cluster, jobs)


def test_a_pilot_that_an_administrator_kills_on_its_node(instance: Instance, faulty: Faulty) -> None:
    jobs = submit(instance, seconds=2, count=6)
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    nodes = client.pilots()
    pids = [pid for pilot in nodes for pid in processes_of(faulty.cluster, pilot.batch_id)]
    assert pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert_all_done(instance, faulty.cluster, jobs, 6)


def test_a_node_that_goes_down(instance: Instance, faulty: Faulty) -> None:
    jobs = submit(instance, seconds=2, count=6)
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    faulty.cluster.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    try:
        assert_all_done(instance, faulty.cluster, jobs, 6)
    finally:
        faulty.cluster.run("scontrol", "update", "nodename=n1", "state=resume")


def test_an_administrator_who_requeues_a_running_pilot(instance: Instance, faulty: Faulty) -> None:
    """A batch job that was submitted with --no-requeue is not started again."""
    jobs = submit(instance, seconds=2, count=6)
    client = instance.client()
    until(lambda: client.counts(jobs).states.get("Running"), what="a running job")
    for job in faulty.cluster.run("squeue", "-h", "-t", "RUNNING", "-o", "%A").split():
        faulty.cluster.run("scontrol", "requeue", job)
    assert_all_done(instance, faulty.cluster, jobs, 6)


def test_a_pilot_that_is_held_again_goes_on_when_it_is_released(instance: Instance, faulty: Faulty) -> None:
    cluster = faulty.cluster
    # The submissions of the last test end with the next listing.
    before = {stamp for stamp, _ in open_submissions(instance, "phase")}
    cluster.run("scontrol", "update", "partitionname=short", "state=down")
    jobs = submit(instance)
    client = instance.client()

    def released() -> bool:
        """Whether the batch system has all pilots and none is held, and the server has seen so."""
        states = cluster.run("squeue", "-h", "-r", "-o", "%T").split()
        phases = [phase for stamp, phase in open_submissions(instance, "phase") if stamp not in before]
        return len(states) == JOBS // 2 and set(states) == {"PENDING"} and set(phases) == {"released"}

    # Then the server does not end the hold that follows.
    until(released, what="a listing without a hold")
    for job in cluster.run("squeue", "-h", "-o", "%F").split():
        cluster.run("scontrol", "hold", job)
    cluster.run("scontrol", "update", "partitionname=short", "state=up")
    until(
        lambda: any("Held" in line for _, line in open_submissions(instance, "reason")),
        what="the reason in the store",
    )
    assert client.counts(jobs).states.get("Done") is None
    for job in cluster.run("squeue", "-h", "-o", "%F").split():
        cluster.run("scontrol", "release", job)
    assert_all_done(instance, cluster, jobs)


def processes_of(cluster: slurm.Cluster, batch_id: str) -> list[int]:
    """The pilots' programs of one batch job, found by the variables that Slurm gives them.

    Other tests have clusters with the same batch ids at the same time.
    """
    array, _, task = batch_id.partition("_")
    variables = {
        "SLURM_CONF": cluster.environment["SLURM_CONF"],
        "SLURM_ARRAY_JOB_ID": array,
        "SLURM_ARRAY_TASK_ID": task,
    }
    words = {f"{name}={value}".encode() for name, value in variables.items()}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if words <= set((folder / "environ").read_bytes().split(b"\0")):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def open_submissions(instance: Instance, column: str) -> list[tuple[str, str]]:
    """The stamps of the submissions that have not ended, each with a column, as the store has them."""
    sql = f"SELECT stamp, {column} FROM pilot_submissions WHERE ended IS NULL"
    with sqlite3.connect(f"file:{instance.home / 'pilotage.db'}?mode=ro", uri=True) as connection:
        return connection.execute(sql).fetchall()
