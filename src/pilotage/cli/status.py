"""`pilotage status`: how far jobs are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from pilotage.cli.choosing import (
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
    chosen,
)
from pilotage.cli.moments import moment, size_text, span
from pilotage.cli.screen import Column, Screen, counts_text
from pilotage.cli.session import LONG_PATIENCE, PATIENCE, Session, connected
from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.jobs.states import FINAL, JobState
from pilotage.wire.people import Counts, JobDetail, JobEvent, JobSummary, Selection

if TYPE_CHECKING:
    from pilotage.client import Client

JOB_COLUMNS = (
    Column("id", right=True),
    Column("state", state=True),
    Column("name"),
    Column("owner"),
    Column("site"),
    Column("exit", right=True),
    Column("changed"),
    Column("reason"),
)


@connected
def status(
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
    events: Annotated[bool, typer.Option("--events", help="What happened to the jobs, step by step")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until all have ended")] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Show so many jobs; 0 for all")] = 50,
) -> int | None:
    """Show jobs. Without a selection: those of yours that have not ended."""
    selection = chosen(ids, submission, state, owner, group, job_group, site, name, since, before)
    if watch and (session.as_json or events):
        raise InvalidInput("--watch goes with neither --json nor --events")
    with session.client(patience=LONG_PATIENCE if watch else PATIENCE) as client:
        if watch:
            _watch(session.screen, client, selection, limit)
        elif events:
            _events(session.screen, client, selection, limit)
        elif selection.ids is not None and len(selection.ids) == 1:
            _one(session.screen, client, selection.ids[0])
        else:
            _several(session.screen, client, selection, limit)
    return None


def _several(screen: Screen, client: Client, selection: Selection, limit: int) -> None:
    counts = client.counts(selection)
    jobs = _listed(client, selection, limit)
    if screen.as_json:
        screen.json({"jobs": list(jobs), "counts": counts})
        return
    if selection.ids and not counts.total:
        raise NotFound("none of these jobs is known")
    screen.table(JOB_COLUMNS, (_row(job, time.time(), exact=not screen.terminal) for job in jobs))
    if screen.terminal:
        screen.line(_below(counts, selection, limit))


def _listed(client: Client, selection: Selection, limit: int) -> Iterator[JobSummary]:
    if selection == Selection():
        selection = Selection(states=[str(state) for state in JobState if state not in FINAL])
    jobs = client.jobs(selection, page=min(limit, 1000) or 1000)
    return islice(jobs, limit or None)


def _below(counts: Counts, selection: Selection, limit: int) -> str:
    text = counts_text(counts)
    shown = counts.total if selection != Selection() else counts.total - counts.final
    if limit and shown > limit:
        text += f"; the first {limit} are listed (--limit 0 for all)"
    return text


def _row(job: JobSummary, now: float, *, exact: bool) -> tuple[object, ...]:
    changed = moment(job.ended or job.started or job.submitted, now, exact=exact)
    code = "" if job.exit_code is None else job.exit_code
    return (job.id, job.state, job.name, job.owner, job.site, code, changed, job.reason)


def _one(screen: Screen, client: Client, number: int) -> None:
    detail = client.job(number)
    if screen.as_json:
        screen.json(detail)
        return
    screen.facts(_facts(detail, exact=not screen.terminal))


def _facts(detail: JobDetail, *, exact: bool) -> Iterator[tuple[str, object]]:
    job, now = detail.job, time.time()
    yield "job", job.id
    yield "state", job.state
    yield "reason", job.reason
    yield "name", job.name
    yield "submission", job.submission
    yield "owner", f"{job.owner} ({job.group})"
    yield "job group", job.job_group
    yield "queue", job.queue
    yield "site", job.site
    yield "node", job.hostname
    yield "pilot", job.pilot
    yield "exit code", job.exit_code
    yield "submitted", moment(job.submitted, now, exact=exact)
    yield "started", moment(job.started, now, exact=exact)
    yield "ended", moment(job.ended, now, exact=exact)
    for one in detail.attempts:
        place = f"{one.site} {one.hostname}".strip()
        used = f"{span(one.wall)} wall, {span(one.cpu)} CPU, {one.max_rss} MB" if one.ended else "runs"
        end = " ".join(part for part in (one.outcome, one.failure, one.message) if part)
        yield f"attempt {one.attempt}", "; ".join(part for part in (place, used, end) if part)
    yield "outputs", ", ".join(f"{one.name} ({size_text(one.size)})" for one in detail.outputs)
    yield "missing outputs", ", ".join(detail.missing_outputs)


def _events(screen: Screen, client: Client, selection: Selection, limit: int) -> None:
    numbers = selection.ids or [job.id for job in _listed(client, selection, limit)]
    found: dict[int, list[JobEvent]] = {number: client.events(number) for number in numbers}
    if screen.as_json:
        screen.json({str(number): events for number, events in found.items()})
        return
    now, exact = time.time(), not screen.terminal
    columns = (
        Column("job", right=True),
        Column("when"),
        Column("what"),
        Column("from", state=True),
        Column("to", state=True),
        Column("by"),
        Column("detail"),
    )
    rows = (
        (number, moment(one.at, now, exact=exact), one.kind, one.old, one.new, one.actor, one.detail)
        for number, events in found.items()
        for one in events
    )
    screen.table(columns, rows)


def _watch(screen: Screen, client: Client, selection: Selection, limit: int) -> None:
    if not screen.terminal:
        client.wait(selection, progress=lambda counts: screen.line(counts_text(counts)))
        return
    console = screen.console()

    def draw(counts: Counts) -> None:
        console.clear()
        screen.table(
            JOB_COLUMNS,
            (_row(job, time.time(), exact=False) for job in _listed(client, selection, limit or 50)),
        )
        screen.line(_below(counts, selection, limit or 50))

    client.wait(selection, progress=draw)
