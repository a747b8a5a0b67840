"""A server's own history as a workload of the twin: jobs run, they are recorded, and policies are tried on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.main.policy_apply import IN_FORCE
from pilotage.twin.record import WorkRecord, read_record
from pilotage.wire.jobs import Selection
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

JOBS = 6
"""Of each owner."""


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server on which jobs of two owners have run, and one job was killed before."""
    with running(tmp_path_factory.mktemp("history"), owners="any", idle=1) as instance:
        never = instance.client("alice").submit({"executable": "true", "tags": ["nowhere"]}).first
        instance.client("alice").kill([never])
        job = {"executable": "sleep", "arguments": ["0.3"], "memory": 100, "wall_time": 600}
        for owner in ("alice", "bob"):
            instance.client(owner).submit(job, values=range(JOBS))
        done = Selection(states=["Done"])
        until(lambda: instance.client().counts(done).total == 2 * JOBS, what="the end of all jobs")
        yield instance


def recorded(instance: Instance, file: Path, *words: str) -> WorkRecord:
    made = instance.cli("twin", "record", "--since", "1h", "--out", str(file), *words)
    assert made.returncode == 0, made.stderr
    return read_record(file)


def test_a_record_has_the_jobs_that_ran(worked: Instance, tmp_path: Path) -> None:
    record = recorded(worked, tmp_path / "work.gz")
    assert {(job.processors, job.memory, job.wall) for job in record.jobs} == {(1, 100, 600.0)}
    assert sorted(job.owner for job in record.jobs) == ["user1"] * JOBS + ["user2"] * JOBS
    assert {job.group for job in record.jobs} == {"group1"}
    assert all(0.3 <= job.run < 60 for job in record.jobs)
    assert [ce.name for ce in record.ces] == ["local"]
    assert record.ces[0].waits[0] > 0
    assert record.header.left_out["ended without a run"] == 1
    text = record.header.policy
    assert not any(name in text for name in ("alice", "bob", "others"))


def test_the_twin_runs_a_record(worked: Instance, tmp_path: Path) -> None:
    file, out = tmp_path / "work.gz", tmp_path / "out"
    recorded(worked, file, "--names")
    words = ("--seeds", "1", "--processes", "1", "--out", str(out))
    ran = worked.cli("twin", "run", "--history", str(file), *words)
    assert ran.returncode == 0, ran.stderr
    report = json.loads((out / "report.json").read_text())
    assert report["jobs"] == 2 * JOBS
    assert "recorded policy: Waits by group" in ran.stdout


def test_a_policy_is_tried_before_it_is_applied(worked: Instance, tmp_path: Path) -> None:
    """Without a terminal nothing is applied unless `--yes` says so."""
    file, version = tmp_path / "new.toml", worked.client().policy().version
    file.write_text(worked.policy.replace("[groups.others]\n", "[groups.others]\nshare = 7\n"))
    tried = worked.cli("policy", "apply", str(file), "--what-if", "1h")
    assert tried.returncode == 2, tried.stderr
    assert f"12 jobs of the last 1h, with 2 seeds\nnew.toml instead of {IN_FORCE}:\n" in tried.stdout
    assert f"nothing done: put {file} into force instead of version {version}?" in tried.stderr
    assert worked.client().policy().version == version
    applied = worked.cli("policy", "apply", str(file), "--what-if", "1h", "--yes", "--json")
    assert applied.returncode == 0, applied.stderr
    answer = json.loads(applied.stdout)
    assert answer["version"] == worked.client().policy().version == version + 1
    assert answer["what_if"]["seeds"] == [1, 2]
    assert worked.client().policy().text == file.read_text()


def test_only_administrators_record(worked: Instance, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(worked.client().create_token("alice").token)
    refused = worked.cli("twin", "record", "--out", str(tmp_path / "no.gz"), "--token-file", str(token))
    assert refused.returncode == 3, refused.stderr
    assert not (tmp_path / "no.gz").exists()
