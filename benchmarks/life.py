"""The whole life of a no-op job, with what other systems need for theirs on the same machine in the same call."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.figure import Figure, figure
from benchmarks.server import served
from pilotage.wire.people import Selection

NO_OP = "/bin/true"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-peers", action="store_true", help="ours and the spawn limit only")


def run(asked: argparse.Namespace) -> Figure:
    rates = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, served(Path(folder)) as client:
        for _ in range(asked.runs):
            begun = time.perf_counter()
            sent = client.submit({"executable": NO_OP}, values=range(asked.jobs))
            selection = Selection(submission=sent.submission)
            while (counts := client.counts(selection)).final < asked.jobs:
                time.sleep(0.05)
            rates.append(round(asked.jobs / (time.perf_counter() - begun), 1))
            assert counts.states == {"Done": asked.jobs}, counts
    peers: dict[str, float] = {}
    notes = {"jobs": f"{asked.jobs:,}", "pilots": str(os.cpu_count()), "job": NO_OP}
    systems: dict[str, Callable[[int], float]] = (
        {} if asked.no_peers else {"hyperqueue": _hyperqueue, "dask": _dask}
    )
    for name, measure in systems.items():
        try:
            peers[name] = round(measure(min(asked.jobs, 3_000)), 1)
        except ImportError as error:
            notes[name] = (
                f"not installed ({error.name}): ./bench installs the optional group `bench` where it can"
            )
    notes["limit"] = f"one process of this machine starts and reaps {_spawn(2_000):,.0f} of them per second"
    return figure("life", "jobs/s", rates, peers, notes)


def _spawn(count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        subprocess.run([NO_OP], check=True)
    return count / (time.perf_counter() - begun)


def _hyperqueue(count: int) -> float:
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        contextlib.chdir(folder),
        LocalCluster() as cluster,
    ):
        cluster.start_worker(WorkerConfig(cores=os.cpu_count() or 1))
        client = cluster.client()
        begun = time.perf_counter()
        job = Job(max_fails=0)
        for _ in range(count):
            job.program([NO_OP], stdout=None, stderr=None)
        client.wait_for_jobs([client.submit(job)])
        return count / (time.perf_counter() - begun)


def _dask(count: int) -> float:
    from distributed import Client, LocalCluster

    logging.disable(logging.CRITICAL)  # its workers complain when they are closed
    cores = os.cpu_count() or 1
    cluster = LocalCluster(n_workers=cores, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        begun = time.perf_counter()
        client.gather(client.map(_no_op, range(count), pure=False))
        return count / (time.perf_counter() - begun)


def _no_op(_: int) -> int:
    return subprocess.run([NO_OP], check=True).returncode
