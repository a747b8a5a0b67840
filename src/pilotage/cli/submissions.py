"""`pilotage submission list|show|kill|hold|release|priority|parallel`: submissions as wholes."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.actions import (
    DryRunOption,
    ReasonOption,
    act_on_jobs,
    parse_priority,
)
from pilotage.cli.console import Column, Columns
from pilotage.cli.job_selection import OwnerOption
from pilotage.cli.lists import DEFAULT_ROWS
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import LimitOption, Session, YesOption, connected
from pilotage.cli.time_format import format_duration
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.states import FINAL, RUNS
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.submission_progress import SubmissionProgress, SubmissionSummary

NumberArgument = Annotated[int, CommandArgument("Number of the submission", "SUBMISSION")]


@connected
def list_submissions(
    session: Session,
    owner: OwnerOption = None,
    limit: LimitOption = None,
) -> None:
    """List submissions, newest first, and how far they have come."""
    with session.client() as client:
        rows = session.screen.first_rows(
            client.submissions(owner=owner, page=DEFAULT_ROWS), limit, DEFAULT_ROWS
        )
    session.screen.json({"submissions": rows})
    columns: Columns[SubmissionSummary] = (
        (Column("submission", right=True), lambda row: row.id),
        (Column("name"), lambda row: row.name),
        (Column("owner", rank=2), lambda row: row.owner),
        (Column("submitted", rank=3), lambda row: session.screen.instant(row.submitted)),
        (Column("jobs", right=True), lambda row: row.count),
        (Column("ended", right=True), lambda row: _number_in(row, FINAL)),
        (Column("running", right=True), lambda row: _number_in(row, RUNS)),
        (Column("parallel", right=True, rank=1), lambda row: row.parallel or ""),
        (Column("states", text=True), _states_text),
    )
    session.screen.listing(columns, rows)


def _number_in(row: SubmissionSummary, states: Container[str]) -> int:
    return sum(number for state, number in row.states.items() if state in states)


def _states_text(row: SubmissionSummary) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in sorted(row.states.items()))


@connected
def show(session: Session, submission: NumberArgument) -> None:
    """Show how far a submission has come, which jobs run, and its failures by their reason."""
    with session.client() as client:
        progress = client.submission_progress(submission)
    session.screen.json(progress)
    for line in _lines(session, progress):
        session.screen.line(line)


def _lines(session: Session, progress: SubmissionProgress) -> list[str]:
    row = progress.submission
    lines = [
        f"submission {row.id} ({row.name}) of {row.owner}, {session.screen.instant(row.submitted)}",
        f"{progress.ended:,} of {plural(row.count, 'job')} ended: {_states_text(row)}",
    ]
    if row.parallel:
        lines.append(f"at most {row.parallel:,} at once")
    if progress.rate is not None:
        left = (
            ""
            if progress.time_left is None
            else f"; the last one ends in about {format_duration(progress.time_left)}"
        )
        lines.append(f"rate: {progress.rate:,.1f} ends in an hour{left}")
    if progress.running:
        lines.append(f"running now: {', '.join(map(str, progress.running))}")
    if progress.failures:
        lines.append(f"the last {plural(progress.failures_read, 'failed job')} by reason:")
    for group in progress.failures:
        lines.append(f"  {group.count:,} x {group.reason}, such as job {group.job}")
        if group.last_line:
            lines.append(f"      {group.last_line}")
    if progress.incomplete:
        verb = "lacks" if len(progress.incomplete) == 1 else "lack"
        lines.append(
            f"{plural(len(progress.incomplete), 'Done job')} {verb} an output, such as job {progress.incomplete[0]}:"
            f" pilotage status {progress.incomplete[0]}"
        )
    return lines


def _verb(name: str, text: str) -> Callable[..., int | None]:
    """The command of a verb on all jobs of a submission. `text`: its help."""

    def command(
        session: Session,
        submission: NumberArgument,
        dry_run: DryRunOption = False,
        reason: ReasonOption = "",
        yes: YesOption = False,
    ) -> None:
        act_on_jobs(session, name, None, wire.jobs.Selection(submission=submission), dry_run, reason, yes)

    command.__name__, command.__doc__ = name, text
    return connected(command)


kill = _verb("kill", "Kill the waiting and running jobs of a submission.")
hold = _verb("hold", "Hold the jobs of a submission that have not started.")
release = _verb("release", "Let the held jobs of a submission run.")


@connected
def priority(
    session: Session,
    submission: NumberArgument,
    priority: Annotated[str, CommandArgument("0 to 10, higher goes first", "N")],
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
) -> None:
    """Change the priority of the jobs of a submission that have not ended, among all jobs of their owner."""
    selection, wanted = wire.jobs.Selection(submission=submission), parse_priority(priority)
    act_on_jobs(session, "priority", None, selection, dry_run, reason, yes=True, priority=wanted)


@connected
def parallel(
    session: Session,
    submission: NumberArgument,
    running: Annotated[str, CommandArgument("Jobs that may run at once; none: all", "N")],
) -> None:
    """Change how many jobs of a submission run at once. Running jobs are not ended."""
    if running != "none" and not (running.isascii() and running.isdigit() and int(running[:9])):
        raise InvalidInput(f"{running} is not a number of jobs above 0", hint="none lifts the limit")
    with session.client() as client:
        row = client.limit_submission(submission, 0 if running == "none" else int(running))
    session.screen.json(row)
    limit = f"at most {plural(row.parallel, 'job')}" if row.parallel else "any number of jobs"
    session.screen.line(f"submission {row.id}: {limit} at once")
