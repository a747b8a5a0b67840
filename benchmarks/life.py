"""The whole life of a no-op job, compared with other systems on the same machine in the same run."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure, figure
from benchmarks.processes import Spent, cpu, spent_below
from benchmarks.server import served, server_pid
from benchmarks.waits import Waits, medians, told_waits, waits_alone, waits_in
from pilotage.client import Client
from pilotage.wire.jobs import Selection

SUMMARY = "no-op jobs/s through submit, match, confirm, run /bin/true, finish with local pilots"

NO_OP = "/bin/true"
PARSL_WITHIN = 300.0
PARSL = """
import subprocess, sys, time
import parsl
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

@parsl.python_app
def no_op():
    import subprocess
    return subprocess.run(["/bin/true"], check=True).returncode

count, cores = int(sys.argv[1]), int(sys.argv[2])
executor = HighThroughputExecutor(
    address="127.0.0.1", max_workers_per_node=cores, prefetch_capacity=cores, encrypted=False,
    provider=LocalProvider(init_blocks=1, max_blocks=1),
)
with parsl.load(parsl.Config(executors=[executor], usage_tracking=0, initialize_logging=False)):
    [one.result() for one in [no_op() for _ in range(2 * cores)]]
    begun = time.perf_counter()
    [one.result() for one in [no_op() for _ in range(count)]]
    print(count / (time.perf_counter() - begun), flush=True)
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--against", default="", help="another checkout with its .venv, measured in turns")
    parser.add_argument(
        "--alone", type=int, default=5, help="jobs that are submitted one at a time to idle pilots"
    )
    parser.add_argument("--recorded", action="store_true", help="also a server that records, in turns")
    parser.add_argument("--no-peers", action="store_true", help="ours and the spawn limit only")


def run(asked: argparse.Namespace) -> Figure:
    checkouts = {"ours": sys.executable}
    if asked.against:
        checkouts["against"] = str(Path(asked.against).absolute() / ".venv" / "bin" / "python")
    with ExitStack() as stack:
        lives = {name: stack.enter_context(_serving(python)) for name, python in checkouts.items()}
        if asked.recorded:
            lives["recorded"] = stack.enter_context(_serving(sys.executable, recorded=True))
        for _ in range(asked.runs):
            for life in lives.values():
                life.run(asked.jobs)
        for life in lives.values():
            life.alone = waits_alone(life.client, NO_OP, asked.alone)
    peers: dict[str, float] = {}
    notes = {"jobs": f"{asked.jobs:,}", "pilots": str(os.cpu_count()), "job": NO_OP}
    for name, life in lives.items():
        of = "" if name == "ours" else f" of {asked.against if name == 'against' else name}"
        notes["processor time" + of] = life.summary()
        notes["waits" + of] = f"ms, medians: {told_waits(medians(life.waits))}"
        if life.alone:
            notes["waits of a job alone" + of] = f"ms, medians: {told_waits(medians(life.alone))}"
    if asked.recorded:
        peers["recorded"] = median(lives["recorded"].rates)
    if asked.against:
        peers[asked.against] = median(lives["against"].rates)
    systems: dict[str, Callable[[int], float]] = (
        {} if asked.no_peers else {"hyperqueue": _hyperqueue, "parsl": _parsl, "dask": _dask}
    )
    for name, measure in systems.items():
        try:
            peers[name] = round(measure(min(asked.jobs, 3_000)), 1)
        except ImportError as error:
            notes[name] = (
                f"not installed ({error.name}): ./bench installs the optional group `bench` where it can"
            )
        except Exception as error:
            notes[name] = f"does not run here: {' '.join(str(error).split())[:200] or type(error).__name__}"
    alone, on_all = spawn(2_000), spawn_on_all(1_000)
    notes["limit"] = (
        f"one process starts and reaps {alone:,.0f} of them per second, one on each core {on_all:,.0f}"
    )
    return figure("life", "jobs/s", lives["ours"].rates, peers, notes)


@dataclass
class Life:
    """A server with its pilots, and what the jobs of each run cost."""

    client: Client
    server: int
    rates: list[float] = field(default_factory=list)
    costs: list[dict[str, float]] = field(default_factory=list)
    """Microseconds of processor time a job, by the process that spent it."""

    waits: list[Waits] = field(default_factory=list)
    """Of each run."""
    alone: list[Waits] = field(default_factory=list)
    """Of jobs that found idle pilots."""

    def run(self, jobs: int) -> None:
        before, server_before = spent_below(self.server), cpu(self.server)
        begun = time.perf_counter()
        sent = self.client.submit({"executable": NO_OP}, values=range(jobs))
        selection = Selection(submission=sent.submission)
        while (counts := self.client.counts(selection)).final < jobs:
            # Seldom until the end is near: each count costs the server as much as several jobs.
            per_job = (time.perf_counter() - begun) / max(1, counts.final)
            time.sleep(min(max(0.05, (jobs - counts.final) * per_job / 4), 0.5))
        self.rates.append(round(jobs / (time.perf_counter() - begun), 1))
        assert counts.states == {"Done": jobs}, counts
        none = Spent(0.0, 0.0)
        after = spent_below(self.server)
        seconds = {
            "server": cpu(self.server) - server_before,
            "pilot": sum(now.own - before.get(pid, none).own for pid, now in after.items()),
            "payload": sum(now.children - before.get(pid, none).children for pid, now in after.items()),
        }
        self.costs.append({process: spent / jobs * 1e6 for process, spent in seconds.items()})
        self.waits.append(waits_in(self.client, sent.submission))

    def summary(self) -> str:
        """The median run of each process."""
        parts = [
            f"{process} {median(cost[process] for cost in self.costs):,.0f}" for process in self.costs[0]
        ]
        return f"µs a job, median of {len(self.costs)}: {', '.join(parts)}"


@contextmanager
def _serving(python: str, *, recorded: bool = False) -> Iterator[Life]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as stack:
        options = ("--record", str(Path(folder) / "run.record")) if recorded else ()
        client = stack.enter_context(served(Path(folder), python=python, options=options))
        yield Life(client, server_pid(Path(folder)))


def spawn(count: int) -> float:
    """No-op programs per second of one process that does nothing else."""
    begun = time.perf_counter()
    for _ in range(count):
        subprocess.run([NO_OP], check=True)
    return count / (time.perf_counter() - begun)


def spawn_on_all(count: int) -> float:
    """Of as many processes as there are cores, side by side, nothing else being done."""
    code = (
        "import sys; from benchmarks.life import spawn; input(); print(spawn(int(sys.argv[1])), flush=True)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(os.cpu_count() or 1)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return sum(float(process.communicate()[0]) for process in processes)


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


def _parsl(count: int) -> float:
    """In a process of its own: it starts threads and processes that it does not end by itself."""
    if find_spec("parsl") is None:
        raise ImportError(name="parsl")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        # Its workers are programs that it looks for in PATH.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        answer = subprocess.run(
            [sys.executable, "-c", PARSL, str(count), str(os.cpu_count() or 1)], cwd=folder, capture_output=True,
            text=True, timeout=PARSL_WITHIN, env={**os.environ, "PATH": path},
        )  # fmt: skip
    if answer.returncode:
        raise RuntimeError(answer.stderr.strip().rpartition("\n")[2])
    return float(answer.stdout.strip().rpartition("\n")[2])


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
