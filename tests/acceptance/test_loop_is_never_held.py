"""No request holds the server's event loop: every route and call gets the largest bodies that it accepts.

The bound is processor time of the loop's thread between two of its turns, so that a wait changes nothing. The same work
takes up to four times as long on a processor that others share, so a hold counts if two servers in turn have it.
`PILOTAGE_LOOP_ENTRY="POST /v1/datasets" pytest tests/acceptance/test_loop_is_never_held.py` tries matching entries.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from pkgutil import iter_modules

import httpx
import pytest
from fastapi.routing import APIRoute

import pilotage.server.duties
from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica
from pilotage.server.duties.duty import Duty
from pilotage.server.http.pilot_endpoints import ENDPOINTS
from pilotage.server.http.routes import routers
from pilotage.server.web.page import page_routers
from pilotage.services.pilots.enrolment import secret_hash
from tests import loop_guard
from tests.acceptance.loop_entries import (
    DUTIES,
    ENTRIES,
    OF_SEVERAL_SERVERS,
    OVER_TLS,
    PAGE_ENTRIES,
    WITH_SPANS,
    Sent,
    World,
    page_requests,
)
from tests.deadlines import PATIENCE
from tests.instance import Instance, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(20 * PATIENCE)]

LONGEST = 0.050
"""Seconds of processor time."""
ONLY = os.environ.get("PILOTAGE_LOOP_ENTRY", "")
SECRET = "of a pilot that a test plays"
JOBS = 1500
READ = 4_000_000
"""Bytes of an answer: nothing after them is read. An archive of all jobs is longer."""
A_DUTY = "a duty"
EXCUSED: dict[str, str] = {}
"""Entries that hold the loop for longer, each with the reason. Empty it."""


def routes() -> dict[str, APIRoute | None]:
    """Every route and pilot's call by its name."""
    found: dict[str, APIRoute | None] = {f"POST {path}": None for path in ENDPOINTS}
    for router in routers():
        for route in router.routes:
            if isinstance(route, APIRoute):
                found |= {f"{method} {route.path}": route for method in route.methods}
    return found


def test_every_route_and_call_has_an_entry() -> None:
    assert sorted(routes().keys() - ENTRIES.keys()) == [], "add them to loop_entries.py"
    assert sorted(ENTRIES.keys() - routes().keys()) == []


def test_every_page_has_an_entry() -> None:
    pages = {f"{address.method} {address.path}" for router in page_routers() for address in router.addresses}
    assert pages == PAGE_ENTRIES.keys(), "add them to loop_entries.py"


def duties(base: type[Duty] = Duty) -> set[str]:
    """All duties, by the names of their classes."""
    return {
        name
        for below in base.__subclasses__()
        if below.__module__.startswith("pilotage.")
        for name in (*(() if isabstract(below) else (below.__name__,)), *duties(below))
    }


def test_every_duty_has_an_entry() -> None:
    for module in iter_modules(pilotage.server.duties.__path__):
        import_module(f"pilotage.server.duties.{module.name}")
    known = DUTIES.keys() | OF_SEVERAL_SERVERS | OVER_TLS | WITH_SPANS
    assert duties() == known, "tell its work in loop_entries.py"


@contextlib.contextmanager
def measured_server(folder: Path) -> Iterator[tuple[Instance, httpx.Client]]:
    instance = Instance(folder, owners="any", heartbeat=5, lease=3600)
    instance.program = (str(Path(loop_guard.__file__).resolve()),)
    instance.environment["PILOTAGE_LOOP_HOLDS"] = str(folder / "holds")
    try:
        instance.start()
        instance.apply()
        token = (instance.home / "token").read_text().strip()
        with httpx.Client(
            base_url=instance.client().url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=2 * PATIENCE,
            trust_env=False,
        ) as raw:
            yield instance, raw
    finally:
        instance.close()


