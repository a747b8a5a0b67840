"""The edge of the API on a real server: nothing that a request holds reaches the store unchecked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from pilotage.wire.jobs import Selection
from pilotage.wire.limits import MAX_INSTANT
from tests.deadlines import PATIENCE
from tests.instance import Instance, running

pytestmark = pytest.mark.slow

BEYOND = (2**63, 2**64, 2**70, -(2**63) - 1, 10**30)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("edge"), owners="any") as instance:
        instance.job_done = instance.client().submit({"executable": "true"}).first  # type: ignore[attr-defined]
        instance.reaches(instance.job_done, "Done")  # type: ignore[attr-defined]
        yield instance
        log = instance.log()
        assert "unexpected error" not in log
        assert "Traceback" not in log


@pytest.fixture
def raw(pool: Instance) -> Iterator[httpx.Client]:
    headers = {
        "Authorization": f"Bearer {(pool.home / 'token').read_text().strip()}",
        "Content-Type": "application/json",
    }
    with httpx.Client(base_url=pool.client().url, headers=headers, timeout=PATIENCE) as client:
        yield client


def refused(answer: httpx.Response, *named: str) -> None:
    assert answer.status_code == 400, (answer.status_code, answer.text)
    body = answer.json()
    assert body["code"] == "invalid-input"
    for name in named:
        assert name in body["message"], body


@pytest.mark.parametrize("number", BEYOND)
def test_a_number_beyond_its_column_is_refused_on_every_address(raw: httpx.Client, number: int) -> None:
    for path in (
        "/v1/jobs/{}", "/v1/jobs/{}/events", "/v1/jobs/{}/outputs", "/v1/jobs/{}/outputs/x", "/v1/jobs/{}/why",
        "/v1/jobs/{}/logs/stdout", "/v1/jobs?after={}", "/v1/jobs?submission={}", "/v1/jobs?ids=1&ids={}",
        "/v1/counts?submission={}", "/v1/counts?ids={}", "/v1/queues?after={}", "/v1/queues/{}/why",
        "/v1/pilots?after={}", "/v1/submissions/{}", "/v1/submissions/{}/chunks", "/v1/submissions/1/chunks?after={}",
        "/v1/policy/versions?after={}", "/v1/policy/versions/{}", "/v1/jobs/1/logs/stdout?offset={}",
    ):  # fmt: skip
        refused(raw.get(path.format(number)))
    for method, path, body in (
        ("POST", "/v1/jobs/kill", {"selection": {"ids": [number]}}),
        ("POST", "/v1/jobs/kill", {"selection": {"submission": number}}),
        ("POST", "/v1/submissions/1/close", {"count": number}),
        ("POST", "/v1/submissions/open", {"description": {}, "names": [""], "key": "k", "expected": number}),
        ("PUT", "/v1/policy", {"text": "", "expect": number}),
        ("POST", "/v1/policy/rollback", {"version": number}),
        ("POST", "/v1/submissions", {"description": {"executable": "true", "memory": number}}),
        (
            "POST",
            "/v1/submissions",
            {"description": {"executable": "true"}, "parameters": {"names": [""], "rows": [[number]]}},
        ),
    ):
        refused(raw.request(method, path, content=json.dumps(body)))
    refused(raw.put(f"/v1/submissions/1/chunks/{number}", content="[[1]]"))


TEXTS: tuple[tuple[str, str, str], ...] = (
    ("/v1/jobs/kill", '{"selection": {"owner": X}}', "owner"),
    ("/v1/jobs/kill", '{"selection": {"states": ["Done", X]}}', "states.1"),
    ("/v1/jobs/delete", '{"selection": {"ids": [9]}, "reason": X}', "reason"),
    ("/v1/tokens", '{"user": X}', "user"),
    ("/v1/submissions", '{"yaml": X}', "yaml"),
    ("/v1/submissions", '{"jdl": X}', "jdl"),
    ("/v1/submissions", '{"description": {"executable": "true", "job_name": X}}', "job_name"),
    ("/v1/submissions", '{"description": {"executable": "true", "environment": {"A": X}}}', "environment.A"),
    ("/v1/submissions", '{"description": {"executable": "true"}, "key": X}', "key"),
    (
        "/v1/submissions",
        '{"description": {"executable": "%s"}, "parameters": {"names": [""], "rows": [[X]]}}',
        "rows",
    ),
    ("/v1/submissions", '{"description": {X: "true"}}', "name"),
    ("/v1/policy/rollback", '{"version": 1, "reason": X}', "reason"),
)


@pytest.mark.parametrize("text", [r'"\ud800"', r'"a\udfffb"', r'"a\u0000b"'])
@pytest.mark.parametrize(("path", "body", "named"), TEXTS)
def test_a_text_that_cannot_be_stored_is_refused_with_its_field(
    raw: httpx.Client, path: str, body: str, named: str, text: str
) -> None:
    refused(raw.post(path, content=body.replace("X", text)), named)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", '"nan"', '"inf"', "-1"])
def test_not_a_number_is_no_lifetime(raw: httpx.Client, number: str) -> None:
    refused(raw.post("/v1/tokens", content=f'{{"user": "alice", "lifetime": {number}}}'))


@pytest.mark.parametrize(
    "query", ["fairness?since=", "accounting?begin=", "accounting?end=", "jobs?ended_since="]
)
@pytest.mark.parametrize("number", ["nan", "inf", "1e300", "1e999"])
def test_not_a_number_is_no_instant(raw: httpx.Client, query: str, number: str) -> None:
    refused(raw.get(f"/v1/{query}{number}"))


@pytest.mark.parametrize("body", [b'{"a":' * 100_000, b"[" * 100_000, b'{"selection": "\xff"}', b"", b"\x00"])
def test_a_body_that_is_no_json_is_refused(raw: httpx.Client, body: bytes) -> None:
    refused(raw.post("/v1/jobs/kill", content=body))


def test_nul_in_an_address_is_refused(raw: httpx.Client) -> None:
    for path in ("jobs?owner=a%00b", "jobs/1/outputs/a%00b", "jobs?states=%00", "counts?name=%00"):
        refused(raw.get(f"/v1/{path}"))


def test_beyond_the_end_of_a_log_there_is_nothing(pool: Instance, raw: httpx.Client) -> None:
    job = pool.job_done  # type: ignore[attr-defined]
    for offset in (1, 2**31, 2**53, 2**62, 2**63 - 1):
        answer = raw.get(f"/v1/jobs/{job}/logs/stdout?offset={offset}")
        assert (answer.status_code, answer.content) == (200, b""), (offset, answer.text)


@pytest.mark.parametrize(
    "condition", ["submission", "ids", "states", "owner", "group", "job_group", "site", "name"]
)
@pytest.mark.parametrize("value", [0, "", [], None, [0], [""]])
def test_a_condition_that_is_given_and_empty_never_selects_everything(
    pool: Instance, raw: httpx.Client, condition: str, value: Any
) -> None:
    waiting = pool.client().counts(Selection(states=["Waiting", "Done"])).total
    assert waiting >= 1
    for verb in ("kill", "delete", "reschedule"):
        refused(
            raw.post(f"/v1/jobs/{verb}", content=json.dumps({"selection": {condition: value}})), condition
        )
    assert pool.client().counts(Selection(states=["Waiting", "Done"])).total == waiting
    if value is None:
        return
    given = value if isinstance(value, list) else [value]
    if given:
        query = [(condition, str(item)) for item in given]
        for path in ("jobs", "counts"):
            answer = raw.get(f"/v1/{path}", params=query)  # type: ignore[arg-type]
            # "0" is a name that no job has.
            named = answer.status_code == 200 and given in ([0],) and condition not in ("submission", "ids")
            if named:
                assert not answer.json().get("jobs")
                assert not answer.json().get("total")
            else:
                refused(answer, condition)


def test_a_condition_or_option_that_is_misspelt_acts_on_nothing(pool: Instance, raw: httpx.Client) -> None:
    for body, named in (
        ({"selection": {"submision": 5}}, "submision"),
        ({"selection": {"ids": [1]}, "dryrun": True}, "dryrun"),
    ):
        refused(raw.post("/v1/jobs/delete", content=json.dumps(body)), named)
    assert pool.job(pool.job_done).state == "Done"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "option", ["--owner", "--group", "--job-group", "--site", "--name", "--since", "--before", "--state"]
)
def test_an_empty_word_on_the_command_line_selects_nothing(pool: Instance, option: str) -> None:
    """As of `--owner "$WHO"` where WHO is not set."""
    refusal = pool.cli("delete", "--yes", "--state", "Done", option, "")
    assert refusal.returncode == 2, refusal.stderr
    assert option in refusal.stderr
    assert pool.cli("delete", "--yes", "").returncode == 2
    assert pool.job(pool.job_done).state == "Done"  # type: ignore[attr-defined]


def test_odd_input_is_the_callers_mistake_on_every_address(pool: Instance, raw: httpx.Client) -> None:
    for by in ("ce", "month"):
        for since in ("2e11", str(MAX_INSTANT)):
            assert raw.get(f"/v1/costs?by={by}&since={since}").status_code == 200
    job = pool.job_done  # type: ignore[attr-defined]
    for name in ("n" * 300, "é" * 200, f"{'n' * 300}/x"):
        assert raw.get(f"/v1/jobs/{job}/outputs/{name}").status_code in (400, 404)
    key = (pool.home / "secrets" / "signing.key").read_text().strip()
    claims = jwt.decode((pool.home / "token").read_text().strip(), options={"verify_signature": False})
    for wrong in ("soon", [1], float("nan"), True):
        token = jwt.encode({**claims, "exp": wrong}, key, "HS256", headers={"kid": "0"})
        assert raw.get("/v1/whoami", headers={"Authorization": f"Bearer {token}"}).status_code == 401


def test_jobs_with_files_are_accepted_after_the_folder_of_sandboxes_was_removed(
    pool: Instance, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("1")
    shutil.rmtree(pool.home / "sandboxes")
    description = {"executable": "cat", "arguments": ["data"], "input_sandbox": ["data"]}
    job = pool.client().submit(description, folder=tmp_path).first
    pool.reaches(job, "Done")
    assert pool.client().log(job).data == b"1"
