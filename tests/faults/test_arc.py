"""Faults of a real ARC CE, of its people and of the server between two steps of a submission."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from tests import arc
from tests.arc_certificates import TestAuthority
from tests.faults.arc_relay import FaultyArc, relayed
from tests.faults.batch_frame import (
    BatchFaults,
    BatchShape,
    server_with,
    wait_for_start,
    wait_for_use,
)
from tests.instance import Instance, until

CE = """\
[ces.arc]
site = "here"
type = "arc"
owners = "any"
pilot_processors = 2
pilot_memory = 100
wall = 1500
max_waiting = 2
max_running = 4
listing_period = 0.5
information_period = 5
information_expiry = 300
submit_rate = 100
heartbeat = 0.5
lease = 60
idle = 1
settle = 2
[ces.arc.arc]
url = "{url}"
certificate = "{credential}"
ca = "{ca}"
[director]
demand = "matched"
"""

ARC = BatchShape(
    ce="arc",
    submit_call="new",
    release_call="upload",
    listings=(
        ("list", "partial short garbage"),
        ("list", "empty fail"),
        ("list", "no-jobs"),
    ),
    left=arc.ArcCe.jobs,
    start=arc.ArcCe.start_rest,
    mend=arc.ArcCe.ensure_arex,
    jobs=4,
    unclear=("kill-me-before", "kill-me-after", "garbage-after"),
)
submit, assert_all_done = ARC.submit, ARC.assert_all_done


@pytest.fixture(scope="module")
def ce() -> Iterator[arc.ArcCe]:
    # The CE's look at its batch system costs a lot of a processor, and nothing here waits for it.
    with arc.arc_ce(information_period=20, wakeupperiod="1") as made:
        yield made


@pytest.fixture(scope="module")
def faulty(ce: arc.ArcCe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyArc]:
    with relayed(ce, ARC, tmp_path_factory.mktemp("faulty")) as made:
        yield made


@pytest.fixture(scope="module")
def server(faulty: FaultyArc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    authority = faulty.system.authority
    section = CE.format(url=faulty.url, credential=faulty.credential, ca=authority.folder)
    with server_with(faulty, tmp_path_factory.mktemp("server"), section) as instance:
        faulty.server = instance
        yield instance


class TestFaultsOfAllSystems(BatchFaults):
    shape = ARC


def wait_for_reason(instance: Instance, words: str) -> None:
    """Until the list of CEs has the reason of a failure."""
    until(lambda: words in instance.client().ce("arc").ce.reason, what=f"the reason {words!r}")
    assert words in instance.cli("ce", "list").stdout


def told(instance: Instance, words: str) -> int:
    return sum(words in line for line in instance.log().splitlines() if "CE arc:" in line)


def test_a_ce_without_its_manager_and_a_listing_that_hangs(instance: Instance, faulty: FaultyArc) -> None:
    """The daemon that runs jobs dies after the acknowledgement. A listing without an answer ends no work."""
    jobs = submit(instance, seconds=1)
    client = instance.client()
    wait_for_start(instance, jobs)
    faulty.system.kill("arex")
    try:
        with faulty.hanging("list"):
            until(lambda: client.counts(jobs).states.get("Done"), what="the end of jobs in running pilots")
    finally:
        faulty.system.start_arex()
    assert_all_done(instance, faulty.system, jobs)


def test_a_script_that_was_uploaded_in_part(instance: Instance, faulty: FaultyArc) -> None:
    used = faulty.set("upload", "half")
    jobs = submit(instance)
    wait_for_use(used)
    assert_all_done(instance, faulty.system, jobs)


def test_pilots_that_somebody_removes(instance: Instance, faulty: FaultyArc) -> None:
    """Another client of the same identity kills one and cleans the other, as by arckill and arcclean."""
    client, (jobs, gate) = instance.client(), ARC.submit_held(instance, 4, faulty.system.folder)

    def both() -> list[str]:
        ids = [pilot.batch_id for pilot in client.pilots() if pilot.state == "Running"]
        return ids[:2] if len(ids) > 1 else []

    killed, cleaned = until(both, what="two pilots")
    assert "<status-code>202<" in faulty.act("kill", killed)
    assert "<status-code>202<" in faulty.act("clean", cleaned)
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 4)


def test_details_of_jobs_that_cannot_be_read(instance: Instance, faulty: FaultyArc) -> None:
    """A job without a name is none of a submission, so such a listing tells nothing."""
    used = faulty.set("info", "short")
    faulty.set("status", "garbage")
    jobs = submit(instance)
    wait_for_use(used)
    assert_all_done(instance, faulty.system, jobs)


def test_a_failed_pilot_that_somebody_restarts(instance: Instance, faulty: FaultyArc) -> None:
    """The server does not see the failure: its pilot has another start, or none if the CE refuses one."""
    jobs, gate, batch_id = ARC.running_pilot(instance, faulty.system.folder)
    with instance.suspended():
        for pid in faulty.system.processes(batch_id):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: batch_id in faulty.listed("FAILED"), what="the failure")
        assert "<status-code>" in faulty.act("restart", batch_id)
    gate.touch()
    assert_all_done(instance, faulty.system, jobs, 1)


def test_a_ce_that_has_lost_its_records(instance: Instance, faulty: FaultyArc) -> None:
    """Its control directory is lost: it has forgotten waiting and running jobs, and starts none of them."""
    jobs = submit(instance, seconds=1)
    wait_for_start(instance, jobs)
    with instance.suspended():
        faulty.system.forget_jobs()
    assert_all_done(instance, faulty.system, jobs)


def test_a_ce_that_cannot_be_used(instance: Instance, faulty: FaultyArc, tmp_path: Path) -> None:
    """The reason stands in the list of CEs and once in the log, and nothing is submitted."""
    newer, nobody = "has version 2.0 of the REST interface", "no connection to localhost"
    expired, unknown = "certificate has expired", "unable to get local issuer certificate"
    authority, another = faulty.system.authority, TestAuthority(tmp_path / "another", "Another CA")
    hosts = {
        expired: authority.issue("localhost", tmp_path / "old", server=True, lifetime=-timedelta(days=1)),
        unknown: another.issue("localhost", tmp_path / "foreign", server=True),
    }
    faulty.set("versions", "always-newer")
    faulty.set("list", "always-gone")
    wait_for_reason(instance, newer)
    jobs, seen = submit(instance, count=2), len(faulty.calls)
    until(lambda: len(faulty.calls) >= seen + 3, what="further questions for the version")
    for words, host in hosts.items():
        with faulty.certificate(host):
            wait_for_reason(instance, words)
    with faulty.away():
        wait_for_reason(instance, nobody)
        tested = instance.cli("ce", "test", "arc")
        assert tested.returncode
        assert nobody in tested.stdout + tested.stderr
        assert instance.client().counts(jobs).states == {"Waiting": 2}
        assert "new" not in faulty.calls
        faulty.clear()
    assert_all_done(instance, faulty.system, jobs, 2)
    assert [told(instance, words) for words in (*hosts, nobody)] == [1, 1, 1]


def test_a_credential_of_the_server_that_expires(
    instance: Instance, faulty: FaultyArc, tmp_path: Path
) -> None:
    """It is not sent, and the CE is told as unreachable until the file has a new one."""
    old = faulty.system.authority.issue("pilots", tmp_path / "old", lifetime=-timedelta(days=1))
    jobs, gate = ARC.submit_held(instance, 2, faulty.system.folder)
    try:
        faulty.give(old)
        wait_for_reason(instance, "has expired on")
        faulty.calls.clear()
        more = submit(instance, count=2)
        gate.touch()
        until(lambda: instance.client().counts(jobs).states.get("Done") == 2, what="the end of running jobs")
        assert "new" not in faulty.calls
    finally:
        faulty.give(faulty.system.client)
    assert_all_done(instance, faulty.system, more, 2)
    assert told(instance, "has expired on") == 1
