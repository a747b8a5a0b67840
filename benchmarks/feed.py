"""Clients that wait at the change feed: their idle cost for the server, and how soon a change reaches them."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure, part
from benchmarks.processes import cpu
from benchmarks.server import served, server_pid
from pilotage.client import Client
from pilotage.wire.changes import ChangesQuery
from pilotage.wire.limits import LONGEST_POLL
from pilotage.wire.submissions import SubmitResponse

SUMMARY = "% of a core for idle listeners at the change feed, and the ms until a change reaches them"

SETTLE = 20.0
"""Seconds for the work of a server that has just started."""
SPREAD = 20
"""Seconds in which the listeners come."""
WAIT = LONGEST_POLL
"""Seconds of a long poll, as the client asks for."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listeners", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=110.0, help="of the idle time")
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument(
        "--all", action="store_true", help="each listener waits for all changes, not for its own submission"
    )


def run(asked: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-feed-") as name, served(Path(name)) as client:
        process = server_pid(Path(name))
        token = (Path(name) / "home" / "token").read_text().strip()
        time.sleep(SETTLE)
        kept = [_kept_job(client) for _ in range(asked.changes if asked.all else asked.listeners)]
        alone = _cost(process, asked.seconds / 2)
        idle, delays = asyncio.run(_listen(client, process, token, asked, kept))
    delays.sort()
    notes = {
        "listeners": f"{asked.listeners:,}, each for {'all jobs' if asked.all else 'a submission of its own'};"
        f" each asks again after {WAIT:.0f} s without a change",
        "the server without listeners": f"{alone:.2f} % of a core",
        "a change reaches a listener": f"{median(delays) * 1000:.0f} ms after the answer to the call (median),"
        f" {part(delays, 0.95) * 1000:.0f} ms (95 %)",
    }
    ours = round(idle - alone, 2)
    return Figure("feed", ours, "% of a core", {"aim": 1.0}, ours, [round(idle, 2), round(alone, 2)], notes)


def _kept_job(client: Client) -> SubmitResponse:
    """A job that no pilot takes."""
    return client.submit({"executable": "/bin/true", "tags": ["nowhere"]})


def _cost(process: int, seconds: float) -> float:
    """The processor time of the server in % of a core."""
    before = cpu(process)
    time.sleep(seconds)
    return (cpu(process) - before) / seconds * 100


async def _listen(
    client: Client, process: int, token: str, asked: argparse.Namespace, kept: Sequence[SubmitResponse]
) -> tuple[float, list[float]]:
    """(% of a core while nothing changes, seconds until each listener has heard of each of its changes).

    Changes: kept jobs are killed.
    """
    cursor = client.read_changes(ChangesQuery()).cursor
    heard: asyncio.Queue[float] = asyncio.Queue()
    listeners = [
        asyncio.create_task(_follow(client.url, token, cursor, condition, number / asked.listeners, heard))
        for number, condition in enumerate(_conditions(asked, kept))
    ]
    await asyncio.sleep(SPREAD + 5)
    idle = await asyncio.to_thread(_cost, process, asked.seconds)
    delays = []
    told = asked.listeners if asked.all else 1
    for answer in kept[:: len(kept) // asked.changes][: asked.changes]:
        await asyncio.to_thread(client.kill, [answer.first])
        begun = time.monotonic()
        delays += [await heard.get() - begun for _ in range(told)]
        await asyncio.sleep(1)
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    return idle, delays


def _conditions(asked: argparse.Namespace, kept: Sequence[SubmitResponse]) -> list[str]:
    """The changes that each listener waits for, as a part of a query."""
    if asked.all:
        return [""] * asked.listeners
    return [f"&submission={answer.submission}" for answer in kept]


async def _follow(
    url: str, token: str, cursor: str, condition: str, phase: float, heard: asyncio.Queue[float]
) -> None:
    """One listener over one connection: the polls of a client, without its processor time.

    Its first poll ends after a part of the time of one: so the polls of all are spread over that time.
    """
    host, port = url.removeprefix("http://").rsplit(":", 1)
    await asyncio.sleep(phase * SPREAD)
    reader, writer = await asyncio.open_connection(host, int(port))
    wait = phase * WAIT
    try:
        while True:
            target = f"/v1/changes?after={cursor}&wait={wait:.3f}{condition}"
            writer.write(
                f"GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            body = await _body(reader)
            wait, cursor = WAIT, body.rpartition('"cursor":"')[2].partition('"')[0]
            if '"changes":[]' not in body:
                heard.put_nowait(time.monotonic())
    finally:
        writer.close()


async def _body(reader: asyncio.StreamReader) -> str:
    """The body of an answer, whole or in chunks."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length:" in head:
        return (
            await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
        ).decode()
    body = b""
    while length := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(length + 2))[:-2]
    await reader.readexactly(2)
    return body.decode()
