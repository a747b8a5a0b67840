"""A server begins again with many waiting jobs: how long after the first answer to a pilot is the index whole."""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.filled import fill, store_at
from benchmarks.match import pool_told, store_options
from benchmarks.processes import memory
from benchmarks.server import index_waiting, start
from benchmarks.shapes import shape_of

SUMMARY = "s from the start of a server to the whole index of waiting jobs; reports of pilots before"

WITHIN = 300.0
TOKEN = "token 0"


def options(parser: argparse.ArgumentParser) -> None:
    store_options(parser)
    parser.add_argument("--runs", type=int, default=3)


def run(asked: argparse.Namespace) -> Figure:
    shape = shape_of(asked)
    with (
        tempfile.TemporaryDirectory(prefix="bench-restart-") as name,
        store_at(Path(name), asked.store) as store,
    ):
        folder = Path(name)
        fill(store, shape, asked.rule, [TOKEN], interleaved=asked.interleaved)
        answered, whole, most = [], [], 0
        for _ in range(asked.runs):
            url = f"http://127.0.0.1:{_free_port()}"
            begun = time.perf_counter()
            process = start(folder, store.url, "--port", url.rpartition(":")[2])
            try:
                _until(lambda url=url: _reported(url), process, folder)
                answered.append(time.perf_counter() - begun)
                _until(lambda url=url: index_waiting(url) == shape.jobs, process, folder)
                whole.append(time.perf_counter() - begun)
                most = memory(process.pid, "VmHWM")
            finally:
                # As in a crash: nothing was put in order for the next start.
                process.kill()
                process.wait()
    rebuilt = sorted(end - begun for begun, end in zip(answered, whole, strict=True))
    ours = rebuilt[len(rebuilt) // 2]
    notes = {
        "pool": pool_told(asked, store, shape),
        "reports of pilots": f"answered after {', '.join(f'{one:.2f}' for one in answered)} s",
        "index": f"whole {', '.join(f'{one:.2f}' for one in rebuilt)} s later,"
        f" {', '.join(f'{one:.2f}' for one in whole)} s after the start of the process",
        "an empty server": f"answers after {_empty():.2f} s",
        "memory": f"{most} MB at most",
    }
    limit = 15.0 if shape.jobs > 2_000_000 else 3.0
    runs = [round(one, 2) for one in rebuilt]
    return Figure("restart", round(ours, 2), "s", {"aim": limit}, round(ours / limit, 3), runs, notes)


def _empty() -> float:
    with tempfile.TemporaryDirectory(prefix="bench-restart-") as name:
        folder = Path(name)
        (folder / "home").mkdir(mode=0o700)
        url = f"http://127.0.0.1:{_free_port()}"
        begun = time.perf_counter()
        process = start(folder, "", "--port", url.rpartition(":")[2])
        try:
            _until(lambda: _reported(url) is not None, process, folder)
            return time.perf_counter() - begun
        finally:
            process.kill()
            process.wait()


def _until(true: Callable[[], object], process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + WITHIN
    while not true():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError((folder / "server.log").read_text())
        time.sleep(0.01)


def _reported(url: str) -> bool | None:
    """Whether a heartbeat of the pilot was answered as it should; None: nobody answers, False: something else came."""
    request = urllib.request.Request(
        f"{url}/v1/pilot/exchange",
        json.dumps({"incarnation": 1}).encode(),
        {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30):
            return True
    except urllib.error.HTTPError:
        return False
    except OSError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
