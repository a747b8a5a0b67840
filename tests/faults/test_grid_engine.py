"""Faults of a real Grid Engine, of its administrator and of the server between two steps of a submission."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests import sge
from tests.faults.batch_frame import BatchFaults, CommandShape, FaultyCommands, server_with
from tests.instance import Instance, until

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


SGE = CommandShape(
    ce="sge",
    submit_call="qsub",
    release_call="qrls",
    listings=(
        *(("qstat", fault) for fault in ("partial", "garbage", "empty", "fail")),
        ("qping", "partial"),
    ),
    commands=("qsub", "qstat", "qrls", "qdel", "qping", "qacct"),
    left=lambda engine: engine.run("qstat", "-u", "*"),
    part=200,
    garbage="error: commlib error: got read error (closing connection)",
    failure='error: unable to contact qmaster using port 6444 on host "vm"',
    start=sge.GridEngine.start_master,
    mend=lambda engine: engine.run("qmod", "-e", "*"),
)
FaultyCell = FaultyCommands[sge.GridEngine]
submit, assert_all_done = SGE.submit, SGE.assert_all_done


@pytest.fixture(scope="module")
def engine() -> Iterator[sge.GridEngine]:
    with sge.grid_engine() as made:
        yield made


@pytest.fixture(scope="module")
def faulty(engine: sge.GridEngine, tmp_path_factory: pytest.TempPathFactory) -> FaultyCell:
    return FaultyCommands(engine, SGE, tmp_path_factory.mktemp("faulty"))


@pytest.fixture(scope="module")
def server(faulty: FaultyCell, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with server_with(faulty, tmp_path_factory.mktemp("server"), SGE_CE) as instance:
        yield instance


class TestFaultsOfAllSystems(BatchFaults):
    shape = SGE


def test_a_master_that_is_started_again_while_pilots_run(instance: Instance, faulty: FaultyCell) -> None:
    jobs, gate = SGE.submit_held(instance, 4)
    client = instance.client()
    before = {pilot.id for pilot in client.pilots() if not pilot.ended}
    faulty.system.kill()
    faulty.system.start_master()
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 4)
    assert {pilot.state for pilot in client.pilots() if pilot.id in before} == {"Done"}


def test_an_administrator_who_deletes_pilots(instance: Instance, faulty: FaultyCell) -> None:
    jobs, gate = SGE.submit_held(instance, 6)
    faulty.system.run("qdel", "-u", "*")
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 6)


def test_a_pilot_that_is_killed_on_its_node_has_a_reason(instance: Instance, faulty: FaultyCell) -> None:
    client = instance.client()
    jobs, gate = SGE.submit_held(instance, 1)
    [job] = client.jobs(jobs)
    pilot = instance.pilot_of(job.id)
    for pid in faulty.system.processes(pilot.batch_id):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 1)
    assert "signal 9" in client.pilot(pilot.id).pilot.reason


def test_a_full_batch_system_is_no_failure(instance: Instance, faulty: FaultyCell) -> None:
    """One array of one user at a time: the next one is refused until the first has ended."""
    faulty.system.limit(max_u_jobs="1")
    try:
        jobs = submit(instance)
        more = submit(instance)
        client = instance.client()
        until(
            lambda: client.counts(jobs).final == client.counts(more).final == SGE.jobs,
            what="the end of all jobs",
        )
    finally:
        faulty.system.limit(max_u_jobs="0")
    assert_all_done(instance, faulty.system, jobs)


def test_a_pilot_that_an_administrator_holds_goes_on_when_it_is_released(
    instance: Instance, faulty: FaultyCell
) -> None:
    engine, client = faulty.system, instance.client()
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
    instance: Instance, faulty: FaultyCell, tmp_path: Path
) -> None:
    """A prolog that ends with 100 puts a job into Eqw, where Grid Engine leaves it."""
    engine = faulty.system
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
