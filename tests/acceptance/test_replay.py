"""A real server is recorded with real pilots; the replay makes the same decisions, or names the first that differs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.core.errors import InvalidInput
from pilotage.server.recording.lines import (
    Answered,
    CallOutcome,
    Inputs,
    Line,
    ReceivedMessage,
    RecordBegin,
    line_of,
    read_record,
)
from pilotage.services.director import budgets, local_orders
from pilotage.twin.replay import replay
from pilotage.wire.call import all_calls
from pilotage.wire.jobs import Selection
from tests import forked, postgres, slurm
from tests.acceptance.test_slurm import instance_on
from tests.deadlines import PATIENCE
from tests.instance import Instance, until

REQUEST = """
name = "recorded"
team = "home"
events = 40
[program]
executable = "/bin/true"
[splitting]
algorithm = "EventBased"
events_per_job = 10
"""


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(("-m", "pilotage.main", *words), environment=dict(os.environ), timeout=PATIENCE)


SHARES = """
[groups.more]
share = 3
properties = ["NORMAL_USER"]
"""


def work_of_a_day(instance: Instance) -> None:
    """Jobs that end well, fail, are killed and are run again; a new policy; files; pages that list."""
    client = instance.client()
    instance.apply()
    done = client.submit(
        {"executable": "sh", "arguments": ["-c", "echo %s; echo more >&2"], "std_output": "out"},
        values=range(24),
    )
    failed = client.submit({"executable": "false"}, values=range(3))
    last = done.first + done.count - 1
    instance.reaches(last, "Done")
    client.apply_policy(instance.policy + SHARES)
    for job in range(failed.first, failed.first + failed.count):
        instance.reaches(job, "Failed")
    long = client.submit({"executable": "sleep", "arguments": ["600"]}, values=range(2))
    instance.reaches(long.first, "Running")
    assert instance.cli("kill", str(long.first), str(long.first + 1)).returncode == 0
    for job in (long.first, long.first + 1):
        instance.reaches(job, "Killed")
    script = instance.home.parent / "script.sh"
    script.write_text("#!/bin/sh\ncat input.txt > result.txt\n")
    (instance.home.parent / "input.txt").write_text("a line\n" * 1000)
    words = ("--input", "input.txt", "--output", "result.txt", "--", "sh", "script.sh")
    sent = instance.cli("submit", "--parsable", "--input", "script.sh", *words, cwd=instance.home.parent)
    assert sent.returncode == 0, sent.stderr
    job = int(sent.stdout.split()[0])
    instance.reaches(job, "Done")
    folder = instance.home.parent / "results"
    fetched = instance.cli("output", str(job), "--dir", str(folder))
    assert fetched.returncode == 0, fetched.stderr
    for command in ("status", f"why {job}", "share list", "policy history", "pilot list"):
        assert instance.cli(*command.split()).returncode == 0
    run_request(instance)
    ask_everything(instance)
    for user in ("alice", "bob"):
        instance.client(user).submit({"executable": "true"})


def run_request(instance: Instance) -> None:
    """The agent that the server starts splits the request into jobs."""
    file = instance.home.parent / "request.toml"
    file.write_text(REQUEST)
    sent = instance.cli("request", "submit", str(file), "--json")
    assert sent.returncode == 0, sent.stderr
    request = json.loads(sent.stdout)["requests"][0]["request"]["id"]
    client = instance.client()
    selection = Selection(request=request)
    until(lambda: client.counts(selection).states == {"Done": 4}, what="the end of the jobs of the request")


def ask_everything(instance: Instance) -> None:
    """Each address of the API without a part that must be known, and wrong requests."""
    url = json.loads((instance.home / "server.json").read_text())["url"]
    token = (instance.home / "token").read_text().strip()
    paths = [call.path for call in all_calls().values() if call.method == "GET" and "{" not in call.path]
    assert len(paths) > 20
    for path in (*paths, "/v1/jobs/1", "/v1/jobs/1/events", "/v1/jobs/99999", "/v1/nothing", "/openapi.json"):
        for given in (token, "", "no token"):
            headers = {"Authorization": f"Bearer {given}"} if given else {}
            with (
                suppress(urllib.error.HTTPError),
                urllib.request.urlopen(
                    urllib.request.Request(url + path, headers=headers), timeout=PATIENCE
                ) as answer,
            ):
                answer.read()


def recorded(folder: Path, **more: Any) -> Path:
    record = folder / "run.record"
    instance = Instance(folder, **more)
    try:
        instance.start("--record", str(record))
        work_of_a_day(instance)
        instance.stop_server()
    finally:
        instance.close()
    return record


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("recorded"))


def test_a_replay_makes_the_same_decisions(record: Path) -> None:
    result = replay(record)
    assert result.difference == ""
    assert result.ended
    assert result.answers == result.messages > 60


def test_a_changed_rule_is_found_with_its_instant(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = budgets.plan_within

    def fewer(*facts: Any) -> Any:
        return list(rule(*facts))[:1]

    monkeypatch.setattr(local_orders, "plan_within", fewer)
    result = replay(record)
    assert re.match(r"at \d+\.\d{6} s: ", result.difference), result
    assert not result.ended


def changed(record: Path, target: Path, change: Callable[[Line], Line | None]) -> Path:
    """A copy of a record, with the lines that `change` returns."""
    header, lines = read_record(record)
    made = (change(line) for line in (header, *lines))
    target.write_bytes(b"".join(line_of(line) for line in made if line is not None))
    return target


def test_another_seed_is_a_difference(record: Path, tmp_path: Path) -> None:
    def other(line: Line) -> Line:
        return msgspec.structs.replace(line, seed="another") if isinstance(line, RecordBegin) else line

    assert replay(changed(record, tmp_path / "other.record", other)).difference


def test_a_message_that_was_left_out_is_a_difference_at_its_instant(record: Path, tmp_path: Path) -> None:
    left_out: list[float] = []

    def without_kill(line: Line) -> Line | None:
        if isinstance(line, Inputs) and any(
            isinstance(given, ReceivedMessage) and given.path.endswith("/kill") for given in line.inputs
        ):
            left_out.append(line.at)
            return None
        return line

    path = changed(record, tmp_path / "other.record", without_kill)
    [at] = left_out
    result = replay(path)
    assert result.until <= at
    assert "the record has the answer to message" in result.difference


def test_the_command_tells_the_result_by_its_exit_code(record: Path, tmp_path: Path) -> None:
    same = run_command("twin", "replay", str(record))
    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout.startswith("the same decisions: ")

    def slower(line: Line) -> Line:
        if isinstance(line, Answered) and line.number == 40:
            return msgspec.structs.replace(line, status=500)
        return line

    other = run_command("twin", "replay", str(changed(record, tmp_path / "other.record", slower)))
    assert other.returncode == 1
    assert re.match(r"different at \d+\.\d{6} s: message 40 \(", other.stdout)
    assert "was answered with 500" in other.stdout


def test_the_record_has_no_token_that_the_server_accepted(tmp_path: Path) -> None:
    """Tokens of people, of pilots and of enrolments: none of them is in the record, whoever may read it."""
    record = tmp_path / "run.record"
    instance = Instance(tmp_path)
    try:
        instance.start("--record", str(record))
        instance.apply()
        job = instance.client().submit({"executable": "sleep", "arguments": ["600"]}).first
        instance.reaches(job, "Running")
        text = record.read_bytes()
        assert record.stat().st_mode & 0o077 == 0
        tokens = [(instance.home / "token").read_text().strip(), instance.client().create_token("bob").token]
        assert not [token for token in tokens if token.encode() in text]
        hashes = hashes_of_secrets(instance)
        assert len(hashes) >= 2
        shown = set(re.findall(rb"[\w-]{43}", text))
        assert shown
        assert not [token for token in shown if hashlib.sha256(token).hexdigest() in hashes]
    finally:
        instance.close()


def hashes_of_secrets(instance: Instance) -> set[str]:
    with closing(sqlite3.connect(instance.home / "pilotage.db")) as connection:
        rows = connection.execute("SELECT secret_hash, token_hash FROM pilots").fetchall()
    return {value for row in rows for value in row if value}


def test_a_server_that_is_killed_leaves_a_record(tmp_path: Path) -> None:
    record = tmp_path / "run.record"
    instance = Instance(tmp_path)
    try:
        instance.start("--record", str(record))
        instance.apply()
        job = instance.client().submit({"executable": "true"}).first
        instance.reaches(job, "Done")
        instance.kill_server()
    finally:
        instance.close()
    with record.open("ab") as file:
        file.write(b"0123abcd {")
    result = replay(record)
    assert (result.difference, result.ended) == ("", False)
    assert result.answers > 5


def test_a_record_may_begin_with_a_history_and_running_pilots(tmp_path: Path) -> None:
    record = tmp_path / "run.record"
    instance = Instance(tmp_path)
    try:
        instance.start()
        instance.apply()
        released = instance.home / "released"
        words = f"while [ ! -e {released} ]; do sleep 0.05; done"
        held = instance.client().submit({"executable": "sh", "arguments": ["-c", words]}).first
        instance.reaches(held, "Running")
        instance.stop_server()
        instance.start("--record", str(record))
        released.touch()
        instance.reaches(held, "Done")
        instance.reaches(instance.client().submit({"executable": "true"}).first, "Done")
        instance.stop_server()
        assert (tmp_path / "run.record.store").stat().st_mode & 0o077 == 0
    finally:
        instance.close()
    result = replay(record)
    assert (result.difference, result.ended) == ("", True)


def test_parity_holds_on_postgresql(tmp_path: Path) -> None:
    databases = [postgres.server().empty() for _ in range(2)]
    first, second = (postgres.server().url(name) for name in databases)
    record = tmp_path / "run.record"
    instance = Instance(tmp_path, database_url=first)
    try:
        assert instance.cli("db", "upgrade").returncode == 0
        instance.start("--record", str(record))
        work_of_a_day(instance)
        instance.stop_server()
        live = replay_fails(record, first)
        assert "is not empty" in live
        assert "names an empty database" in replay_fails(record)
        result = replay(record, second)
        assert (result.difference, result.ended) == ("", True)
        assert result.answers == result.messages > 60
    finally:
        instance.close()
        for name in databases:
            postgres.server().drop(name)


def test_no_second_server_joins_a_recorded_one(tmp_path: Path) -> None:
    """Its decisions would be missing in the record."""
    database = postgres.server().empty()
    first, second = (Instance(tmp_path / name, database_url=postgres.server().url(database)) for name in "ab")
    try:
        for instance in (first, second):
            instance.home.parent.mkdir()
        assert first.cli("db", "upgrade").returncode == 0
        first.start("--record", str(tmp_path / "run.record"))
        for options in ((), ("--record", str(tmp_path / "other.record"))):
            refused = second.cli("up", "--port", str(second.port), *options)
            assert refused.returncode == 5, refused.stderr
        refused = second.cli("up", "--port", str(second.port))
        assert f"a record has one server: the server at http://127.0.0.1:{first.port} of " in refused.stderr
        assert "stop it, and start it again without --record" in refused.stderr
        first.stop_server()
        result = replay(tmp_path / "run.record", postgres.server().url(other := postgres.server().empty()))
        assert (result.difference, result.ended) == ("", True)
        postgres.server().drop(other)
    finally:
        first.close()
        second.close()
        postgres.server().drop(database)


def replay_fails(record: Path, database_url: str = "") -> str:
    with pytest.raises(InvalidInput) as error:
        replay(record, database_url)
    return str(error.value)


def test_parity_holds_with_pilots_in_slurm(tmp_path: Path) -> None:
    """Commands of a batch system take their time, and other decisions are made meanwhile."""
    record = tmp_path / "run.record"
    with (
        slurm.cluster(nodes=1, processors=4) as cluster,
        instance_on(cluster, tmp_path / "server", options=("--record", str(record))) as instance,
    ):
        client = instance.client()
        sent = client.submit({"executable": "true"}, values=range(20))
        selection = Selection(submission=sent.submission)
        until(lambda: client.counts(selection).final == 20, what="the end of all jobs")
        assert instance.cli("ce", "jobs", "slurm").returncode == 0
        until(lambda: all(pilot.ended for pilot in client.pilots()), what="the end of all pilots")
        instance.stop_server()
    result = replay(record)
    assert (result.difference, result.ended) == ("", True)
    _, lines = read_record(record)
    inputs = [given for line in lines if isinstance(line, Inputs) for given in line.inputs]
    assert [given for given in inputs if isinstance(given, CallOutcome) and given.call == "slurm: submit"]


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_a_record_that_was_cut_is_replayed_up_to_there(record: Path, tmp_path: Path, part: float) -> None:
    text = record.read_bytes()
    cut = tmp_path / "cut.record"
    cut.write_bytes(text[: int(part * len(text))])
    result = replay(cut)
    assert (result.difference, result.ended) == ("", False)
    assert result.answers > 3
