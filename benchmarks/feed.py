"""Clients that wait at the change feed: their idle cost for the server, and how soon a change reaches them."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure, part
from benchmarks.processes import cpu
from benchmarks.server import served, server_pid
from pilotage.client import Client
from pilotage.wire.changes import ChangesQuery
from pilotage.wire.limits import LONGEST_POLL

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


def run(asked: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-feed-") as name, served(Path(name)) as client:
        process = server_pid(Path(name))
        token = (Path(name) / "home" / "token").read_text().strip()
        time.sleep(SETTLE)
        alone = _cost(process, asked.seconds / 2)
        idle, delays = asyncio.run(_listen(client, process, token, asked))
    delays.sort()
    notes = {
        "listeners": f"{asked.listeners:,}, each asks again after {WAIT:.0f} s without a change",
        "the server without listeners": f"{alone:.2f} % of a core",
        "a change reaches a listener": f"{median(delays) * 1000:.0f} ms after the answer to its submission (median),"
        f" {part(delays, 0.95) * 1000:.0f} ms (95 %)",
    }
    ours = round(idle - alone, 2)
    return Figure("feed", ours, "% of a core", {"aim": 1.0}, ours, [round(idle, 2), round(alone, 2)], notes)


def _cost(process: int, seconds: float) -> float:
    """The processor time of the server in % of a core."""
    before = cpu(process)
    time.sleep(seconds)
    return (cpu(process) - before) / seconds * 100


async def _listen(
    client: Client, process: int, token: str, asked: argparse.Namespace
) -> tuple[float, list[float]]:
    """(% of a core while nothing changes, seconds until each listener has heard of each change)."""
    cursor = client.read_changes(ChangesQuery()).cursor
    heard: asyncio.Queue[float] = asyncio.Queue()
    listeners = [
        asyncio.create_task(_follow(client.url, token, cursor, number / asked.listeners, heard))
        for number in range(asked.listeners)
    ]
    await asyncio.sleep(SPREAD + 5)
    idle = await asyncio.to_thread(_cost, process, asked.seconds)
    delays = []
    for _ in range(asked.changes):
        await asyncio.to_thread(client.submit, {"executable": "/bin/true", "tags": ["nowhere"]})
        begun = time.monotonic()
        delays += [await heard.get() - begun for _ in listeners]
        await asyncio.sleep(1)
    for listener in listeners:
        listener.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    return idle, delays


async def _follow(url: str, token: str, cursor: str, phase: float, heard: asyncio.Queue[float]) -> None:
    """One listener over one connection: the polls of a client, without its processor time.

    Its first poll ends after a part of the time of one: so the polls of all are spread over that time.
    """
    host, port = url.removeprefix("http://").rsplit(":", 1)
    await asyncio.sleep(phase * SPREAD)
    reader, writer = await asyncio.open_connection(host, int(port))
    wait = phase * WAIT
    try:
        while True:
            target = f"/v1/changes?after={cursor}&wait={wait}"
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
