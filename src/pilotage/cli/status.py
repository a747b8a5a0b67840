"""`pilotage status`: jobs, their states and events."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.console import Column, CommandOutput, format_counts
from pilotage.cli.duties import failing_line
from pilotage.cli.job_facts import job_facts
from pilotage.cli.job_selection import (
    IdsArgument,
    ListConditions,
    no_jobs_error,
    require_named_jobs,
    selection_as_options,
)
from pilotage.cli.option_groups import with_option_groups
from pilotage.cli.outcome import note_on_interrupt
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import LONG_PATIENCE, PATIENCE, LimitOption, Session, connected
from pilotage.cli.time_format import format_instant
from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.jobs.states import FINAL, JobState
from pilotage.core.jobs.use_wording import short_use

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.jobs import Counts, JobEvent, JobSummary, Selection

JOB_COLUMNS = (
    Column("id", right=True),
    Column("state", state=True),
    Column("name", text=True),
    Column("owner", rank=3),
    Column("site", rank=1),
    Column("exit", right=True),
    Column("changed", rank=2),
    Column("reason", text=True),
)


DEFAULT_JOBS = 50


@connected
@with_option_groups
def status(
    session: Session,
    conditions: ListConditions,
    ids: IdsArgument = None,
    request: Annotated[int | None, CommandOption("Jobs that work for this request", "N", min=1)] = None,
    events: Annotated[bool, CommandOption("Show the event log of the jobs")] = False,
    watch: Annotated[bool, CommandOption("Refresh until all jobs have ended")] = False,
    limit: LimitOption = None,
    oldest: Annotated[bool, CommandOption("Show the oldest jobs first")] = False,
) -> None:
    """Show jobs, newest first. A single job is shown in detail.

    Without a selection, show your jobs that have not ended. Jobs selected by id are sorted by id.
    """
    selection = replace(conditions.selection(ids), request=request)
    if watch and (session.as_json or events):
        raise InvalidInput("--watch cannot be combined with --json or --events")
    most = session.screen.row_limit(limit, DEFAULT_JOBS)
    with session.client(patience=LONG_PATIENCE if watch else PATIENCE) as client:
        require_named_jobs(client, ids)
        if watch:
            again = f"the jobs continue: `pilotage status {selection_as_options(selection)}` shows them"
            with note_on_interrupt(session.screen, again):
                _watch(session.screen, client, selection, most, oldest)
        elif events:
            _show_events(session.screen, client, selection, most, oldest)
        elif selection.ids is not None and len(selection.ids) == 1:
            _show_job(session.screen, client, selection.ids[0])
        else:
            _show_jobs(session.screen, client, selection, most, oldest)


def _show_jobs(screen: CommandOutput, client: Client, selection: Selection, limit: int, oldest: bool) -> None:
    counts = client.counts(selection)
    if not counts.total:
        _check_named(client, selection)
        if selection.request is not None:
            _note_hidden_jobs(screen, client, selection.request)
    jobs = _list_jobs(client, selection, limit, oldest)
    if screen.as_json:
        screen.json({"jobs": list(jobs), "counts": counts})
        return
    screen.table(JOB_COLUMNS, (_row(job, time.time(), exact=not screen.terminal) for job in jobs))
    if screen.terminal:
        screen.line(_summary_line(counts, selection, limit))
    if failing := failing_line(client):
        screen.note(f"warning: {failing}")


def _check_named(client: Client, selection: Selection) -> None:
    """Raise NotFound if the named jobs or submission do not exist: an empty list would hide the mistake."""
    if selection.ids and not client.counts(wire.jobs.Selection(ids=selection.ids)).total:
        raise NotFound("none of these jobs exists", hint="or they belong to another user")
    number = selection.submission
    if number is not None and not client.counts(wire.jobs.Selection(submission=number)).total:
        raise no_jobs_error(client, selection)


def _note_hidden_jobs(screen: CommandOutput, client: Client, number: int) -> None:
    """Tell users who may see a request, but not its jobs, why the list is empty."""
    from pilotage.core.policy.model import ADMINISTRATOR, JOB_ADMINISTRATOR, JOB_SHARING

    try:
        request = client.request(number).request
    except NotFound:
        return
    caller = client.whoami()
    sees_all = {ADMINISTRATOR, JOB_ADMINISTRATOR} & set(caller.properties)
    shares = JOB_SHARING in caller.properties and caller.group == request.group
    if not (caller.user == request.owner or sees_all or shares):
        screen.note(
            f"request {number} belongs to {request.owner}: jobs of others are not shown;"
            f" `pilotage request show {number}` counts them"
        )


def _list_jobs(client: Client, selection: Selection, limit: int, oldest: bool) -> Iterator[JobSummary]:
    if selection == wire.jobs.Selection():
        selection = wire.jobs.Selection(states=[str(state) for state in JobState if state not in FINAL])
    newest = not (oldest or selection.ids)
    jobs = client.jobs(selection, page=min(limit, 1000) or 1000, newest=newest)
    return islice(jobs, limit or None)


def _summary_line(counts: Counts, selection: Selection, limit: int) -> str:
    text = format_counts(counts)
    shown = counts.total if selection != wire.jobs.Selection() else counts.total - counts.final
    if limit and shown > limit:
        text += f"; {limit} of {shown:,} are listed (--limit 0 for all)"
    return text


def _row(job: JobSummary, now: float, *, exact: bool) -> tuple[object, ...]:
    changed = format_instant(job.ended or job.started or job.submitted, now, exact=exact)
    code = "" if job.exit_code is None else job.exit_code
    use = short_use(job.use, now) if job.use is not None else ""
    reason = "; ".join(filter(None, (job.reason, use)))
    return (job.id, job.state, job.name, job.owner, job.site, code, changed, reason)


def _show_job(screen: CommandOutput, client: Client, number: int) -> None:
    detail = client.job(number)
    screen.json(detail)
    screen.facts(job_facts(detail, time.time(), exact=not screen.terminal))


def _show_events(
    screen: CommandOutput, client: Client, selection: Selection, limit: int, oldest: bool
) -> None:
    numbers = selection.ids or [job.id for job in _list_jobs(client, selection, limit, oldest)]
    if not numbers:
        _check_named(client, selection)
    histories: dict[int, list[JobEvent]] = {number: client.events(number) for number in numbers}
    screen.json({str(number): events for number, events in histories.items()})
    columns = (
        Column("job", right=True),
        Column("when"),
        Column("what"),
        Column("from", state=True),
        Column("to", state=True),
        Column("by", rank=1),
        Column("detail", text=True),
    )
    rows = (
        (
            number,
            screen.instant(event.at),
            event.kind,
            event.old,
            event.new,
            event.actor,
            event.detail,
        )
        for number, events in histories.items()
        for event in events
    )
    screen.table(columns, rows)


def _watch(screen: CommandOutput, client: Client, selection: Selection, limit: int, oldest: bool) -> None:
    if not screen.terminal:

        def tell(counts: Counts) -> None:
            screen.line(format_counts(counts))
            sys.stdout.flush()  # a pipe or a file shows it at once

        client.wait(selection, progress=tell)
        return
    console = screen.console()

    def draw(counts: Counts) -> None:
        console.clear()
        screen.table(
            JOB_COLUMNS,
            (
                _row(job, time.time(), exact=False)
                for job in _list_jobs(client, selection, limit or DEFAULT_JOBS, oldest)
            ),
        )
        screen.line(_summary_line(counts, selection, limit or DEFAULT_JOBS))

    client.wait(selection, progress=draw)
