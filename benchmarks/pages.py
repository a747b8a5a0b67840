"""Pages of a server with a large pool: the time and the size of each, and the cost of pages that stay open."""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import httpx

from benchmarks.figure import Figure, part
from benchmarks.filled import fill_apart, policy_text, store_at
from benchmarks.over_http import PILOTS, ask_from_processes
from benchmarks.processes import cpu
from benchmarks.recorded_year import record_year
from benchmarks.server import index_waiting, served, server_pid
from benchmarks.shapes import Shape, synthetic
from pilotage.client import Client
from pilotage.server.web.page import page_routers

SUMMARY = (
    "ms of the slowest page (95 %) with a million jobs, its kB, and % of a core for pages that stay open"
)

AIM_SECONDS, AIM_BYTES, AIM_OPEN = 0.2, 200_000, 5.0
SETTLE = 20.0
"""Seconds for the work of a server that has just started."""
NUMBERS = {"job": 1, "submission": 1, "request": 1, "queue": 1, "version": 1}
"""For the numbers in addresses."""
QUERIES = {
    "/ces/one": "?name=ce1",
    "/requests": "?all=yes",
    "/shares": "?period=year",
    "/shares/group": "?name=g1&period=year",
    "/shares/interval": "?begin=1&end=9999999999",
    "/waiting": "?period=year",
    "/waiting/interval": "?begin=1&end=9999999999",
}
"""The usual queries, or those that read the most."""
WITHOUT = ("/changes", "/signin-at", "/signin-back")
"""A stream, and two that lead elsewhere."""


CLIENTS = 8
"""Connections of pilots that ask for one job at a time, all of one process."""


class Loads(NamedTuple):
    """What loads of one page took. Times in seconds, sorted."""

    status: int
    times: list[float]
    bytes: int

    @property
    def slow(self) -> float:
        return part(self.times, 0.95)


class OpenPagesCost(NamedTuple):
    """What pages that stay open cost. Each list has a number for each turn."""

    closed: float
    """% of a core of the server without them, while nothing changes that they show."""
    opened: float
    """The same with them."""
    matches: list[float]
    """Matches per second without them."""
    matches_beside: list[float]
    cpu: list[float]
    """Microseconds of the server's processor time for a match without them."""
    cpu_beside: list[float]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=5000)
    parser.add_argument("--ces", type=int, default=200)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--loads", type=int, default=40, help="of each page")
    parser.add_argument("--open", type=int, default=200, help="pages that stay open")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the open pages")
    parser.add_argument("--turns", type=int, default=4, help="of matches with the open pages, and without")
    parser.add_argument("--turn", type=float, default=8.0, help="seconds of a turn")
    parser.add_argument(
        "--also", action="append", default=[], help="one more address, such as /jobs?state=Failed"
    )


def run(asked: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-pages-") as name:
        folder = Path(name)
        shape = synthetic(asked.jobs, asked.queues)
        tokens = [f"token {number}" for number in range(CLIENTS * PILOTS * 2 * asked.turns)]
        rng = Random(3)
        pilots = [[token, asdict(shape.node(rng))] for token in tokens]
        with store_at(folder, "sqlite") as store:
            fill_apart(store, shape, "proportional", tokens)
            rows = record_year(store, time.time())
        with served(folder, again=True) as client:
            _prepare(client, shape, asked)
            token = (folder / "home" / "token").read_text().strip()
            with httpx.Client(
                base_url=client.url, timeout=60, headers={"Sec-Fetch-Site": "same-origin"}
            ) as web:
                web.post("/signin", data={"token": token}, follow_redirects=True).raise_for_status()
                loads = {path: _load(web, path, asked.loads) for path in _addresses(asked.also)}
                cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in web.cookies.jar)
            cost = asyncio.run(_open_pages(client.url, cookies, server_pid(folder), asked, pilots))
    return _figure(asked, rows, loads, cost)


def _prepare(client: Client, shape: Shape, asked: argparse.Namespace) -> None:
    """Add the CEs, which no job fits, and the requests, which no agent takes."""
    while index_waiting(client.url) < shape.jobs:
        time.sleep(0.1)
    text = policy_text(shape, "proportional")
    for number in range(asked.ces):
        site = shape.sites[number % len(shape.sites)]
        text += f'\n[ces.ce{number}]\nsite = "{site}"\nowners = "any"\nrequired_tags = ["nowhere"]'
    client.apply_policy(text)
    for number in range(asked.requests):
        client.submit_request(
            {
                "name": f"r{number}",
                "events": 1000,
                "team": "nobody",
                "program": {"executable": "/bin/true"},
                "splitting": {"algorithm": "EventBased", "events_per_job": 100},
            }
        )
    time.sleep(SETTLE)


def _addresses(also: Sequence[str]) -> list[str]:
    """Each address that can be read without a form, with numbers filled in, and those of `also`."""
    read = (address for router in page_routers() for address in router.addresses if address.method == "GET")
    paths = (re.sub(r"\{(\w+):int\}", lambda found: str(NUMBERS[found[1]]), address.path) for address in read)
    whole = {path + QUERIES.get(path, "") for path in paths if "{" not in path and path not in WITHOUT}
    return [*sorted(whole), *also]


