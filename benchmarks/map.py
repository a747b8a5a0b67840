"""Short calls of a function by `pilotage.Executor` on a local pool, beside other executors of futures."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure
from benchmarks.server import served
from pilotage import Executor

SUMMARY = "seconds of a map of 10,000 calls of 1 ms on a local pool, beside Python's own process pool"

AIM = 60.0
PARSL_WITHIN = 300.0
PARSL = """
import sys, time
import parsl
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

@parsl.python_app
def call(seconds):
    import time
    time.sleep(seconds)

count, seconds, cores = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
executor = HighThroughputExecutor(
    max_workers_per_node=cores, provider=LocalProvider(init_blocks=1, max_blocks=1), encrypted=False,
    address="127.0.0.1",
)
with parsl.load(parsl.Config(executors=[executor], usage_tracking=0, initialize_logging=False)):
    call(seconds).result()
    begun = time.perf_counter()
    for future in [call(seconds) for _ in range(count)]:
        future.result()
    print(time.perf_counter() - begun)
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--ms", type=float, default=1.0, help="of a call")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-peers", action="store_true", help="Python's own pool only")


def run(asked: argparse.Namespace) -> Figure:
    calls, seconds = asked.calls, asked.ms / 1000
    jobs: list[int] = []
    with tempfile.TemporaryDirectory(prefix="bench-map-") as name, served(Path(name)) as client:
        runs = []
        for _ in range(asked.runs):
            before = client.counts().total
            begun = time.perf_counter()
            with Executor(client=client) as executor:
                assert len(list(executor.map(time.sleep, [seconds] * calls))) == calls
            runs.append(round(time.perf_counter() - begun, 2))
            jobs.append(client.counts().total - before)
    notes = {
        "calls": f"{calls:,} of {asked.ms:g} ms, in {', '.join(map(str, jobs))} jobs; the first run starts the pilots"
    }
    peers = {"process pool": round(_pool(calls, seconds), 2)}
    systems: dict[str, Callable[[int, float], float]] = (
        {} if asked.no_peers else {"parsl": _parsl, "dask": _dask}
    )
    for peer, measure in systems.items():
        try:
            peers[peer] = round(measure(calls, seconds), 2)
        except ImportError:
            notes[peer] = "not installed: ./bench installs the optional group `bench` where it can"
        except Exception as error:
            notes[peer] = f"does not run here: {' '.join(str(error).split())[:200] or type(error).__name__}"
    ours = median(runs)
    notes["aim"] = f"{AIM:.0f} s"
    return Figure("map", ours, "s", peers, round(ours / peers["process pool"], 3), runs, notes)


def _pool(calls: int, seconds: float) -> float:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        pool.submit(time.sleep, 0).result()
        begun = time.perf_counter()
        list(pool.map(time.sleep, [seconds] * calls, chunksize=100))
        return time.perf_counter() - begun


def _parsl(calls: int, seconds: float) -> float:
    """In a process of its own: it starts threads and processes that it does not end by itself."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        words = [sys.executable, "-c", PARSL, str(calls), str(seconds), str(os.cpu_count() or 1)]
        answer = subprocess.run(
            words,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PARSL_WITHIN,
            env={**os.environ, "PATH": path},
        )
    if "No module named 'parsl'" in answer.stderr:
        raise ImportError(name="parsl")
    if answer.returncode:
        raise RuntimeError(answer.stderr.strip().rpartition("\n")[2])
    return float(answer.stdout.strip().rpartition("\n")[2])


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # its workers complain when they are closed
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _dask(calls: int, seconds: float) -> float:
    from distributed import Client, LocalCluster

    with (
        _quiet(),
        LocalCluster(n_workers=os.cpu_count() or 1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        begun = time.perf_counter()
        client.gather(client.map(time.sleep, [seconds] * calls, pure=False))
        return time.perf_counter() - begun