def make_world(server: Instance, raw: httpx.Client) -> World:
    client = server.client()
    done = client.submit({"executable": "echo", "arguments": ["a"]}).first
    server.reaches(done, "Done")
    sent = client.submit({"executable": "true", "tags": ["paper"]}, values=list(range(JOBS)))
    opened = raw.post(
        "/v1/submissions/open",
        json={"description": {"executable": "true", "tags": ["no"]}, "names": [""], "key": "chunks"},
    ).json()["submission"]
    pilot_token, incarnation = _enrolled(server, raw)
    held = _taken(raw, pilot_token, incarnation)
    request, agent, element = _element(server, raw)
    page = raw.get(f"/v1/agents/{agent}/elements/{element['id']}/files", params={"epoch": element["epoch"]})
    return World(
        known={
            "job": done, "submission": sent.submission, "submission_id": opened,
            "number": 0, "queue": client.job(sent.first).job.queue, "pilot": 999, "version": 1, "epoch": 1,
            "stream": "stdout", "verb": "kill", "digest": "0" * 64, "request": request,
            "element": element["id"], "agent": agent, "name": "local", "ce": "local",
        },
        dataset="open",
        agent=agent,
        nonce="n",
        element=element["id"],
        epoch=element["epoch"],
        files=[file["id"] for file in page.json()["files"]],
        pilot_token=pilot_token,
        incarnation=incarnation,
        held=held,
    )  # fmt: skip


def _enrolled(server: Instance, raw: httpx.Client) -> tuple[str, int]:
    """A pilot that the test plays: its token, and the server's incarnation."""
    sql = (
        "INSERT INTO pilots (id, stamp, secret_hash, idx, state, site, ce, pilot_type, processors, memory,"
        " submitted, batch_id) VALUES (999, 'paper', ?, 0, 'Submitted', 'here', 'local', 'generic', 1, 0, 0, '@x')"
    )
    with (
        contextlib.closing(sqlite3.connect(server.home / "pilotage.db", timeout=PATIENCE)) as connection,
        connection,
    ):
        connection.execute(sql, (secret_hash(SECRET),))
    answer = raw.post("/v1/pilot/enrol", json={"secret": SECRET, "index": 0, "nonce": "n"}).json()
    return answer["token"], answer["incarnation"]


def _taken(raw: httpx.Client, token: str, incarnation: int) -> list[tuple[int, int]]:
    """All jobs of the submission, as the pilot holds them."""
    node = {"hostname": "h", "processors": 10_000, "cpu_left": 1e9, "tags": ["paper"]}
    held: list[tuple[int, int]] = []
    for number in range(1, 10 * JOBS):
        body = {"incarnation": incarnation, "take": {"number": number, "count": 256, "node": node}}
        answer = raw.post(
            "/v1/pilot/exchange", json=body, headers={"Authorization": f"Bearer {token}"}
        ).json()
        held.extend((offer["job"], offer["epoch"]) for offer in answer["offers"])
        if len(held) == JOBS:
            break
    assert len(held) == JOBS
    return held


def _element(server: Instance, raw: httpx.Client) -> tuple[int, int, dict[str, int]]:
    """A request, an agent that the test plays, and an element that the agent has."""
    client = server.client()
    files = [
        FileEntry("events", 10**9, 10**12),
        FileEntry("lumis", 10**9, 10**6, "", ((1, 0, 300_000),)),
        *(FileEntry(f"f{n}", 10**9, 10) for n in range(1500)),
    ]
    for name in ("input", "open"):
        client.create_dataset(name)
    client.add_to_dataset("input", [BlockEntry("b", tuple(files), (Replica("here", "/d"),))])
    specification = {
        "name": "n", "input": "input", "team": "paper", "program": {"executable": "x", "tags": ["nowhere"]},
        "splitting": {"algorithm": "EventBased", "events_per_job": 10**9},
    }  # fmt: skip
    accepted = raw.post("/v1/requests", json={"specification": specification, "confirmed": True})
    assert accepted.status_code == 200, accepted.text
    who = {"name": "paper", "team": "paper", "nonce": "n"}
    agent = raw.post("/v1/agents/join", json=who).json()["agent"]
    numbers = iter(range(1, 1000))

    def pulled() -> dict[str, int] | None:
        turn = {"nonce": "n", "number": next(numbers), "want": 1, "slots": {"here": 1000}}
        elements: list[dict[str, int]] = raw.post(f"/v1/agents/{agent}/sync", json=turn).json()["elements"]
        return elements[0] if elements else None

    return accepted.json()["request"]["id"], agent, until(pulled, what="an element")


