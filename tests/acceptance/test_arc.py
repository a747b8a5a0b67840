"""Jobs run in pilots that a real ARC CE starts, and the CE's faults are told."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pilotage.wire.jobs import Selection
from tests import arc
from tests.deadlines import PATIENCE
from tests.instance import Instance, held_job, until
from tests.ports import free_port

JOBS = 50
QUICK = """\
idle = 2
heartbeat = 0.5
lease = 60
max_waiting = 4
max_running = 4
listing_period = 1
settle = 2
submit_rate = 100
information_period = 5
information_expiry = 300"""
"""In the place of polite values."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(8 * PATIENCE)]


@pytest.fixture(scope="module")
def ce() -> Iterator[arc.ArcCe]:
    with arc.arc_ce() as made:
        yield made


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def instance(ce: arc.ArcCe, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server with the CE `arc` only, which `ce add` has made."""
    made = Instance(tmp_path_factory.mktemp("server"))
    head, _, rest = made.policy.partition("[ces.local]")
    made.policy = head + '[director]\ndemand = "matched"\n[jobs]' + rest.partition("[jobs]")[2]
    try:
        made.start()
        made.apply()
        added = made.cli(*add_words(ce), "--log-folder", str(logs))
        assert added.returncode == 0, added.stderr
        client = made.client()
        text = client.policy().text
        polite = ("idle", "heartbeat", "max_waiting", "max_running", "listing_period", "submit_rate")
        kept = [line for line in text.splitlines() if line.partition(" =")[0] not in polite]
        text = "\n".join(kept).replace('type = "arc"', f'type = "arc"\n{QUICK}') + "\n"
        client.apply_policy(text)
        yield made
    finally:
        made.close()


def add_words(ce: arc.ArcCe) -> list[str]:
    options = ce.options()
    keys = {"certificate": options.certificate, "key": options.key, "ca": options.ca}
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    sizes = ["--processors", "1", "--memory", "500", "--wall", "20m", "--owners", "any"]
    return ["ce", "add", "arc", "--url", ce.url, *settings, *sizes]


def assert_nothing_left(instance: Instance, ce: arc.ArcCe) -> None:
    client = instance.client()
    until(lambda: all(pilot.ended for pilot in client.pilots()), 2 * PATIENCE, "the end of all pilots")
    until(lambda: not ce.jobs(), 2 * PATIENCE, "the removal of all jobs from the CE")


def test_jobs_of_several_owners_run_and_nothing_stays_at_the_ce(
    instance: Instance, ce: arc.ArcCe, logs: Path
) -> None:
    sent = [
        instance.client(owner).submit({"executable": "sh", "arguments": ["-c", "echo $GRID_GLOBAL_JOBID"]},
                                      values=range(JOBS // 2))
        for owner in ("alice", "bob")
    ]  # fmt: skip
    client = instance.client()
    selections = [Selection(submission=one.submission) for one in sent]

    def done() -> int:
        return sum(client.counts(selection).states.get("Done", 0) for selection in selections)

    until(lambda: done() == 2 * (JOBS // 2), 4 * PATIENCE, f"the end of all jobs; {done()} are done")
    pilots = list(client.pilots())
    assert {pilot.ce for pilot in pilots} == {"arc"}
    shown = ce.shown()
    assert all(pilot.batch_id for pilot in pilots)
    assert "owner" in shown or not ce.jobs()
    assert_nothing_left(instance, ce)
    assert len(list(logs.iterdir())) == len(list(client.pilots())), "the output of each pilot was fetched"


def test_a_wrong_address_and_an_identity_without_access_are_told_once_and_others_go_on(
    instance: Instance, ce: arc.ArcCe
) -> None:
    client = instance.client()
    before = client.policy().text
    stranger = ce.authority.issue("stranger", ce.folder / "stranger")
    wrong = {
        "away": f'url = "https://localhost:{free_port()}/arex"',
        "stranger": f'url = "{ce.url}"\ncertificate = "{stranger.certificate}"\nkey = "{stranger.key}"',
        "untrusted": f'url = "{ce.url}"\nca = "{ce.host.certificate}"',
    }
    words = {
        "away": "no connection to localhost",
        "stranger": "403 User can't be assigned configuration",
        "untrusted": "the certificate of localhost is not accepted",
    }
    own = before.partition("[ces.arc.arc]")[2].partition("[")[0]
    sections = ""
    for name, keys in wrong.items():
        given = {line.partition(" =")[0] for line in keys.splitlines()}
        kept = [line for line in own.splitlines() if line.strip() and line.partition(" =")[0] not in given]
        table = "\n".join([keys, *kept])
        sections += f'\n[ces.{name}]\nsite = "here"\ntype = "arc"\nowners = "any"\n{QUICK}\n[ces.{name}.arc]\n{table}\n'
    client.apply_policy(before + sections)
    try:
        until(
            lambda: all(client.ce(name).ce.state == "unreachable" for name in wrong),
            2 * PATIENCE,
            f"the states: {client.ces()}",
        )
        sent = client.submit({"executable": "true"}, values=range(2))
        selection = Selection(submission=sent.submission)
        until(
            lambda: client.counts(selection).states == {"Done": 2}, 4 * PATIENCE, "the jobs at the right CE"
        )
        listed, log = instance.cli("ce", "list").stdout, instance.log()
        for name, reason in words.items():
            assert reason in client.ce(name).ce.reason
            assert reason in listed
            told = [line for line in log.splitlines() if f"CE {name}:" in line]
            assert len(told) == 1, told
            assert reason in told[0]
    finally:
        client.apply_policy(before)


def test_jobs_survive_killed_pilots_and_a_dead_manager(instance: Instance, ce: arc.ArcCe) -> None:
    """The daemon that runs jobs dies after the CE has acknowledged them; pilots are killed behind the server's back."""
    client = instance.client()
    assert_nothing_left(instance, ce)
    # Jobs run as the account of their owner there, which sees this folder and no other of the tests.
    gate = ce.folder / "gate"
    ce.kill("arex")
    try:
        sent = client.submit(held_job(gate), values=range(6))
        selection = Selection(submission=sent.submission)
        until(lambda: len(ce.jobs()) == 4, 2 * PATIENCE, "four accepted jobs, which no daemon takes up")
        until(lambda: client.ce("arc").ce.waiting == 4, 2 * PATIENCE, "jobs that count as waiting")
    finally:
        ce.start_arex()
    until(lambda: client.ce("arc").ce.running, 2 * PATIENCE, "a pilot that runs")
    killed = next(pilot for pilot in client.pilots() if pilot.started is not None and pilot.ended is None)
    for pid in ce.processes(killed.batch_id):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    gate.touch()
    until(lambda: client.counts(selection).states == {"Done": 6}, 4 * PATIENCE, "the end of all jobs")
    until(lambda: client.pilot(killed.id).pilot.ended is not None, PATIENCE, "the end of the killed pilot")
    assert_nothing_left(instance, ce)


def test_the_end_of_the_pool_ends_its_pilots_at_the_ce(instance: Instance, ce: arc.ArcCe) -> None:
    """No process of them is left there, and the next server takes their end for no failure of the CE."""
    client = instance.client()
    assert_nothing_left(instance, ce)
    sent = client.submit({"executable": "sleep", "arguments": ["3600"]}, values=range(2))
    selection = Selection(submission=sent.submission)
    until(lambda: client.counts(selection).states == {"Running": 2}, 2 * PATIENCE, "running jobs")
    running = [pilot.batch_id for pilot in client.pilots() if pilot.started and not pilot.ended]
    assert all(map(ce.processes, running))
    # Else the next server sends pilots for the jobs that have come back.
    assert instance.cli("ce", "disable", "arc", "--reason", "the end").returncode == 0
    done = instance.cli("down", "--cancel-pilots", timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stderr
    assert instance.process is not None
    instance.process.wait(PATIENCE)
    until(lambda: not any(map(ce.processes, running)), 2 * PATIENCE, "the end of the pilots at the CE")
    instance.start()
    assert_nothing_left(instance, ce)
    ended = [pilot for pilot in instance.client().pilots() if pilot.batch_id in running]
    assert {pilot.state for pilot in ended} <= {"Done", "Deleted"}
    assert instance.client().counts(selection).states == {"Waiting": 2}
