"""Rows in chunks, with real processes: nothing is lost or doubled, whoever dies, and nobody is held up."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from pilotage.core.errors import Conflict, InvalidInput, NotFound, TooLarge
from pilotage.wire.jobs import Selection
from pilotage.wire.submissions import MAX_CHUNK_BYTES, MAX_CHUNK_ROWS, SubmitResponse
from tests.deadlines import PATIENCE
from tests.instance import Instance, running, until

pytestmark = pytest.mark.slow

NOWHERE = {"executable": "true", "memory": 10_000_000}
"""No node has this memory: such jobs wait."""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("many")) as instance:
        yield instance


def values(pool: Instance, submission: int) -> list[Any]:
    """The first value of each job, by rising id."""
    with closing(sqlite3.connect(f"file:{pool.home}/pilotage.db?mode=ro", uri=True)) as connection:
        sql = "SELECT parameters FROM jobs WHERE submission_id = ? ORDER BY id"
        return [json.loads(row[0])[0] for row in connection.execute(sql, (submission,))]


def metrics(pool: Instance) -> dict[str, float]:
    text = httpx.get(pool.client().url + "/metrics", timeout=PATIENCE).text
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_others_are_answered_while_many_rows_come(pool: Instance) -> None:
    count = 300_000
    before = metrics(pool)
    others: list[str] = []
    done = threading.Event()

    def ask() -> None:
        client = pool.client("alice")
        while not done.is_set():
            others.append(client.whoami().user)
            client.submit({**NOWHERE, "job_name": "other"})

    def rows() -> Iterator[int]:
        for number in range(count):
            if number == count // 2:
                # Matched, run and finished in the middle of it.
                pool.reaches(pool.client().submit({"executable": "true"}).first, "Done")
            yield number

    with ThreadPoolExecutor(1) as asking:
        asked = asking.submit(ask)
        answer = pool.client().submit_rows(NOWHERE, rows(), expected=count)
        done.set()
        asked.result()
    assert (answer.count, answer.last - answer.first + 1) == (count, count)
    assert values(pool, answer.submission) == list(range(count))
    assert len(others) > 20
    after = metrics(pool)
    commits = after["pilotage_commits_total"] - before["pilotage_commits_total"]
    busy = after["pilotage_busy_transactions_total"] - before["pilotage_busy_transactions_total"]
    assert commits >= count / MAX_CHUNK_ROWS
    assert busy < commits / 2  # by processor time: on a loaded machine the clock would say more


def test_a_client_that_was_killed_goes_on(pool: Instance, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pilotage.main", "submit", "--memory", "10TB", "--key", "killed"]
    command += ["--job-group", "to-be-killed"]
    words = ["--", "echo", "%(number)s"]
    process = subprocess.Popen(
        [*command, "--table", "-", *words],
        env={**os.environ, "PILOTAGE_HOME": str(pool.home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("number\n" + "".join(f"{n}\n" for n in range(3 * MAX_CHUNK_ROWS + 500)))
    process.stdin.flush()

    until(lambda: pool.client().counts(Selection(job_group="to-be-killed")).total, what="the first chunk")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    count = 4 * MAX_CHUNK_ROWS + 1
    table = tmp_path / "rows.csv"
    table.write_text("number\n" + "".join(f"{n}\n" for n in range(count)))
    again = pool.cli("submit", "--json", *command[4:], "--table", str(table), *words)
    assert again.returncode == 0, again.stderr
    [answer] = json.loads(again.stdout)["submissions"]
    assert answer["count"] == count
    assert values(pool, answer["submission"]) == [str(n) for n in range(count)]
    # Once more, with nothing to be done; and with other rows.
    assert pool.cli("submit", *command[4:], "--table", str(table), *words).returncode == 0
    table.write_text("number\n" + "".join(f"{n + 1}\n" for n in range(count)))
    other = pool.cli("submit", *command[4:], "--table", str(table), *words)
    assert (other.returncode, "of rows 1 to 5,000 at least one differs" in other.stderr) == (5, True)
    assert len(values(pool, answer["submission"])) == count


def test_a_server_that_was_killed_goes_on(tmp_path: Path) -> None:
    with running(tmp_path) as pool:
        count = 9 * MAX_CHUNK_ROWS + 7

        def rows() -> Iterator[int]:
            for number in range(count):
                if number in (2 * MAX_CHUNK_ROWS + 1, 4 * MAX_CHUNK_ROWS + 2500, 8 * MAX_CHUNK_ROWS):
                    pool.kill_server()  # the last chunk but one is on its way
                    pool.start()
                yield number

        answer = pool.client().submit_rows(NOWHERE, rows(), key="k")
        assert answer.count == count
        assert values(pool, answer.submission) == list(range(count))
        again = pool.client().submit_rows(NOWHERE, range(count), key="k")
        assert again == answer
        pool.kill_server()
        pool.start()
        assert pool.client().counts(answer).states == {"Waiting": count}


def test_two_clients_with_one_key_make_each_job_once(pool: Instance) -> None:
    count = 6 * MAX_CHUNK_ROWS + 11

    def send(_: int) -> SubmitResponse:
        return pool.client().submit_rows(NOWHERE, range(count), key="both")

    with ThreadPoolExecutor(2) as both:
        one, other = both.map(send, range(2))
    assert one == other
    assert values(pool, one.submission) == list(range(count))


def test_jobs_of_rows_run_and_know_their_values(pool: Instance, tmp_path: Path) -> None:
    table = tmp_path / "rows.jsonl"
    table.write_text('{"who": "world", "n": 1}\n{"who": "a b", "n": 2.50}\n')
    (tmp_path / "job.yaml").write_text("executable: echo\narguments: ['%(who)s', '%(n)s', '%n']\n")
    done = pool.cli("submit", "--wait", "--json", "--table", str(table), str(tmp_path / "job.yaml"))
    assert done.returncode == 0, done.stderr
    [answer] = json.loads(done.stdout)["submissions"]
    texts = []
    for job in (answer["first"], answer["last"]):
        pool.client().download(job, tmp_path / "out")
        texts.append((tmp_path / "out" / str(job) / "stdout").read_text())
    assert texts == ["world 1 0\n", "a b 2.5 1\n"]


def test_a_wrong_line_of_a_file_sends_nothing_and_of_a_pipe_says_how_to_go_on(
    pool: Instance, tmp_path: Path
) -> None:
    table = tmp_path / "rows.csv"
    good = "".join(f"{n},x\n" for n in range(7000))
    table.write_text("a,b\n" + good + "1,2,3\n")
    before = pool.client().counts().total
    words = ("submit", "--memory", "10TB", "--key", "wrong", "--table")
    refused = pool.cli(*words, str(table), "--", "echo", "%(a)s")
    assert (refused.returncode, "line 7,002 has 3 values for 2 names" in refused.stderr) == (2, True)
    assert pool.client().counts().total == before
    with table.open() as piped:
        refused = pool.cli_with_input(piped, *words, "-", "--", "echo", "%(a)s")
    assert refused.returncode == 2
    assert "standard input, line 7,002 has 3 values" in refused.stderr
    assert "the server has 5,000 rows" in refused.stderr
    assert "key wrong" in refused.stderr
    table.write_text("a,b\n" + good + "1,2\n")
    assert pool.cli(*words, str(table), "--", "echo", "%(a)s").returncode == 0
    assert pool.client().counts().total == before + 7001


def test_the_server_refuses_bad_chunks_with_the_row_and_the_reason(pool: Instance) -> None:
    client = pool.client()
    ask = client._transport.request
    request = {"description": NOWHERE, "names": ["a", "b"], "key": "bad"}
    opened = json.loads(ask("POST", "/v1/submissions/open", json=request).content)
    address = f"/v1/submissions/{opened['submission']}"
    for number, body, kind, words in (
        (0, b"[[1]]", InvalidInput, "row 0 of chunk 0 has 1 value for 2 names"),
        (0, b"[[1, null]]", InvalidInput, "row 0 of chunk 0: Expected"),
        (0, b"[[1, NaN]]", InvalidInput, "chunk 0: JSON is malformed"),
        (0, b'[[1, "\\u0000"]]', InvalidInput, "NUL"),
        (0, b"[]", InvalidInput, "chunk 0 has no rows"),
        (0, b"{}", InvalidInput, "chunk 0: Expected"),
        (0, b"\xff", InvalidInput, "chunk 0"),
        (0, b"[" + b"[1,2]," * MAX_CHUNK_ROWS + b"[1,2]]", TooLarge, "5,001 rows: at most 5,000"),
        (0, b" " * (MAX_CHUNK_BYTES + 1), TooLarge, "524,289 bytes"),
        (1, b"[[1, 2]]", Conflict, "expects chunk 0 next"),
    ):
        with pytest.raises(kind, match=words) as caught:
            ask("PUT", f"{address}/chunks/{number}", body=lambda body=body: body, size=len(body))
        assert kind is not TooLarge or caught.value.hint == "send fewer rows at a time"
    with pytest.raises(NotFound):
        pool.client("bob")._transport.request("GET", address)
    with pytest.raises(Conflict, match="no rows"):
        ask("POST", f"{address}/close", json={"count": 0})
    good = b'[[1, "x"], [2, true]]'
    first = json.loads(ask("PUT", f"{address}/chunks/0", body=lambda: good, size=len(good)).content)
    again = json.loads(
        ask("PUT", f"{address}/chunks/0", body=lambda: good.replace(b" ", b""), size=len(good) - 3).content
    )
    assert first == again == {"number": 0, "first": first["first"], "count": 2}
    with pytest.raises(Conflict, match="other rows"):
        ask("PUT", f"{address}/chunks/0", body=lambda: b"[[1,2]]", size=7)
    assert json.loads(ask("GET", address).content)["count"] == 2
    assert json.loads(ask("POST", f"{address}/close", json={"count": 2}).content)["count"] == 2
    with pytest.raises(Conflict, match="closed, with 2 jobs"):
        ask("PUT", f"{address}/chunks/1", body=lambda: b"[[1,2]]", size=7)
    with pytest.raises(InvalidInput, match="differs from job to job"):
        ask("POST", "/v1/submissions/open", json={**request, "key": "v", "description": {
            "executable": "x", "input_sandbox": [{"path": "%(a)s", "mode": "copy", "name": "%(a)s"}]}})  # fmt: skip


def test_a_large_body_in_one_request_is_refused_with_the_other_way(pool: Instance) -> None:
    rows = [["x" * 1000] for _ in range(9000)]
    body = json.dumps({"description": NOWHERE, "parameters": {"names": ["a"], "rows": rows}}).encode()
    with pytest.raises(TooLarge) as caught:
        pool.client()._transport.request(
            "POST", "/v1/submissions", body=lambda: body, size=len(body), idempotent=True
        )
    assert "/v1/submissions/open" in caught.value.hint


def test_many_rows_in_one_request_are_accepted_whole(pool: Instance) -> None:
    ask = pool.client()._transport.request
    request = {"description": {**NOWHERE, "parameters": {"count": 23_456, "step": 1}}, "key": "one"}
    answers = [json.loads(ask("POST", "/v1/submissions", json=request).content) for _ in range(2)]
    assert answers[0] == answers[1]
    assert values(pool, answers[0]["submission"]) == list(range(23_456))
