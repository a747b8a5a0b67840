"""Clients that wait at the change feed: their idle cost for the server, and how soon a change reaches them."""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

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
REST = 5.0
"""Seconds after the listeners have come or left, until the server is measured."""
WAIT = LONGEST_POLL
"""Seconds of a long poll, as the client asks for."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listeners", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=3, help="without and with listeners")
    parser.add_argument("--seconds", type=float, default=60.0, help="of idle time in each half of a turn")
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument(
        "--all", action="store_true", help="each listener waits for all changes, not for its own submission"
    )


def run(asked: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-feed-") as name, served(Path(name)) as client:
        time.sleep(SETTLE)
        kept = [_kept_job(client) for _ in range(asked.changes if asked.all else asked.listeners)]
        token = (Path(name) / "home" / "token").read_text().strip()
        turns, delays = asyncio.run(_take_turns(client, server_pid(Path(name)), token, asked, kept))
    since_answers, since_calls = (sorted(column) for column in zip(*delays, strict=True))
    differences = [round(turn.idle - turn.alone, 2) for turn in turns]
    notes = {
        "listeners": f"{asked.listeners:,}, each for {'all jobs' if asked.all else 'a submission of its own'};"
        f" each asks again after {WAIT:.0f} s without a change",
        "the server": f"{median(turn.alone for turn in turns):.2f} % of a core without listeners,"
        f" {median(turn.idle for turn in turns):.2f} % with them (medians)",
        "all listeners on this side": f"{median(turn.clients for turn in turns):.2f} % of a core, not counted",
        "a change reaches a listener": f"{part(since_answers, 0.95) * 1000:.0f} ms after the answer to the call (95 %),"
        f" {part(since_calls, 0.95) * 1000:.0f} ms after the call began;"
        f" medians {median(since_answers) * 1000:.0f} and {median(since_calls) * 1000:.0f} ms",
    }
    ours = round(median(differences), 2)
    return Figure("feed", ours, "% of a core", {"aim": 1.0}, ours, differences, notes)


def _kept_job(client: Client) -> SubmitResponse:
    """A job that no pilot takes."""
    return client.submit({"executable": "/bin/true", "tags": ["nowhere"]})


class _Turn(NamedTuple):
    """Processor time in % of a core."""

    alone: float
    """Of the server without listeners."""
    idle: float
    """Of the server with listeners that hear nothing."""
    clients: float
    """Of this process meanwhile."""


async def _cost(process: int, seconds: float) -> float:
    """The processor time of a process in % of a core."""
    before = cpu(process)
    await asyncio.sleep(seconds)
    return (cpu(process) - before) / seconds * 100


async def _take_turns(
    client: Client, process: int, token: str, asked: argparse.Namespace, kept: Sequence[SubmitResponse]
) -> tuple[list[_Turn], list[tuple[float, float]]]:
    """The turns, and the delays of `_change`, which come in the last turn."""
    turns: list[_Turn] = []
    delays: list[tuple[float, float]] = []
    while len(turns) < asked.turns:
        await asyncio.sleep(REST)
        alone = await _cost(process, asked.seconds)
        cursor = client.read_changes(ChangesQuery()).cursor
        heard: asyncio.Queue[float] = asyncio.Queue()
        listeners = [
            asyncio.create_task(
                _follow(client.url, token, cursor, condition, number / asked.listeners, heard)
            )
            for number, condition in enumerate(_conditions(asked, kept))
        ]
        await asyncio.sleep(SPREAD + REST)
        idle, clients = await asyncio.gather(_cost(process, asked.seconds), _cost(os.getpid(), asked.seconds))
        turns.append(_Turn(alone, idle, clients))
        if len(turns) == asked.turns:
            delays = await _change(client, asked, kept, heard)
        for listener in listeners:
            listener.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
    return turns, delays


async def _change(
    client: Client, asked: argparse.Namespace, kept: Sequence[SubmitResponse], heard: asyncio.Queue[float]
) -> list[tuple[float, float]]:
    """Kill kept jobs. Returns the seconds until each listener has heard of it, after the answer and after the call."""
    delays = []
    for answer in kept[:: len(kept) // asked.changes][: asked.changes]:
        called = time.monotonic()
        await asyncio.to_thread(client.kill, [answer.first])
        answered = time.monotonic()
        for _ in range(asked.listeners if asked.all else 1):
            at = await heard.get()
            delays.append((at - answered, at - called))
        await asyncio.sleep(1)
    return delays


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
