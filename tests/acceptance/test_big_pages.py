"""Pages are bounded in bytes, and so is the memory of the server that makes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from pilotage.wire.jobs import Selection
from pilotage.wire.limits import MAX_PAGE, MAX_PAGE_BYTES
from tests.deadlines import PATIENCE
from tests.instance import Instance, running

pytestmark = pytest.mark.slow

JOBS = 4000
REASON = "\u0001" * 2000
"""The longest reason that is taken, of characters that JSON writes with six."""
ROW = 14_000
"""Bytes of a job in a list, about: the reason and the longest name."""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server with jobs that are as large in a list as they may be."""
    with running(tmp_path_factory.mktemp("pages"), processors=1) as instance:
        client = instance.client()
        description = {
            "executable": "true",
            "tags": ["nowhere"],
            "job_name": "n" * 255,
            "job_group": "g" * 255,
        }
        answer = client.submit(description, values=list(range(JOBS)))
        assert client.kill(answer, reason=REASON).done == JOBS
        yield instance


def raw(pool: Instance) -> httpx.Client:
    headers = {"Authorization": f"Bearer {(pool.home / 'token').read_text().strip()}"}
    return httpx.Client(base_url=pool.client().url, headers=headers, timeout=PATIENCE)


def peak(pool: Instance) -> int:
    """Bytes of memory that the server has ever had."""
    assert pool.process is not None
    lines = Path(f"/proc/{pool.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def test_a_page_ends_early_and_tells_how_to_go_on(pool: Instance) -> None:
    with raw(pool) as client:
        seen: list[int] = []
        after: int | None = 0
        while after is not None:
            answer = client.get("/v1/jobs", params={"after": after, "limit": MAX_PAGE})
            assert answer.status_code == 200, answer.text[:200]
            assert len(answer.content) < MAX_PAGE_BYTES + ROW
            page = json.loads(answer.content)
            assert page["jobs"], "each page brings us further"
            assert len(page["jobs"]) < MAX_PAGE
            seen += [job["id"] for job in page["jobs"]]
            after = page["next"]
    assert len(seen) == len(set(seen)) == JOBS
    assert seen == sorted(seen)


def test_a_row_that_is_larger_than_a_page_comes_alone(pool: Instance) -> None:
    with raw(pool) as client:
        page = client.get("/v1/jobs", params={"limit": 1}).json()
    assert len(page["jobs"]) == 1
    assert page["next"] == page["jobs"][0]["id"]


def test_the_client_follows_short_pages(pool: Instance) -> None:
    assert sum(1 for _ in pool.client().jobs(Selection(name="n" * 255))) == JOBS


def test_four_large_pages_at_once_take_little_memory(pool: Instance) -> None:
    """What stands in the rows of four whole pages would be 56 MB as text, and some times that as objects."""
    with raw(pool) as client:
        client.get("/v1/jobs", params={"limit": MAX_PAGE})
    before = peak(pool)

    def ask(turn: int) -> int:
        with raw(pool) as client:
            answer = client.get("/v1/jobs", params={"limit": MAX_PAGE, "after": turn * 100})
            return len(answer.content)

    with ThreadPoolExecutor(4) as threads:
        sizes = list(threads.map(ask, range(40)))
    assert max(sizes) < MAX_PAGE_BYTES + ROW
    grown = peak(pool) - before
    assert grown < 60 * MAX_PAGE_BYTES, f"{grown / 1e6:.0f} MB"
