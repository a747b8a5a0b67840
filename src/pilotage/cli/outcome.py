"""How jobs ended, and which command shows more about jobs that did not end well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from pilotage.cli.console import CommandOutput, format_counts
from pilotage.cli.job_selection import selection_as_options
from pilotage.core.jobs.states import FINAL
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.jobs import Counts, JobSummary, Selection

JOB_FAILED, OUTPUT_MISSING = 1, 8
SHOWN = 5
NOT_DONE = [str(state) for state in FINAL if state not in ("Done", "Superseded")]


@dataclass
class WaitOutcome:
    """The JSON of `wait`."""

    states: dict[str, int]
    total: int
    final: int
    not_done: list[int] = field(default_factory=list)
    """The first jobs that ended otherwise than as Done."""
    outputs_incomplete: int = 0
    """Jobs that are Done and lack an output that they name."""

    @property
    def code(self) -> int:
        if self.states.get("Done", 0) + self.states.get("Superseded", 0) < self.total:
            return JOB_FAILED
        return OUTPUT_MISSING if self.outputs_incomplete else 0


def report_outcome(
    screen: CommandOutput, client: Client, selection: Selection, counts: Counts
) -> WaitOutcome:
    """Print how the jobs of a selection ended, and commands that show more."""
    outcome = WaitOutcome(counts.states, counts.total, counts.final)
    screen.line(format_counts(counts))
    if counts.final < counts.total:
        screen.note(
            f"pilotage: {counts.total - counts.final:,} of {plural(counts.total, 'job')} not ended yet"
        )
    ended_badly = sum(counts.states.get(state, 0) for state in NOT_DONE)
    if ended_badly:
        chosen = [state for state in selection.states or NOT_DONE if state in NOT_DONE]
        jobs = list(islice(client.jobs(replace(selection, states=chosen)), SHOWN))
        outcome.not_done = [job.id for job in jobs]
        _report_not_done(screen, jobs, ended_badly, selection)
    incomplete = replace(selection, states=["Done"], outputs_incomplete=True)
    outcome.outputs_incomplete = client.counts(incomplete).total
    if outcome.outputs_incomplete:
        report_incomplete(screen, list(islice(client.jobs(incomplete), SHOWN)), outcome.outputs_incomplete)
    return outcome


def _report_not_done(
    screen: CommandOutput, jobs: list[JobSummary], number: int, selection: Selection
) -> None:
    for job in jobs:
        screen.note(f"job {job.id} is {job.state}" + (f": {job.reason}" if job.reason else ""))
    if number > len(jobs):
        screen.note(
            f"... and {number - len(jobs):,} more: pilotage status {selection_as_options(selection, '--state Failed')}"
        )
    if jobs:
        screen.note(f"next: pilotage logs --stderr {jobs[0].id}; pilotage status {jobs[0].id}")


def report_incomplete(screen: CommandOutput, jobs: list[JobSummary], number: int) -> None:
    """Name jobs whose outputs are not all there."""
    for job in jobs:
        why = f": {job.reason}" if job.reason and job.state == "Done" else ""
        screen.note(f"job {job.id} lacks an output{why}")
    if number > len(jobs):
        screen.note(f"... and {number - len(jobs):,} more lack an output")
    if jobs:
        screen.note(f"next: pilotage status {jobs[0].id} shows what is missing")


@contextmanager
def note_jobs_continue(screen: CommandOutput, selection: Selection) -> Iterator[None]:
    """Tell on Ctrl-C that only the command has ended, and how to come back."""
    words = selection_as_options(selection)
    text = (
        f"the jobs continue: `pilotage wait {words}` waits for them again, `pilotage kill {words}` ends them"
    )
    with note_on_interrupt(screen, text):
        yield


@contextmanager
def note_on_interrupt(screen: CommandOutput, text: str) -> Iterator[None]:
    """Say this on Ctrl-C, and go on with it."""
    try:
        yield
    except KeyboardInterrupt:
        screen.note(text)
        raise
