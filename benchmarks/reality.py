"""The same jobs by real pilots and by the twin: waits, and core-seconds of the groups.

Three owners of two groups send short jobs to a real server with real pilots on this machine, for a while faster than
they run. `pilotage twin record` writes the history, and the twin runs it without the times at which jobs started.
"""

from __future__ import annotations

import argparse
import getpass
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.distributions import draw_waits, kolmogorov, told_quantiles
from benchmarks.figure import Figure
from benchmarks.server import served
from pilotage.client import Client
from pilotage.core.policy import parse
from pilotage.twin.plan import TwinPlan
from pilotage.twin.record import read_record
from pilotage.twin.result import TwinResult
from pilotage.twin.run import run_twin
from pilotage.twin.served_policy import prepare_recorded_jobs
from pilotage.wire.jobs import Selection

SUMMARY = "Kolmogorov distance of the waits of real jobs and of the twin's, and core-seconds of the groups"

OWNERS = {"ada": "physics", "carol": "physics", "bob": "biology"}
SHORTEST, LONGEST = 1.0, 5.0
"""Seconds of a job."""
LOAD = 1.4
"""Work that comes in a second, of the work that the cores can do."""
AIM = 0.1
AIM_USE = 0.02


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument(
        "--cores", type=int, default=4, help="of the local CE; jobs sleep, so they need no real ones"
    )
    parser.add_argument("--seeds", type=int, default=5, help="runs of the twin")
    parser.add_argument("--picture", type=Path, help="file for the picture (SVG)")
    parser.add_argument("--keep", type=Path, help="new file for the record")


@dataclass(frozen=True)
class Ran:
    """One job that ran."""

    group: str
    submitted: float
    started: float
    ended: float


def run(asked: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-reality-") as name:
        record = asked.keep or Path(name) / "record.gz"
        real = _real_runs(Path(name), record, asked)
        twins = [_twin_runs(record, seed) for seed in range(1, asked.seeds + 1)]
    waits = [job.started - job.submitted for job in real]
    simulated = [[job.started - job.submitted for job in jobs] for jobs in twins]
    together = [wait for run in simulated for wait in run]
    distances = [round(kolmogorov(waits, run), 3) for run in simulated]
    notes = {
        "jobs": f"{len(real)} of {len(OWNERS)} owners, {SHORTEST:g} to {LONGEST:g} s each, {asked.cores} cores",
        "waits, real": told_quantiles(waits),
        "waits, twin": told_quantiles(together),
        "distance with all seeds together": f"{kolmogorov(waits, together):.3f}",
        "between the seeds": f"{_between(simulated):.3f}",
        **_use_notes(real, twins),
        "aim": f"distance below {AIM:g}, core-seconds within {AIM_USE:.0%}",
    }
    if asked.picture is not None:
        curves = {"real pilots": waits, f"twin, {asked.seeds} seeds": together}
        draw_waits("Real pilots and the twin", f"{len(real)} jobs of the same record", curves, asked.picture)
    distance = round(statistics.median(distances), 3)
    return Figure("reality", distance, "", {"aim": AIM}, round(distance / AIM, 3), distances, notes)


def _real_runs(folder: Path, record: Path, asked: argparse.Namespace) -> list[Ran]:
    """Let real pilots run the jobs, and record them."""
    begun = time.time()
    with ExitStack() as stack:
        client = stack.enter_context(served(folder))
        client.apply_policy(_policy(asked.cores))
        people = {owner: stack.enter_context(_person(client, folder, owner)) for owner in OWNERS}
        _submit(people, asked)
        while client.counts(Selection()).final < asked.jobs:
            time.sleep(0.5)
        command = [sys.executable, "-m", "pilotage.main", "twin", "record", "--names", "--out", str(record)]
        words = ["--since", f"{time.time() - begun:.0f}s", "--home", str(folder / "home")]
        subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)
        return [
            Ran(job.group, job.submitted, job.started or job.submitted, job.ended or job.submitted)
            for job in client.jobs(Selection())
        ]


def _policy(cores: int) -> str:
    people = "".join(f"[users.{owner}]\ngroups = ['{group}']\n" for owner, group in OWNERS.items())
    return f"""
[groups.home]
properties = ["NORMAL_USER", "ADMINISTRATOR"]
[groups.physics]
share = 3000
[groups.biology]
share = 1000
[users.'{getpass.getuser()}']
groups = ["home"]
{people}
[sites.here]
[ces.local]
site = "here"
type = "local"
owners = "any"
isolation = "userns"
processors = {cores}
quantum = 5
memory = 16000
"""


def _person(client: Client, folder: Path, owner: str) -> Client:
    token = folder / owner
    token.touch(0o600)
    token.write_text(client.create_token(owner).token)
    return Client.connect(home=folder / "home", token_file=token)


def _submit(people: Mapping[str, Client], asked: argparse.Namespace) -> None:
    """Submit the jobs one by one, at times that chance has drawn."""
    rng = Random(1)
    mean = (SHORTEST + LONGEST) / 2 / asked.cores / LOAD
    at = time.monotonic()
    for _ in range(asked.jobs):
        at += rng.expovariate(1 / mean)
        time.sleep(max(0.0, at - time.monotonic()))
        owner = rng.choice(list(OWNERS))
        seconds = rng.uniform(SHORTEST, LONGEST)
        people[owner].submit({"executable": "sleep", "arguments": [f"{seconds:.2f}"]})


def _twin_runs(file: Path, seed: int) -> list[Ran]:
    record = read_record(file)
    policy = parse(record.header.policy)
    jobs = prepare_recorded_jobs(record.jobs, {"": policy}, record.ces, None).jobs
    plan = TwinPlan(jobs, policy, record.header.policy, record.ces, seed)
    return _ran(run_twin(plan, lambda progress: None))


def _ran(result: TwinResult) -> list[Ran]:
    rows, groups = result.jobs.rows, result.jobs.groups.names
    return [
        Ran(groups[row["group"]], float(row["submit"]), float(row["start"]), float(row["end"]))
        for row in rows
    ]


def _use_notes(real: Sequence[Ran], twins: Sequence[Sequence[Ran]]) -> dict[str, str]:
    """The core-seconds of each group until the last submission; later all jobs run in any case."""
    notes = {}
    for group in sorted(set(OWNERS.values())):
        ours = _used(real, group)
        runs = [_used(jobs, group) for jobs in twins]
        differences = [run / ours - 1 for run in runs]
        notes[f"core-seconds of {group}"] = (
            f"real {ours:.0f}, twin {statistics.median(runs):.0f}:"
            f" {statistics.median(differences):+.1%} ({min(differences):+.1%} to {max(differences):+.1%})"
        )
    return notes


def _used(jobs: Sequence[Ran], group: str) -> float:
    last = max(job.submitted for job in jobs)
    return sum(max(0.0, min(job.ended, last) - min(job.started, last)) for job in jobs if job.group == group)


def _between(runs: Sequence[Sequence[float]]) -> float:
    """The mean distance of two runs of the twin: less cannot be asked of one real run."""
    pairs = [kolmogorov(one, other) for place, one in enumerate(runs) for other in runs[:place]]
    return statistics.mean(pairs) if pairs else 0.0
