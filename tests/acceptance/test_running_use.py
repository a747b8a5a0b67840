"""Of a job that runs, all faces tell its use: of one that computes and writes, and of one that does neither."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import fields

import httpx
import pytest

from pilotage.core.jobs.use_wording import IDLE_CORES
from pilotage.wire.payload_use import JobUse
from tests.deadlines import PATIENCE
from tests.instance import Instance, answer_of, output_of, running, until

pytestmark = pytest.mark.slow

COMPUTES = """
import time
while True:
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    print("step", flush=True)
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("use"), owners="any") as instance:
        yield instance


@pytest.fixture
def start(pool: Instance) -> Iterator[Callable[..., int]]:
    """Submits a job that runs until the test has ended."""
    jobs: list[int] = []

    def submit(*command: str) -> int:
        job = (
            pool.client()
            .submit({"executable": command[0], "arguments": list(command[1:]), "memory": 512})
            .first
        )
        jobs.append(job)
        pool.reaches(job, "Running")
        return job

    yield submit
    for job in jobs:
        pool.cli("kill", str(job))


def use_when(pool: Instance, job: int, holds: Callable[[JobUse], bool]) -> JobUse:
    def look() -> JobUse | None:
        use = pool.job(job).use
        return use if use is not None and holds(use) else None

    return until(look, what=f"the use of job {job}")


def computing(told: str) -> str:
    return told if "it computes: " in told else ""


def page_of(pool: Instance, job: int) -> str:
    token = (pool.home / "token").read_text().strip()
    with httpx.Client(base_url=pool.client().url, timeout=PATIENCE, trust_env=False) as browser:
        assert browser.post("/signin", data={"token": token}).status_code == 303
        return html.unescape(browser.get(f"/jobs/{job}").text)


def test_a_job_that_computes_and_writes(pool: Instance, start: Callable[..., int]) -> None:
    job = start("/usr/bin/env", "python3", "-c", COMPUTES)
    use = use_when(pool, job, lambda use: use.cpu > 0.5 and use.output_at is not None)
    assert 0 < use.memory <= use.peak
    for face in (lambda: output_of(pool, "why", str(job)), lambda: page_of(pool, job)):
        told = until(lambda face=face: computing(face()), what="a measurement in which it had a core")
        assert "last output" in told
        assert "MB of 512 MB)" in told
    assert "last output" in output_of(pool, "status")
    assert "last output" in output_of(pool, "status", str(job))


def test_a_job_that_sleeps_and_writes_nothing(pool: Instance, start: Callable[..., int]) -> None:
    job = start("sleep", "100000")
    first = use_when(pool, job, lambda use: True)
    later = use_when(pool, job, lambda use: use.at > first.at and use.busy < IDLE_CORES)
    assert later.output_at is None
    for told in (output_of(pool, "why", str(job)), page_of(pool, job)):
        assert "it computes" not in told
        assert "no output yet" in told


def test_each_fact_is_in_the_documents_while_the_job_runs(pool: Instance, start: Callable[..., int]) -> None:
    job = start("sleep", "100000")
    use_when(pool, job, lambda use: True)
    facts = {field.name for field in fields(JobUse)}
    one = answer_of(pool, "status", str(job))["job"]
    [listed] = answer_of(pool, "status", "-s", str(one["submission"]))["jobs"]
    assert set(one["use"]) == set(listed["use"]) == set(answer_of(pool, "why", str(job))["use"]) == facts
    pool.cli("kill", str(job))
    pool.reaches(job, "Killed")
    assert pool.job(job).use is None
    assert "CPU in" not in output_of(pool, "status", str(job))