def test_no_request_holds_the_loop_or_fails_in_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    long = long_holds(tmp_path_factory.mktemp("loop"))
    if long:
        # Duties work on all that the entries leave behind.
        again = long_holds(tmp_path_factory.mktemp("again"), None if A_DUTY in long else long.keys())
        long = {name: long[name] for name in long.keys() & again.keys() - EXCUSED.keys()}
    assert not long, "\n\n".join(long.values())


def long_holds(folder: Path, names: Collection[str] | None = None) -> dict[str, str]:
    """Try entries (None: all) and the duties on a new server. Return a text for each that held the loop too long."""
    with measured_server(folder) as (server, raw):
        file = Path(server.environment["PILOTAGE_LOOP_HOLDS"])
        found: dict[str, str] = {}
        failed: list[str] = []
        world = make_world(server, raw)
        # The tables of routes are made at the first address that none of them has.
        raw.get("/nothing")
        _sign_in(server, raw)
        requests = {name: ENTRIES[name](world, route) for name, route in routes().items()}
        requests |= {name: page_requests(world, name) for name in PAGE_ENTRIES if name != "POST /signout"}
        for name, entry in requests.items():
            if not name.startswith(ONLY) or (names is not None and name not in names):
                continue
            for sent in entry:
                before = len(loop_guard.holds(file))
                what = f"{name} {sent.path[:100]} {len(sent.content or b''):,} bytes {(sent.content or b'')[:80]!r}"
                status = _status(raw, name, sent)
                raw.get("/live")
                if status is None or (status >= 500 and status not in (503, 507)):
                    failed.append(f"{what}: {status or 'no answer'}")
                longest = max(loop_guard.holds(file, before), default=None)
                if longest is not None and longest.seconds > LONGEST:
                    found[name] = f"{what}: {status} {longest.seconds * 1000:.0f} ms\n{longest.stack}"
        found |= _held_by_duties(file)
        assert not failed, "\n\n".join(failed)
        log = server.log()
        assert "Traceback" not in log, log[log.index("Traceback") :][:5000]
    return found


def _sign_in(server: Instance, raw: httpx.Client) -> None:
    """Give the client a session, for the pages."""
    raw.headers["Sec-Fetch-Site"] = "same-origin"
    token = (server.home / "token").read_text().strip()
    assert raw.post("/signin", data={"token": token}).status_code == 303


def _status(raw: httpx.Client, name: str, sent: Sent) -> int | None:
    """The status of the answer; None: there was none."""
    headers = {"Content-Type": "application/json"}
    if sent.token:
        headers["Authorization"] = f"Bearer {sent.token}"
    method = name.partition(" ")[0]
    try:
        with raw.stream(method, sent.path, content=sent.content, headers=headers) as answer:
            read = 0
            for chunk in answer.iter_raw():
                read += len(chunk)
                if read > READ:
                    break
            return answer.status_code
    except httpx.TransportError:
        return None


def _held_by_duties(file: Path) -> dict[str, str]:
    """Let each duty run with all that the entries have left behind; the longest hold meanwhile, if it is too long."""
    lines = file.with_suffix(".duties")

    def cycles() -> Counter[str]:
        return Counter(lines.read_text().splitlines())

    begun, before = cycles(), len(loop_guard.holds(file))
    # The first cycle that ends may have begun earlier.
    until(
        lambda: all(cycles()[name] >= begun[name] + 2 for name in DUTIES),
        within=3 * PATIENCE,
        what="two cycles of each duty",
    )
    longest = max(loop_guard.holds(file, before), default=None)
    if longest is None or longest.seconds <= LONGEST:
        return {}
    return {A_DUTY: f"{A_DUTY}: {longest.seconds * 1000:.0f} ms\n{longest.stack}"}
