"""One user's text, pattern or policy neither ends the server nor keeps others waiting."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.deadlines import PATIENCE
from tests.instance import Instance, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("hostile")) as instance:
        yield instance


@pytest.fixture
def raw(pool: Instance) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {(pool.home / 'token').read_text().strip()}"}
    with httpx.Client(base_url=pool.client().url, headers=headers, timeout=PATIENCE) as client:
        yield client


@pytest.mark.parametrize(
    "body",
    [
        {"yaml": "[" * 50_000},
        {"yaml": "executable: " + "{a: " * 50_000},
        {"jdl": "Executable = " + "{" * 50_000},
        {"jdl": "Requirements = " + "(" * 50_000},
        {"description": {"executable": "a", "requirements": "-" * 50_000}},
        {"description": {"executable": "a", "requirements": 'regexp("(a)\\\\1", other.Hostname)'}},
    ],
)
def test_a_hostile_description_is_refused_and_the_server_lives(
    pool: Instance, raw: httpx.Client, body: dict[str, object]
) -> None:
    answer = raw.post("/v1/submissions", json=body)
    assert answer.status_code in (400, 413), answer.text[:300]
    assert raw.get("/live").status_code == 200
    assert pool.process is not None
    assert pool.process.poll() is None


@pytest.mark.parametrize("pattern", ["(?:x*){4}y", "x{0,200}x{0,200}x{0,200}x{0,200}y", "(x+x+)+y"])
def test_a_costly_pattern_is_matched_and_others_run(pool: Instance, raw: httpx.Client, pattern: str) -> None:
    client = pool.client()
    subject = "x" * 200
    hostile = {"executable": "/bin/true", "requirements": f'regexp("{pattern}", "{subject}")'}
    assert raw.post("/v1/submissions", json={"description": hostile}).status_code == 200
    other = client.submit({"executable": "/bin/true"})
    pool.reaches(other.first, "Done")
    assert raw.get("/live").status_code == 200


def test_a_policy_that_nothing_could_work_with_is_refused(pool: Instance, raw: httpx.Client) -> None:
    buckets = f"{pool.policy}\n[matching]\ncpu_buckets = [{2**70}]\n"
    word = f"{pool.policy}\n{'x' * 300_000}"
    for text in (buckets, word):
        answer = raw.put("/v1/policy", json={"text": text, "reason": "try"})
        assert answer.status_code == 400, answer.text[:300]
        assert "line" in answer.json()["message"]
    other = pool.client().submit({"executable": "/bin/true"})
    pool.reaches(other.first, "Done")
