"""Faults of a real HTCondor, of its people and of the server between two steps of a submission."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import htcondor
from tests.faults.batch_frame import (
    BatchFaults,
    CommandShape,
    FaultyCommands,
    end_pause,
    server_with,
    wait_for_use,
)
from tests.instance import Instance, until

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


SCRIPTS = f"{htcondor.ROOT}/home/{htcondor.ACCOUNT}/.cache/pilotage/htcondor"
CONDOR = CommandShape(
    ce="condor",
    submit_call="condor_submit",
    release_call="condor_release",
    listings=(
        *(("condor_q", fault) for fault in ("partial", "garbage", "empty", "fail")),
        *(("condor_status", fault) for fault in ("partial", "garbage", "empty")),
    ),
    commands=(
        *("condor_submit", "condor_q", "condor_release"),
        *("condor_rm", "condor_status", "condor_history"),
    ),
    left=lambda pool: pool.run("condor_q", "-allusers", "-af", "ClusterId"),
    part=100,
    garbage='{"version": 2, "jobs": []}',
    failure="Error: Couldn't contact the condor_collector on cm.",
    start=htcondor.CondorPool.start_schedd,
    unclear=("kill-me-before", "kill-me-after", "silent-after", "garbage"),
    more=f'lose-script) "$real" "$@"; rm -f {SCRIPTS}/pilotage-* ;;',
)
FaultyPool = FaultyCommands[htcondor.CondorPool]
submit, assert_all_done = CONDOR.submit, CONDOR.assert_all_done


@pytest.fixture(scope="module")
def pool() -> Iterator[htcondor.CondorPool]:
    with htcondor.condor_pool() as made:
        yield made


@pytest.fixture(scope="module")
def faulty(pool: htcondor.CondorPool, tmp_path_factory: pytest.TempPathFactory) -> FaultyPool:
    return FaultyCommands(pool, CONDOR, tmp_path_factory.mktemp("faulty"), path=f"{pool.folder}/bin")


@pytest.fixture(scope="module")
def server(faulty: FaultyPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with server_with(faulty, tmp_path_factory.mktemp("server"), CE) as instance:
        yield instance


class TestFaultsOfAllSystems(BatchFaults):
    shape = CONDOR


def test_a_schedd_that_has_lost_its_queue_gives_the_ids_again(instance: Instance, faulty: FaultyPool) -> None:
    """The server cancels nothing by an id of the time before: it may belong to another job now."""
    pool, used = faulty.system, faulty.set("condor_submit", "kill-daemon-after")
    jobs = submit(instance)
    wait_for_use(used)
    with instance.suspended():
        pool.kill()
        pool.forget_queue()
        pool.start_schedd()
        lines = (
            "executable = /bin/sleep\narguments = 600\ntransfer_executable = false\ninitialdir = /\nqueue 4\n"
        )
        foreign = pool.run("condor_submit", "-terse", "-", text=lines)
    try:
        assert foreign.startswith("1.0"), "the first id is given again"
        client = instance.client()
        until(lambda: client.counts(jobs).states.get("Done") == CONDOR.jobs, what="the end of all jobs")
        assert len(pool.run("condor_q", "1", "-allusers", "-af", "ProcId").split()) == 4
    finally:
        pool.run("condor_rm", foreign.partition(".")[0])
    assert_all_done(instance, pool, jobs)


def test_a_pilot_that_somebody_removes(instance: Instance, faulty: FaultyPool) -> None:
    jobs, gate, batch_id = CONDOR.running_pilot(instance, faulty.system.logs)
    faulty.system.run("condor_rm", batch_id)
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 1)


def test_a_running_pilot_that_somebody_holds_is_removed_with_the_reason(
    instance: Instance, faulty: FaultyPool
) -> None:
    """A pilot that has been started cannot start again, so it would be held for ever. Its job runs elsewhere."""
    jobs, gate, batch_id = CONDOR.running_pilot(instance, faulty.system.logs)
    faulty.system.run("condor_hold", "-reason", "for the test", batch_id)
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 1)
    told = faulty.system.run("condor_history", batch_id, "-af", "RemoveReason")
    assert "held after its start" in told
    assert "for the test" in told


def test_pilots_that_htcondor_holds_are_told_in_plain_words(instance: Instance, faulty: FaultyPool) -> None:
    """They can never start, so they are cancelled, and the CE pauses."""
    used = faulty.set("condor_submit", "lose-script")
    jobs = submit(instance, count=1)
    wait_for_use(used)

    def told() -> bool:
        return "could not be transferred" in instance.cli("ce", "show", "condor").stdout + instance.log()

    # The pause ends after seconds, while the log keeps the reason.
    until(lambda: instance.client().ce("condor").ce.state == "paused", what="a pause")
    until(told, what="the reason of the hold")
    end_pause(instance)
    assert_all_done(instance, faulty.system, jobs, 1)


def test_an_evicted_pilot_is_not_started_again(instance: Instance, faulty: FaultyPool) -> None:
    jobs, gate, batch_id = CONDOR.running_pilot(instance, faulty.system.logs)
    faulty.system.run("condor_vacate_job", "-fast", batch_id)
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 1)
    process = batch_id.partition(".")[2]
    told = faulty.system.run("condor_history", batch_id, "-af", "ProcId", "JobStatus", "NumShadowStarts")
    assert told.split() == [process, "3", "1"]


def test_a_schedd_that_is_absent_is_told_and_nothing_is_submitted(
    instance: Instance, faulty: FaultyPool
) -> None:
    """The reason stands in the list of CEs and once in the log. Pilots begin again when it is back."""
    pool = faulty.system
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
