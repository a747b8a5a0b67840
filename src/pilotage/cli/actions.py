"""`pilotage kill`, `reschedule`, `delete`, `hold`, `release`, `priority`: verbs on one or many jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.job_selection import (
    IdsArgument,
    JobConditions,
    describe_selection,
    no_jobs_error,
    require_named_jobs,
    require_selection,
)
from pilotage.cli.option_groups import with_option_groups
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, YesOption, connected
from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.jobs.fields import BY_NAME
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.jobs import ActionResponse, Selection

DryRunOption = Annotated[bool, CommandOption("Only print the number of jobs")]
ReasonOption = Annotated[str, CommandOption("Reason to record in the job events", "TEXT", may_be_empty=True)]

PAST = {
    "kill": "killed",
    "reschedule": "rescheduled",
    "redo": "rescheduled",
    "delete": "deleted",
    "hold": "held",
    "release": "released",
}
HARMLESS = frozenset({"hold", "release", "priority"})
"""Verbs that can be taken back, and need no confirmation."""


def _command(verb: str, text: str) -> Callable[..., int | None]:
    def command(
        session: Session,
        conditions: JobConditions,
        ids: IdsArgument = None,
        dry_run: DryRunOption = False,
        reason: ReasonOption = "",
        yes: YesOption = False,
    ) -> None:
        act_on_jobs(session, verb, ids, conditions.selection(ids), dry_run, reason, yes)

    command.__name__, command.__doc__ = verb, text
    return connected(with_option_groups(command))


def parse_priority(word: str) -> int:
    """The priority of jobs that a person writes."""
    field = BY_NAME["user_priority"]
    if not (word.isascii() and word.isdigit() and len(word) < 4 and field.low <= int(word) <= field.high):
        raise InvalidInput(f"{word} is not a priority", hint=f"it is from {field.low} to {field.high}")
    return int(word)


def act_on_jobs(
    session: Session,
    verb: str,
    ids: list[str] | None,
    selection: Selection,
    dry_run: bool,
    reason: str,
    yes: bool,
    priority: int | None = None,
) -> None:
    """Apply a verb to the jobs of a selection, and tell how many it changed. `priority`: of the verb that sets one."""
    require_selection(selection, verb)
    screen = session.screen
    changed = PAST[verb] if priority is None else f"given priority {priority}"
    with session.client() as client:
        require_named_jobs(client, ids)
        ask = getattr(client, verb) if priority is None else partial(client.set_priority, priority=priority)
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
            f"{answer.done:,} of {plural(answer.matched, 'job')} {would_be}{changed}{_skipped(answer)}"
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
        raise Conflict(f"none of {plural(answer.matched, 'job')} can be {changed} in its present state")


def _skipped(answer: ActionResponse) -> str:
    return f"; {plural(answer.skipped, 'dependent job')} would be Skipped" if answer.skipped else ""


kill = _command("kill", "Kill waiting or running jobs.")
delete = _command("delete", "Delete ended or waiting jobs and their outputs; accounting records are kept.")
hold = _command(
    "hold",
    "Keep waiting or blocked jobs from running, until they are released.\n\nA running job cannot be held.",
)
release = _command("release", "Let held jobs run. They have the place in their queue that they had before.")


@connected
@with_option_groups
def reschedule(
    session: Session,
    conditions: JobConditions,
    ids: IdsArgument = None,
    done: Annotated[bool, CommandOption("Also Done jobs: an output is gone, and others need it")] = False,
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
    yes: YesOption = False,
) -> None:
    """Queue failed or killed jobs again.

    They run with the description and the files that were stored at submission. Jobs that were skipped because of them
    are Blocked again. To use the current files, submit new jobs with `pilotage rerun`.
    """
    verb = "redo" if done else "reschedule"
    act_on_jobs(session, verb, ids, conditions.selection(ids), dry_run, reason, yes)


@connected
@with_option_groups
def priority(
    session: Session,
    conditions: JobConditions,
    words: Annotated[
        list[str],
        CommandArgument("Jobs as 12, 12-40 or 12,15; then 0 to 10, higher goes first", "[IDS]... PRIORITY"),
    ],
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
) -> None:
    """Change the priority of jobs that have not ended, among all jobs of their owner."""
    *ids, word = words
    wanted, selection = parse_priority(word), conditions.selection(ids or None)
    act_on_jobs(session, "priority", ids or None, selection, dry_run, reason, yes=True, priority=wanted)
