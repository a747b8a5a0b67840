"""`pilotage why`: what is asked of the server, what is printed, and what is refused before."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.client.fake_server import State, job

Cli = Callable[..., int]

NEEDS: dict[str, Any] = {
    "summary": "no known node fits: more memory is requested than a node offers",
    "advice": "submit the job with memory <= 3000 MB: it then fits 412 slots at 6 sites",
    "reason": "needs",
    "detail": "memory",
    "job": 12,
    "state": "Waiting",
    "queue": 3,
    "needs": {"owner": "ada", "memory": "16000 MB"},
    "waiting": 2,
    "in_queue": {"higher": 0, "older": 10000},
    "refused": [{"site": "here", "offers": 2, "conditions": {"memory": 2, "tags": 1}, "takes": {"memory": 9}}],
    "openings": [
        {"attribute": "memory", "value": "3000", "text": "memory <= 3000 MB", "slots": 412, "sites": {"here": 412}}
    ],
    "history": [
        {"reason": "pilot", "detail": "local", "since": 1000.0, "until": 1090.0},
        {"reason": "needs", "detail": "memory", "since": 1090.0, "until": None},
    ],
    "of_a_later_version": 1,
}  # fmt: skip

SHARE: dict[str, Any] = {
    "summary": "this queue competes with 2 other queues",
    "reason": "share",
    "queue": 3,
    "waiting": 1,
    "in_queue": {"higher": 3, "older": 0},
    "limits": [{"text": "owner ada: at most 2 running", "running": 2, "most": 2, "wait": 0.0}],
    "standings": [
        {
            "site": "here", "ce": "local", "processors": 1, "memory": 0, "cpu_time": 5000.0, "possible": False,
            "takes": 1200, "higher_buckets": [{"cpu_time": 50000, "queues": 1, "jobs": 1}], "chance": 0.25,
            "queues": 4, "priority": 1000.0, "ours": 1000.0, "ahead": 1,
            "rivals": [{"owner": "", "group": "lab", "priority": 3000.0, "ratio": 3.0, "waiting": 7}],
        }
    ],
    "pilots": [
        {
            "ce": "local", "site": "here", "pilots": {"Running": 2}, "cores": 2, "used": 2, "ordered": 0,
            "not_before": 4e9,
        }
    ],
}  # fmt: skip


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_why_tells_the_refusing_condition_and_the_remedy(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    state.failures.append((200, NEEDS))
    assert cli("why", "12") == 0
    assert state.paths("GET") == ["/v1/jobs/12/why"]
    found = lines(capsys)
    assert "why\tno known node fits: more memory is requested than a node offers" in found
    assert "hint\tsubmit the job with memory <= 3000 MB: it then fits 412 slots at 6 sites" in found
    assert "reason\tneeds (memory)" in found
    assert "asks for\towner ada; memory 16000 MB" in found
    assert "before it\tof the same queue 10,000 or more older" in found
    assert "memory <= 3000 MB\t412\there 412" in found
    assert "here\t2\tmemory 2, tags 1" in found
    assert any(line.startswith("pilot\tlocal\t") and line.endswith("\t2 min") for line in found)
    assert not any("draw" in line for line in found), "no empty tables"


def test_why_of_a_submission_is_that_of_its_first_waiting_job(cli: Cli, state: State) -> None:
    state.failures += [(200, {"jobs": []}), (200, {"jobs": [job(12, "Waiting")]}), (200, NEEDS)]
    assert cli("why", "-s", "4") == 0
    assert state.paths("GET")[-1] == "/v1/jobs/12/why"
    assert len(state.paths("GET")) == 3


@pytest.mark.parametrize("arguments", [(), ("12", "-s", "4")])
def test_why_asks_about_one_thing(cli: Cli, state: State, arguments: tuple[str, ...]) -> None:
    assert cli("why", *arguments) == 2
    assert state.paths("GET") == []


def test_why_tells_the_competitors_of_a_queue(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    state.failures.append((200, SHARE))
    assert cli("why", "queue:3") == 0
    assert state.paths("GET") == ["/v1/queues/3/why"]
    found = lines(capsys)
    assert "reason\tshare" in found
    assert "before it\tof the same queue 3 of higher UserPriority" in found
    assert "limit\towner ada: at most 2 running; 2 of 2 running" in found
    assert "draws on the offers that it fits, after the queues with more CPU time" in found
    assert "offer\tserves\tmade\tqueues\tchance\tgo_first" in found
    assert "local, 1 core\tall\t1,200 times\t4\t25.00%\t1" in found
    assert "50000 s\t1\t1" in found
    assert "(all)\tlab\t3000\t3\t7" in found
    assert any(line.startswith("local\there\t2 Running\t2 of 2\ttries again 2096-") for line in found)


def test_a_limit_of_nothing_never_opens(cli: Cli, state: State, capsys: pytest.CaptureFixture[str]) -> None:
    limits = [
        {"text": "owner ada: at most 0 running", "running": 0, "most": 0, "wait": 0.0},
        {"text": "group lab: a start every 60 s", "running": 1, "most": None, "wait": 40.0},
    ]
    state.failures.append((200, {**SHARE, "limits": limits}))
    assert cli("why", "queue:3") == 0
    found = lines(capsys)
    assert "limit\towner ada: at most 0 running; nothing starts until the policy is changed" in found
    assert "limit\tgroup lab: a start every 60 s; the next start in 40 s" in found


def test_offers_differ_in_whom_their_pilots_serve(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    [stands] = SHARE["standings"]
    free = {**stands, "higher_buckets": [], "processors": 2, "memory": 8000}
    bound = {**free, "serves": "ada", "takes": 1}
    state.failures.append((200, {**SHARE, "standings": [free, bound, {**free, "possible": True}]}))
    assert cli("why", "queue:3") == 0
    found = lines(capsys)
    assert found[found.index("draws on the offers that it fits") :][1:5] == [
        "offer\tserves\tmade\tqueues\tchance\tahead",
        "local, 2 cores, 8000 MB\tall\t1,200 times\t4\t25.00%\t1",
        "local, 2 cores, 8000 MB\tada\tonce\t4\t25.00%\t1",
        "local, 2 cores, 8000 MB\tall\tpossible\t4\t25.00%\t1",
    ]
    assert not any("go first" in line for line in found)


def test_on_80_columns_an_offer_is_one_line(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, and no colours
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    [stands] = SHARE["standings"]
    wide = {**stands, "processors": 16, "memory": 64000, "queues": 1234, "ahead": 12}
    pilots = [{**SHARE["pilots"][0], "pilots": {"Running": 12, "Waiting": 3}, "not_before": time.time() + 45}]
    for buckets in ([], stands["higher_buckets"]):  # type: ignore[var-annotated]
        standings = [{**wide, "higher_buckets": buckets, "takes": 12345}]
        state.failures.append((200, {**SHARE, "standings": standings, "pilots": pilots}))
        assert cli("why", "queue:3") == 0
        found = lines(capsys)
        assert max(map(len, found)) <= 80
        [offer] = [line for line in found if "16 cores" in line]
        assert all(part in offer for part in ("local, 16 cores, 64000 MB", "12,345 times", "25.00%"))
        assert any("12 Running, 3 Waiting" in line and "tries again in 4" in line for line in found)


def test_json_is_the_answer_of_the_server(cli: Cli, state: State, capsys: pytest.CaptureFixture[str]) -> None:
    state.failures.append((200, NEEDS))
    assert cli("why", "12", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["openings"] == NEEDS["openings"]
    assert found["standings"] == []


def test_control_characters_of_others_do_not_reach_the_screen(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "x\x1b[2Jy"
    state.failures.append((200, {**NEEDS, "summary": evil, "needs": {"owner": evil}, "detail": evil}))
    assert cli("why", "12") == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("word", ["abc", "0", "-1", "1-3", "1,2", "queue:", "queue:x", "queue:0", "9" * 30])
def test_why_refuses_bad_targets_in_one_line(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    assert cli("why", "--", word) == 2
    told = capsys.readouterr().err
    assert "neither a job nor a queue" in told
    assert "Traceback" not in told
    assert state.requests == []


def test_a_missing_target_and_an_unknown_job(
    cli: Cli, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("why") == 2
    assert "pilotage why 12" in capsys.readouterr().err
    assert cli("why", "7") == 4
    assert "there is no job 7" in capsys.readouterr().err
