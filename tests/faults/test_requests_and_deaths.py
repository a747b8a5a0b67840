"""A server is killed again and again while the jobs of a request are made, released, run and merged."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.deadlines import PATIENCE
from tests.faults.mask_audit import RequestAudit, audit_request
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

EVENTS, EVENTS_PER_JOB = 4000, 100
REQUEST = f"""\
name = "toy"
team = "home"
events = {EVENTS}
[program]
executable = "/bin/sh"
arguments = ["-c", "sleep 0.2; echo event > out.txt"]
[splitting]
algorithm = "EventBased"
events_per_job = {EVENTS_PER_JOB}
[output]
files = ["out.txt"]
[merge]
"""
POLICY = """
[requests]
agent_lease = 5.0
agent_period = 0.3
"""


def state_of(instance: Instance, request: int) -> str:
    return str(instance.client().request(request).request.state)


def audited(instance: Instance, request: int) -> RequestAudit:
    with closing(sqlite3.connect(f"file:{instance.home / 'pilotage.db'}?mode=ro", uri=True)) as connection:
        return audit_request(connection, request)


def kill_and_start(instance: Instance, rng: Random, times: int) -> None:
    for _ in range(times):
        time.sleep(rng.uniform(0.3, 1.5))
        instance.kill_server()
        instance.start()


def submitted(instance: Instance, folder: Path) -> int:
    (folder / "toy.toml").write_text(REQUEST)
    done = instance.cli("request", "submit", str(folder / "toy.toml"))
    assert done.returncode == 0, done.stderr
    return 1


def test_every_event_is_in_one_result_though_the_server_dies(tmp_path: Path) -> None:
    with running(tmp_path) as instance:
        instance.policy += POLICY
        instance.apply()
        request = submitted(instance, tmp_path)
        kill_and_start(instance, Random(1), 6)
        until(
            lambda: state_of(instance, request) == "completed", within=2 * PATIENCE, what="the request's end"
        )
        audit = audited(instance, request)
        assert audit.events == EVENTS
        assert set(audit.jobs) == {"done"}
