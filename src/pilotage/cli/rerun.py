"""`pilotage rerun`: submit ended jobs as new jobs with the current files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import CommandOutput
from pilotage.cli.description_options import override_description
from pilotage.cli.job_selection import (
    IdsArgument,
    SubmissionOption,
    build_selection,
    no_jobs_error,
    require_named_jobs,
    require_selection,
)
from pilotage.cli.option_groups import with_option_groups
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, YesOption, connected
from pilotage.cli.submit import send_prepared, show_dry_run
from pilotage.cli.submit_options import JobOptions
from pilotage.client.resubmission import Resubmission, describe_resubmission, prepare_resubmission
from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.jobs.states import FINAL, JobState
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.jobs import Selection

NAMES_SHOWN = 5
LABELS = {"name": "--name", "job_group": "--job-group", "sites": "--site"}
"""Options that select jobs in other commands, by the field of `JobOptions`. Here they change the new jobs."""
NOT_AGAIN = frozenset({JobState.SKIPPED, JobState.SUPERSEDED, JobState.DELETED})
"""Jobs in these states run again only if they are named by id."""


@connected
@with_option_groups
def rerun(
    session: Session,
    job: JobOptions,
    ids: IdsArgument = None,
    submission: SubmissionOption = None,
    failed: Annotated[bool, CommandOption("Only failed jobs")] = False,
    incomplete: Annotated[bool, CommandOption("Only Done jobs that lack an output that they name")] = False,
    wait: Annotated[bool, CommandOption("Wait until the jobs have ended; exit code 1 if one fails")] = False,
    key: Annotated[
        str, CommandOption("Idempotency key: repeating the command with it creates no more jobs", "KEY")
    ] = "",
    yes: YesOption = False,
    dry_run: Annotated[
        bool, CommandOption("Print the request and the server's warnings; submit nothing")
    ] = False,
) -> int | None:
    """Submit ended jobs as new jobs: same description and values, current files of this folder.

    Input files that are not in this folder are taken from the earlier submission. Options override the description.
    Old jobs that failed, were killed or lack an output become Superseded; other old jobs do not change.
    To run jobs again with the files sent before, use `pilotage reschedule`.
    """
    if failed and incomplete:
        raise InvalidInput("--failed and --incomplete select different jobs", hint="give one, then the other")
    selection = build_selection(ids, submission)
    if failed:
        selection = replace(selection, states=["Failed"])
    elif incomplete:
        selection = replace(selection, states=["Done"], outputs_incomplete=True)
    require_selection(selection, "rerun")
    if not (selection.ids or selection.submission):
        _refuse_labels(job)
    if not (selection.ids or selection.states):
        selection = replace(selection, states=[str(state) for state in JobState if state not in NOT_AGAIN])
    if job.parametric:
        raise InvalidInput(
            "rerun cannot change the parameters", hint="use `pilotage submit` for new parameters"
        )
    with session.client() as client:
        require_named_jobs(client, ids)
        if failed or incomplete:
            selection = _without_requests(session.screen, client, selection)
        resubmissions = _prepare_all(session.screen, client, selection, job, key)
    if not (selection.ids or selection.submission or yes or dry_run):
        _confirm(session.screen, resubmissions)
    prepared = [resubmission.prepared for resubmission in resubmissions]
    if dry_run:
        show_dry_run(session, prepared)
        return None
    return send_prepared(session, prepared, wait)


def _refuse_labels(options: JobOptions) -> None:
    """Refuse options that are meant to select: without ids and submission they would relabel all failed jobs."""
    for field in options.given_options():
        if field in LABELS:
            raise InvalidInput(
                f"{LABELS[field]} changes the new jobs, and selects none of the old ones",
                hint="name the jobs: `pilotage rerun 12,15` or `pilotage rerun -s SUBMISSION --failed`;"
                f" `pilotage status {LABELS[field]} ... --state Failed` lists them",
            )


def _without_requests(screen: CommandOutput, client: Client, selection: Selection) -> Selection:
    """The selection without the jobs of requests, unless it names jobs or a submission."""
    if selection.ids or selection.submission:
        return selection
    if left_out := client.counts(replace(selection, for_request=True)).total:
        screen.note(
            f"{plural(left_out, 'job')} of requests left out: `pilotage request resubmit` makes failed parts again"
        )
    return replace(selection, for_request=False)


def _confirm(screen: CommandOutput, resubmissions: list[Resubmission]) -> None:
    """Ask before all failed jobs run again, which no id or submission limits."""
    jobs = sum(resubmission.prepared.count for resubmission in resubmissions)
    question = f"run {plural(jobs, 'job')} of {plural(len(resubmissions), 'submission')} again?"
    if not screen.ask(question):
        raise InvalidInput(f"nothing done: {question}", hint="use -y to skip the confirmation")


def _prepare_all(
    screen: CommandOutput, client: Client, selection: Selection, options: JobOptions, key: str
) -> list[Resubmission]:
    resubmissions: list[Resubmission] = []
    submissions = _submissions(client, selection)
    if key and len(submissions) > 1:
        raise InvalidInput("--key applies to one submission; the selected jobs belong to several")
    for number in submissions:
        source = client.source(number, selection)
        described = describe_resubmission(source, Path())
        if options.given_options():
            command = override_description(described, options)
            described = command.described
            for note in command.notes:
                screen.note(note)
        resubmission = prepare_resubmission(source, described, key=key, missing=client.missing_uploads)
        _report_inputs(screen, resubmission)
        resubmissions.append(resubmission)
    return resubmissions


def _submissions(client: Client, selection: Selection) -> list[int]:
    """The submissions of the selected jobs, in order. Raises Conflict if a job has not ended."""
    numbers: dict[int, None] = {}
    for job in client.jobs(selection):
        if job.state not in FINAL:
            raise Conflict(
                f"job {job.id} is {job.state} and would run at the same time as its copy",
                hint="use --failed to select failed jobs only, or `pilotage kill` to end the job first",
            )
        numbers[job.submission] = None
    if not numbers:
        _refuse_empty(client, selection)
        raise no_jobs_error(client, selection)
    return list(numbers)


def _refuse_empty(client: Client, selection: Selection) -> None:
    """Raise Conflict if jobs exist and none of them is in a state to be run again."""
    if (
        not selection.states
        or not client.counts(replace(selection, states=None, outputs_incomplete=None)).total
    ):
        return
    if selection.outputs_incomplete:
        raise Conflict("none of these jobs is Done and lacks an output")
    if selection.states == ["Failed"]:
        superseded = client.counts(replace(selection, states=["Superseded"])).total
        if superseded:
            raise Conflict(
                f"no failed job is left: {plural(superseded, 'job')} ran again already",
                hint="see `pilotage status`",
            )
        raise Conflict("none of these jobs has failed", hint="omit --failed to rerun all of them")
    raise Conflict(
        "all of these jobs are skipped, superseded or deleted", hint="name jobs by id to run them again"
    )


def _report_inputs(screen: CommandOutput, again: Resubmission) -> None:
    """Report which version of each input file the new jobs get."""
    for names, what in (
        (again.changed, "changed, taken from this folder"),
        (again.same, "unchanged, taken from this folder"),
        (again.as_sent, "not in this folder, taken from the earlier submission"),
    ):
        if names:
            more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
            screen.note(f"inputs {what}: {', '.join(names[:NAMES_SHOWN])}{more}")
