"""Submission and release of pilots in a real HTCondor, in turns with a plain `condor_submit` of as many jobs."""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable

from tests import htcondor

from benchmarks.figure import Figure
from benchmarks.shapes import Absent
from benchmarks.slurm import pilot_script
from pilotage.core.policy.batch_systems.htcondor import HtcondorOptions
from pilotage.outside.batch.adapter import BatchSubmission, Shape
from pilotage.outside.batch.htcondor import commands, output
from pilotage.outside.batch.htcondor.adapter import HtcondorBatch
from pilotage.outside.batch.runner import CommandResult, LocalRunner

SUMMARY = "s for 1,000 pilots given to HTCondor, held and released, beside plain condor_submit"

TIMEOUT = 600.0
"""Seconds for one command: on a loaded machine 10,000 jobs are submitted in more than a minute."""

AIM = 2.0
"""Seconds for 1,000 pilots."""
CLUSTER = 10_000
"""Jobs of one cluster of the long listing."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pilots", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--listed", type=int, default=50_000, help="pilots of one long listing; 0: none")


def run(asked: argparse.Namespace) -> Figure:
    if reason := htcondor.missing():
        raise Absent(reason)
    # No machine starts a job, so that nothing but the schedd is measured.
    with htcondor.condor_pool(START="False", MAX_JOBS_PER_OWNER="200000") as pool:
        ours, plain = [], []
        runner = LocalRunner(pool.environment)
        batch = HtcondorBatch(runner, htcondor.ACCOUNT, HtcondorOptions(), TIMEOUT)
        for turn in range(asked.turns):
            stamp = f"pilotage-bench{turn}"
            ours.append(_measure(lambda stamp=stamp: _submit_pilots(batch, stamp, asked.pilots)))
            pool.cancel_all()
            plain.append(_measure(lambda: _submit_plainly(pool, asked.pilots)))
            pool.cancel_all()
        listing = _list(batch, runner, asked.listed) if asked.listed else ""
    seconds, raw = statistics.median(ours), statistics.median(plain)
    notes = {
        "ours": f"{min(ours):.3f} to {max(ours):.3f} s: script, submission, held, and release by stamp",
        "plain": f"{min(plain):.3f} to {max(plain):.3f} s: one condor_submit of as many jobs",
        "pilots": f"{asked.pilots:,}",
        **({"listing": listing} if listing else {}),
    }
    times = [round(value, 3) for value in ours]
    limits = {"aim": AIM, "plain condor_submit": round(raw, 3)}
    return Figure("htcondor", round(seconds, 3), "s", limits, round(seconds / raw, 2), times, notes)


def _submit_pilots(batch: HtcondorBatch, stamp: str, count: int) -> None:
    script = pilot_script(stamp, HtcondorBatch.index_variable, HtcondorBatch.pilot_options)
    batch.submit(BatchSubmission(stamp, count, Shape(1, 100, 600.0), script))
    batch.release([stamp])


def _submit_plainly(pool: htcondor.CondorPool, count: int) -> None:
    lines = "executable = /bin/sleep\narguments = 600\ntransfer_executable = false\ninitialdir = /\n"
    pool.call("condor_submit", "-terse", "-", text=f"{lines}queue {count}\n").check_returncode()


def _list(batch: HtcondorBatch, runner: LocalRunner, count: int) -> str:
    """The time of one listing of so many held pilots beside its command alone, and the wait of another thread."""
    for number in range(count // CLUSTER):
        batch.submit(BatchSubmission(f"pilotage-list{number}", CLUSTER, Shape(1, 100, 600.0), "#!/bin/sh\n"))
    options = HtcondorOptions()
    command = commands.list_jobs(commands.of_account(htcondor.ACCOUNT), options)
    answer = CommandResult(None)

    def ask() -> None:
        nonlocal answer
        answer = runner.run(command, timeout=TIMEOUT)

    raw = _measure(ask)
    reading = time.process_time()
    found = len(tuple(output.read_listing(answer.output)))
    reading = time.process_time() - reading
    begun = time.perf_counter()
    thread = threading.Thread(target=batch.list_pilots)
    thread.start()
    longest, last = 0.0, time.perf_counter()
    while thread.is_alive():
        time.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    seconds = time.perf_counter() - begun
    return (
        f"{found:,} pilots in {seconds:.2f} s beside {raw:.2f} s of condor_q alone; reading its output takes"
        f" {reading:.2f} s of a processor; another thread waited for {longest * 1000:.0f} ms at most"
    )


def _measure(call: Callable[[], None]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