def _load(web: httpx.Client, path: str, times: int) -> Loads:
    """Load a page often. The first time counts too: it is the one that people wait for."""
    taken, size = [], 0
    for _ in range(times):
        begun = time.perf_counter()
        answer = web.get(path)
        taken.append(time.perf_counter() - begun)
        size = max(size, len(answer.content))
    return Loads(answer.status_code, sorted(taken), size)


async def _open_pages(
    url: str, cookies: str, process: int, asked: argparse.Namespace, pilots: Sequence[Any]
) -> OpenPagesCost:
    """The cost of open pages at rest, and then while pilots ask, in turns."""
    closed = await _cost(process, asked.seconds / 2)
    async with _opened(url, cookies, asked.open):
        opened = await _cost(process, asked.seconds)
    cost = OpenPagesCost(closed, opened, [], [], [], [])
    # A client numbers its takes from 1, so each turn has its own pilots.
    mine, of_turn = iter(range(0, len(pilots), CLIENTS * PILOTS)), CLIENTS * PILOTS
    for turn in range(asked.turns):
        # Whichever comes first has the colder server, or the fewer running jobs.
        for beside in (False, True) if turn % 2 else (True, False):
            first = next(mine)
            async with _opened(url, cookies, asked.open if beside else 0):
                rate, cpu_time = await _matches(url, process, asked.turn, pilots[first : first + of_turn])
            (cost.matches_beside if beside else cost.matches).append(rate)
            (cost.cpu_beside if beside else cost.cpu).append(cpu_time)
    return cost


@asynccontextmanager
async def _opened(url: str, cookies: str, number: int) -> AsyncGenerator[None]:
    """So many pages of jobs are open. Raises RuntimeError if one has ended meanwhile."""
    pages = [asyncio.create_task(_stay(url, cookies, 1 + page)) for page in range(number)]
    await asyncio.sleep(5)
    try:
        yield
        ended = [page for page in pages if page.done()]
        if ended:
            raise RuntimeError(f"{len(ended)} open pages ended: {ended[0].exception()}")
    finally:
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)


async def _matches(url: str, process: int, seconds: float, pilots: Sequence[Any]) -> tuple[float, float]:
    """Matches per second, and microseconds of the server's processor time for one."""
    clients = argparse.Namespace(clients=CLIENTS, processes=1, seconds=seconds)
    answers, used, _ = await asyncio.to_thread(ask_from_processes, clients, url, pilots, 1, process, [])
    matched = sum(answer["matched"] for answer in answers)
    return round(matched / seconds, 1), used / max(1, matched) * 1e6


async def _cost(process: int, seconds: float) -> float:
    before = cpu(process)
    await asyncio.sleep(seconds)
    return (cpu(process) - before) / seconds * 100


async def _stay(url: str, cookies: str, job: int) -> None:
    """An open page of a job: the stream of its parts."""
    host, port = url.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    query = f"watch=job%3A{job}%20why%3A{job}"
    writer.write(
        f"GET /changes?{query} HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookies}\r\n\r\n".encode()
    )
    try:
        status = (await reader.readline()).split()
        if status[1:2] != [b"200"]:
            raise RuntimeError(f"the stream was refused: {b' '.join(status).decode()}")
        while await reader.read(65536):
            pass
    finally:
        writer.close()


def _figure(asked: argparse.Namespace, rows: int, loads: dict[str, Loads], cost: OpenPagesCost) -> Figure:
    shown = {path: one for path, one in loads.items() if one.status == httpx.codes.OK}
    slowest = max(shown, key=lambda path: shown[path].slow)
    largest = max(shown, key=lambda path: shown[path].bytes)
    notes = {
        path: f"{median(one.times) * 1000:.0f} ms (median), {one.slow * 1000:.0f} ms (95 %), {one.bytes / 1000:.0f} kB"
        + ("" if path in shown else f", status {one.status}")
        for path, one in loads.items()
    }
    notes |= {
        "pool": f"{asked.jobs:,} jobs, {asked.queues:,} queues, {asked.ces} CEs, {asked.requests:,} requests",
        "a year of waiting jobs and shares": f"{rows:,} rows",
        "the slowest": slowest,
        "the largest": f"{largest}: {shown[largest].bytes / 1000:.0f} kB, the aim is {AIM_BYTES / 1000:.0f}",
        "open pages": f"{asked.open} cost {cost.opened - cost.closed:.2f} % of a core, the aim is {AIM_OPEN:.0f}"
        f" ({cost.opened:.2f} % with them, {cost.closed:.2f} % without)",
        "matches": _matches_told(asked, cost),
    }
    ours = round(shown[slowest].slow * 1000, 1)
    runs = [round(second * 1000, 1) for second in shown[slowest].times]
    aim = AIM_SECONDS * 1000
    return Figure("pages", ours, "ms", {"aim": aim}, round(ours / aim, 3), runs, notes)


def _matches_told(asked: argparse.Namespace, cost: OpenPagesCost) -> str:
    def listed(numbers: Sequence[float]) -> str:
        return ", ".join(f"{number:,.0f}" for number in numbers)

    ratio = median(
        beside / alone for beside, alone in zip(cost.matches_beside, cost.matches, strict=True) if alone
    )
    return (
        f"{ratio:.2f} of those without pages, median of {asked.turns} turns: {listed(cost.matches_beside)}/s with"
        f" {asked.open} open, {listed(cost.matches)}/s without; the server's processor time for one"
        f" {median(cost.cpu_beside):.0f} and {median(cost.cpu):.0f} µs"
    )
