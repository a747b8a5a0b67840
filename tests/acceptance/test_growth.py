"""No answer that a person waits for takes longer because the pool has more of everything.

The measure is the number of steps of SQLite's machine. `tests/multiplied.py` makes two stores of one: each row of the
larger store is there `LARGE` times, and `SMALL` times in the other one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest
from fastapi.routing import APIRoute

from pilotage.server.http.routes import routers
from pilotage.server.web.page import page_routers
from tests import step_guard
from tests.acceptance.loop_entries import World, address, in_query
from tests.deadlines import PATIENCE
from tests.instance import Instance, until
from tests.multiplied import multiply
from tests.sample_work import POLICY, add_pages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(20 * PATIENCE)]

SMALL, LARGE = 40, 400
ALLOWED = 4000
"""Steps more, for the depth of indexes and the like."""
TRIES = 3
ONLY = os.environ.get("PILOTAGE_GROWTH_ENTRY", "")
EXCUSED: dict[str, str] = {}
"""Addresses whose steps may grow, each with the reason."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, list[str]]]:
    """A server that has stopped, and the addresses of everything that can be read."""
    instance = Instance(tmp_path_factory.mktemp("world"), owners="any")
    instance.policy += POLICY
    try:
        instance.start()
        instance.apply()
        pages = add_pages(instance)
        client = instance.client()
        failed = client.submit({"executable": "/bin/false"}, values=list(range(5)))
        client.wait(failed)
        request = int(pages["request"].rpartition("/")[2])
        known = {
            "job": failed.first, "submission": failed.submission, "submission_id": failed.submission,
            "queue": int(pages["queue"].rpartition("/")[2]), "pilot": 1, "version": 1, "request": request,
            "element": next(iter(client.request_elements(request))).id, "name": "local", "ce": "local",
            "stream": "stdout", "block": "block-1", "node": "no-such-node", "agent": 1,
        }  # fmt: skip
        world = World(known, "", 0, "", 0, 0, [], "", 0, [])
        instance.stop_server()
        yield instance, sorted({*_routes(world), *_pages(world, pages)})
    finally:
        instance.close()


def _routes(world: World) -> Iterator[str]:
    for route in (route for router in routers() for route in router.routes):
        if isinstance(route, APIRoute) and "GET" in (route.methods or ()) and route.path not in STREAMS:
            known = {**world.known, "name": DATA_SET} if "/datasets" in route.path else world.known
            needed = (field for field in in_query(route.dependant) if field.field_info.is_required())
            query = "&".join(f"{field.alias}={known.get(field.name, 1)}" for field in needed)
            query = "node=no-such-node" if route.path == "/v1/trace" else query
            yield f"{address(world, route)}?{query}" if query else address(world, route)


def _pages(world: World, pages: dict[str, str]) -> Iterator[str]:
    yield from pages.values()
    job, submission = world.known["job"], world.known["submission"]
    yield from (
        f"/jobs/{job}",
        f"/jobs/{job}/log",
        f"/submissions/{submission}",
        "/jobs?state=Failed",
        "/jobs",
    )
    yield from (f"/jobs/all/kill?submission={submission}", f"/submissions/{submission}/report", "/?owner=ada")
    read = (page for router in page_routers() for page in router.addresses if page.method == "GET")
    yield from (page.path for page in read if "{" not in page.path and page.path not in STREAMS)


ABSENT = (
    *("/v1/pilot/", "/v1/agents/", "/v1/catalogues/", "/v1/ces/probe", "/jobs/999", "/signin"),
    *("/v1/jobs/", "/v1/storage/", "/v1/issuers/", "/v1/batch-systems/"),
)
"""Beginnings of addresses whose object the store may lack."""
DATA_SET = "data26/run.2026.AOD"
STREAMS = frozenset({"/changes", "/v1/changes", "/signin-at", "/signin-back", "/v1/pilot.pyz", "/live"})
"""Addresses without an end, those that lead elsewhere, and those that read nothing."""


def _steps(instance: Instance, addresses: list[str]) -> dict[str, int]:
    """The steps of each address, with the store as it is."""
    file = instance.home.parent / "steps"
    instance.program = (str(Path(step_guard.__file__).resolve()),)
    instance.environment["PILOTAGE_STEPS"] = str(file)
    instance.start()
    token = (instance.home / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=instance.url, headers=headers, timeout=PATIENCE, trust_env=False) as client:
        assert client.post("/signin", data={"token": token}).status_code == 303
        found = {path: min(_steps_of(client, path, file) for _ in range(TRIES)) for path in addresses}
    instance.stop_server()
    return found


def _steps_of(client: httpx.Client, path: str, file: Path) -> int:
    known = len(step_guard.lines_of(file))
    answer = client.get(path)
    assert answer.status_code < 500, f"{path}: {answer.text[:500]}"
    # An object that is not there tells nothing of the pool.
    assert answer.status_code < 400 or path.startswith(ABSENT), f"{path}: {answer.text[:500]}"

    def steps() -> list[int]:
        # The line is written after the answer.
        return [
            taken for of, taken in step_guard.lines_of(file)[known:] if of == unquote(urlsplit(path).path)
        ]

    return until(steps, what=f"the steps of {path}")[0]


def test_no_answer_grows_with_the_pool(world: tuple[Instance, list[str]]) -> None:
    instance, addresses = world
    addresses = [path for path in addresses if path.startswith(ONLY)]
    multiply(instance.home / "pilotage.db", SMALL, 10**6)
    small = _steps(instance, addresses)
    multiply(instance.home / "pilotage.db", LARGE // SMALL, 10**9)
    large = _steps(instance, addresses)
    grown = {
        path: f"{path}: {small[path]:,} steps, and {large[path]:,} with {LARGE // SMALL} times as much"
        for path in addresses
        if large[path] > small[path] * 1.5 + ALLOWED
    }
    assert not grown.keys() - EXCUSED.keys(), "\n".join(grown.values())
