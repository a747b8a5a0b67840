"""`pilotage kill`, `reschedule`, `delete`, `hold`, `release`: verbs on one or many jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.job_selection import (
    BeforeOption,
    GroupOption,
    IdsArgument,
    JobGroupOption,
    NameOption,
    OwnerOption,
    SinceOption,
    SiteOption,
    StateOption,
    SubmissionOption,
    build_selection,
    describe_selection,
    no_jobs_error,
    require_named_jobs,
    require_selection,
)
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected
from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.jobs import ActionResponse, Selection

DryRunOption = Annotated[bool, CommandOption("--dry-run", help="Only print the number of jobs")]
ReasonOption = Annotated[
    str, CommandOption("--reason", metavar="TEXT", help="Reason to record in the job events")
]
YesOption = Annotated[bool, CommandOption("-y", "--yes", help="Do not ask for confirmation")]

PAST = {
    "kill": "killed",
    "reschedule": "rescheduled",
    "delete": "deleted",
    "hold": "held",
    "release": "released",
}
HARMLESS = frozenset({"hold", "release"})
"""Verbs that can be taken back, and need no confirmation."""


def _command(verb: str, text: str) -> Callable[..., int | None]:
    def command(
        session: Session,
        ids: IdsArgument = None,
        submission: SubmissionOption = None,
        state: StateOption = None,
        owner: OwnerOption = None,
        group: GroupOption = None,
        job_group: JobGroupOption = None,
        site: SiteOption = None,
        name: NameOption = None,
        since: SinceOption = None,
        before: BeforeOption = None,
        dry_run: DryRunOption = False,
        reason: ReasonOption = "",
        yes: YesOption = False,
    ) -> int | None:
        selection = build_selection(
            ids, submission, state, owner, group, job_group, site, name, since, before
        )
        act_on_jobs(session, verb, ids, selection, dry_run, reason, yes)
        return None

    command.__name__, command.__doc__ = verb, text
    return connected(command)


def act_on_jobs(
    session: Session,
    verb: str,
    ids: list[str] | None,
    selection: Selection,
    dry_run: bool,
    reason: str,
    yes: bool,
) -> None:
    """Apply a verb to the jobs of a selection, and tell how many it changed."""
    require_selection(selection, verb)
    screen = session.screen
    with session.client() as client:
        require_named_jobs(client, ids)
        ask = getattr(client, verb)
        # Ask unless the jobs are named by id: a condition may select too many. Deletion always asks; it is permanent.
        if not dry_run and not yes and verb not in HARMLESS and (not selection.ids or verb == "delete"):
            would: ActionResponse = ask(selection, dry_run=True)
            question = (
                f"{verb} {would.done:,} of {plural(would.matched, 'job')} ({describe_selection(selection)})"
                f"{_skipped(would)}?"
            )
            if would.done and not screen.ask(question):
                raise InvalidInput(f"nothing done: {question}", hint="use -y to skip the confirmation")
        answer: ActionResponse = ask(selection, dry_run=dry_run, reason=reason)
        if not answer.matched:
            raise no_jobs_error(client, selection)
    if session.as_json:
        screen.json(answer)
    else:
        would_be = "would be " if dry_run else ""
        screen.line(
            f"{answer.done:,} of {plural(answer.matched, 'job')} {would_be}{PAST[verb]}{_skipped(answer)}"
        )
        refused = answer.refused[: 10 if answer.matched > 1 else 0]
        if not selection.ids:  # a condition takes many jobs in one state: one of them is an example
            refused = list({refusal.message: refusal for refusal in reversed(refused)}.values())
        for refusal in refused:
            screen.note(f"job {refusal.job}: {refusal.message}")
        if (more := answer.matched - answer.done - len(refused)) > 0 and answer.matched > 1:
            screen.note(f"... {plural(more, 'more job')} {'was' if more == 1 else 'were'} not changed")
    if not answer.done and not dry_run and answer.matched == 1 and answer.refused:
        raise Conflict(f"job {answer.refused[0].job}: {answer.refused[0].message}")
    if not answer.done and not dry_run:
        raise Conflict(f"none of {plural(answer.matched, 'job')} can be {PAST[verb]} in its present state")


def _skipped(answer: ActionResponse) -> str:
    return f"; {plural(answer.skipped, 'dependent job')} would be Skipped" if answer.skipped else ""


kill = _command("kill", "Kill waiting or running jobs.")
reschedule = _command(
    "reschedule",
    "Queue failed or killed jobs again.\n\nThey run with the description and the files that were"
    " stored at submission. To use the current files, submit new jobs with `pilotage rerun`.",
)
delete = _command("delete", "Delete ended or waiting jobs and their outputs; accounting records are kept.")
hold = _command(
    "hold",
    "Keep waiting or blocked jobs from running, until they are released.\n\nA running job cannot be held.",
)
release = _command("release", "Let held jobs run. They have the place in their queue that they had before.")
