"""Runs of the twin, each in a process of its own, as many at once as there are cores."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Final

from pilotage.core.errors import PilotageError
from pilotage.core.jobs.durations import format_duration
from pilotage.core.policy import parse
from pilotage.twin.ces import TwinCe
from pilotage.twin.measures import RunMeasures, measure_run
from pilotage.twin.plan import TwinPlan, TwinProgress
from pilotage.twin.result import TwinResult
from pilotage.twin.workload import TraceJobs

MESSAGE_PERIOD: Final = 0.5
"""Seconds between two messages of a run about its progress."""

Advance = Callable[[int, int, str], None]
Simulate = Callable[[TwinPlan, Callable[[TwinProgress], None]], TwinResult]
"""Runs a plan. A function of a module, as it goes to other processes."""


@dataclass(frozen=True, slots=True)
class SeededRun:
    """One policy with one seed."""

    policy: str
    """The name of the policy."""
    text: str
    seed: int


@dataclass(slots=True)
class FinishedRuns:
    """The figures of the runs that have finished, and the reasons of the others."""

    measures: dict[SeededRun, RunMeasures] = field(default_factory=dict)
    failures: dict[SeededRun, str] = field(default_factory=dict)
    interrupted: bool = False
    out_of_time: bool = False


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The input that all runs share."""

    jobs: TraceJobs
    ces: tuple[TwinCe, ...]
    until: float | None
    simulate: Simulate


def run_seeds(
    runs: Sequence[SeededRun],
    inputs: RunInputs,
    processes: int,
    advance: Advance,
    *,
    tells_time: bool = False,
    within: float = inf,
) -> FinishedRuns:
    """Run all; Ctrl-C ends the open ones, and so does the time `within`. The finished ones are kept in any case.

    With `tells_time`, the progress has the time that is left.
    """
    deadline = time.monotonic() + within
    pool = _RunProcesses(inputs, len(runs), advance, tells_time)
    open_runs = list(runs)
    try:
        while open_runs or pool.running:
            if time.monotonic() >= deadline:
                pool.finished.out_of_time = True
                break
            while open_runs and len(pool.running) < processes:
                pool.start(open_runs.pop(0))
            pool.listen()
    except KeyboardInterrupt:
        pool.finished.interrupted = True
    finally:
        pool.end()
    return pool.finished


class _RunProcesses:
    """The processes of the open runs, and their messages."""

    def __init__(self, inputs: RunInputs, total: int, advance: Advance, tells_time: bool) -> None:
        self._inputs, self._total, self._advance = inputs, total, advance
        self._tells_time = tells_time
        self._began = time.monotonic()
        self._parts: dict[SeededRun, float] = {}
        """How far each run is, from 0 to 1."""
        self.running: dict[Connection, tuple[SpawnProcess, SeededRun]] = {}
        self.finished = FinishedRuns()

    def start(self, run: SeededRun) -> None:
        context = get_context("spawn")
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_run_in_child, args=(there, run, self._inputs), daemon=True)
        with _interrupts_blocked():
            process.start()
            there.close()
            self.running[here] = (process, run)

    def listen(self) -> None:
        """Wait for messages of the runs, and take them."""
        for connection in wait(list(self.running), timeout=MESSAGE_PERIOD):
            assert isinstance(connection, Connection)
            process, run = self.running[connection]
            try:
                message = connection.recv()
            except EOFError:
                process.join()
                message = f"its process ended with code {process.exitcode}"
            if isinstance(message, float):
                self._parts[run] = message
            else:
                self._close(connection, message)
        self._tell()

    def _close(self, connection: Connection, message: RunMeasures | str) -> None:
        process, run = self.running.pop(connection)
        if isinstance(message, RunMeasures):
            self.finished.measures[run] = message
        else:
            self.finished.failures[run] = message
        self._parts[run] = 1.0
        process.join()
        connection.close()

    def _tell(self) -> None:
        done = sum(self._parts.values()) / self._total
        ended = len(self.finished.measures) + len(self.finished.failures)
        text = f"{ended} of {self._total} runs done"
        if self._tells_time and 0.02 < done < 1:
            left = (time.monotonic() - self._began) * (1 - done) / done
            text += f", {format_duration(left)} left"
        self._advance(int(1000 * done), 1000, text)

    def end(self) -> None:
        """End the open runs."""
        for connection, (process, _) in self.running.items():
            process.terminate()
            process.join()
            connection.close()
        self.running.clear()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Ctrl-C goes to all processes. A process inherits the block, so it is not stopped as it begins."""
    resource_tracker.ensure_running()  # its start would lift the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_in_child(connection: Connection, run: SeededRun, inputs: RunInputs) -> None:
    """Run, and send the progress as numbers, then the measures or the reason of a failure."""
    policy = parse(run.text)
    last_message = time.monotonic()

    def progress(state: TwinProgress) -> None:
        nonlocal last_message
        if time.monotonic() - last_message >= MESSAGE_PERIOD:
            last_message = time.monotonic()
            connection.send(state.fraction)

    # Without its parent a run has nobody to report to, and ends.
    with contextlib.suppress(BrokenPipeError):
        try:
            plan = TwinPlan(inputs.jobs, policy, run.text, inputs.ces, run.seed, inputs.until)
            connection.send(measure_run(inputs.simulate(plan, progress), policy, inputs.ces))
        except PilotageError as error:
            connection.send(str(error))
