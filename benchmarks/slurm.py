"""Submission and release of an array of pilots in a real Slurm, in turns with a plain `sbatch` of an equal array."""

from __future__ import annotations

import argparse
import getpass
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port

from benchmarks.figure import Figure
from benchmarks.shapes import Absent
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.runner import LocalRunner
from pilotage.outside.batch.script import PilotSettings, pilot_program, render
from pilotage.outside.batch.slurm.adapter import SlurmBatch

SUMMARY = "s for 1,000 pilots given to Slurm, held and released, beside plain sbatch"

CLUSTER = Path(__file__).parents[1] / "examples/slurm/cluster"
AIM = 1.0
"""Seconds for 1,000 pilots."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pilots", type=int, default=1000, help="pilots of the array, at most 1,001")
    parser.add_argument("--turns", type=int, default=9)


def run(asked: argparse.Namespace) -> Figure:
    with small_slurm() as environment:
        _run(environment, "scontrol", "update", "partitionname=short", "state=down")
        ours, plain = [], []
        batch = SlurmBatch(LocalRunner(environment), getpass.getuser(), SlurmOptions())
        for turn in range(asked.turns):
            stamp = f"pilotage-bench{turn}"
            ours.append(_measure(lambda stamp=stamp: _submit_pilots(batch, stamp, asked.pilots)))
            _cancel_all(environment)
            plain.append(_measure(lambda: _submit_plainly(environment, asked.pilots)))
            _cancel_all(environment)
    seconds, raw = statistics.median(ours), statistics.median(plain)
    notes = {
        "ours": f"{min(ours):.3f} to {max(ours):.3f} s: submission, held, and release by name",
        "plain": f"{min(plain):.3f} to {max(plain):.3f} s: one sbatch of an equal array",
        "pilots": f"{asked.pilots:,}",
    }
    times = [round(value, 3) for value in ours]
    limits = {"aim": AIM, "plain sbatch": round(raw, 3)}
    return Figure("slurm", round(seconds, 3), "s", limits, round(seconds / raw, 2), times, notes)


@contextmanager
def small_slurm(**settings: str) -> Iterator[dict[str, str]]:
    """The environment for commands of a small Slurm on free ports. `settings`: variables of examples/slurm/cluster."""
    if os.geteuid() != 0:
        raise Absent("only root can start the daemons of Slurm")
    folder = tempfile.mkdtemp(prefix="bench-slurm-")
    try:
        settings = {"PORTS": " ".join(str(free_port()) for _ in range(3)), **settings}
        started = subprocess.run(
            [CLUSTER, "up", folder], env=os.environ | settings, capture_output=True, text=True, check=False
        )
        if started.returncode:
            raise Absent(f"Slurm did not start: {started.stderr.strip()}")
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        yield {"PATH": path, "HOME": folder, "SLURM_CONF": f"{folder}/slurm.conf"}
    finally:
        subprocess.run([CLUSTER, "down", folder], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _submit_pilots(batch: SlurmBatch, stamp: str, count: int) -> None:
    batch.submit(BatchSubmission(stamp, count, Shape(1, 100, 600.0), _script(stamp)))
    batch.release([stamp])


def _submit_plainly(environment: dict[str, str], count: int) -> None:
    _run(environment, "sbatch", f"--array=0-{count - 1}", "--mem=100", "--time=10", text=_script("plain"))


def pilot_script(stamp: str, index_variable: str, node_options: Mapping[str, str]) -> str:
    """The batch script of pilots, with the whole program. The last two: of the adapter."""
    settings = PilotSettings(
        servers=("https://head.example.org:8443",),
        secret="of nobody",
        index=0,
        processors=1,
        memory=100,
        stamp=stamp,
        index_variable=index_variable,
        node_options=node_options,
    )
    return render(pilot_program(), settings)


def _script(stamp: str) -> str:
    return pilot_script(stamp, SlurmBatch.index_variable, SlurmBatch.pilot_options)


def _measure(call: Callable[[], None]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _cancel_all(environment: dict[str, str]) -> None:
    """Cancel all jobs, and wait until none is listed."""
    _run(environment, "scancel", f"--user={getpass.getuser()}")
    while _run(environment, "squeue", "-h"):
        time.sleep(0.05)


def _run(environment: dict[str, str], *command: str, text: str = "") -> str:
    done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=True)
    return done.stdout
