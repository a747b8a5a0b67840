"""`pilotage request list|elements|history`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column, Columns
from pilotage.cli.option_groups import with_option_groups
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.requests.choice import RequestOptions
from pilotage.cli.session import LimitOption, Session, connected
from pilotage.cli.time_format import format_duration, format_instant, parse_duration
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural
from pilotage.core.requests.states import UNFINISHED, RequestState
from pilotage.core.workqueue.roll_up import ENDED
from pilotage.core.workqueue.states import ElementState

if TYPE_CHECKING:
    from pilotage.wire.requests import RequestElement, RequestEvent, RequestSummary

ELEMENTS = "elements"
"""The kind of event of elements that move."""
ELEMENTS_SHOWN = 10

NumberArgument = Annotated[int, CommandArgument("Number of the request", "REQUEST")]


DEFAULT_ROWS = 100


def note_approval(session: Session, row: RequestSummary) -> None:
    """Tell who must act before a new request goes on."""
    if row.state == RequestState.NEW:
        session.screen.note(
            f"request {row.id} waits for a production manager: `pilotage request approve {row.id}`"
        )


@connected
@with_option_groups
def list_requests(
    session: Session,
    chosen: RequestOptions,
    team: Annotated[str, CommandOption("Only of this team", "NAME")] = "",
    everything: Annotated[bool, CommandOption("Ended requests too", names="--all")] = False,
    limit: LimitOption = None,
) -> None:
    """List requests that have not ended, newest first; with --all ended ones too."""
    states = chosen.states(() if everything else (*UNFINISHED, RequestState.FAILED))
    with session.client() as client:
        listed = client.requests(
            states=states, owner=chosen.owner, team=team, campaign=chosen.campaign, name=chosen.name
        )
        rows = session.screen.first_rows(listed, limit, DEFAULT_ROWS)
    session.screen.json({"requests": rows})
    now, exact = time.time(), not session.screen.terminal
    columns: Columns[RequestSummary] = (
        (Column("request", right=True), lambda row: row.id),
        (Column("name", text=True, least=12), lambda row: row.name),
        (Column("owner"), lambda row: row.owner),
        (Column("priority", right=True, rank=4), lambda row: row.priority),
        (Column("team", rank=1), lambda row: row.team),
        (Column("state", state=True), lambda row: f"{row.state}, paused" if row.paused else row.state),
        (Column("elements", right=True, rank=3), lambda row: f"{row.ended_elements:,}/{row.elements:,}"),
        (Column("jobs", right=True), lambda row: f"{row.done_jobs:,}/{row.jobs:,}"),
        (Column("failed", right=True, rank=1), lambda row: f"{row.failed_jobs:,}" if row.failed_jobs else ""),
        (Column("submitted" if exact else "age", rank=2), lambda row: _age(row.created, now, exact=exact)),
    )
    session.screen.listing(columns, rows)


def _age(created: float, now: float, *, exact: bool) -> str:
    """For people how long ago, which is short; for programs the instant."""
    return format_instant(created, now, exact=True) if exact else format_duration(max(0.0, now - created))


@connected
def history(
    session: Session,
    request: NumberArgument,
    everything: Annotated[bool, CommandOption("The moves of its elements too", names="--all")] = False,
) -> None:
    """Show the history of a request: each move and change, when, by whom and why."""
    with session.client() as client:
        history_of_request = client.request_history(request)
        events = [event for event in history_of_request if everything or event.kind != ELEMENTS]
    session.screen.json({"events": events})
    columns: Columns[RequestEvent] = (
        (Column("at"), lambda event: session.screen.instant(event.at)),
        (Column("actor"), lambda event: event.actor),
        (
            Column("event"),
            lambda event: f"{event.old} → {event.new}" if event.kind == "state" else event.kind,
        ),
        (Column("detail", text=True), lambda event: _detail(event)),
    )
    session.screen.listing(columns, events)


@connected
def elements(
    session: Session,
    request: NumberArgument,
    state: Annotated[list[str] | None, CommandOption("Only in this state; may be repeated", "STATE")] = None,
    step: Annotated[str, CommandOption("Only of this step", "NAME")] = "",
    stuck: Annotated[
        str | None, CommandOption("Only requests that go on, unchanged for AGE or longer: 1h", "AGE")
    ] = None,
    limit: LimitOption = None,
) -> None:
    """List the elements of a request: the pieces of which agents make jobs, with agent, site and reason."""
    if stuck is not None and state:
        raise InvalidInput("--stuck chooses the states itself", hint="leave out --state or --stuck")
    states = [str(known) for known in ElementState if known not in ENDED] if stuck else state or []
    unchanged = parse_duration(stuck) if stuck is not None else 0.0
    with session.client() as client:
        listed = client.request_elements(request, states=states, step=step, unchanged=unchanged)
        rows = session.screen.first_rows(listed, limit, DEFAULT_ROWS)
    session.screen.json({"elements": rows})
    now, exact = time.time(), not session.screen.terminal
    columns: Columns[RequestElement] = (
        (Column("element", right=True), lambda row: row.id),
        (Column("step", rank=2), lambda row: row.step),
        (Column("state", state=True), lambda row: row.state),
        (Column("agent", rank=1), lambda row: row.agent),
        (Column("site"), lambda row: row.site),
        (Column("jobs", right=True), lambda row: f"{row.jobs_done:,}/{row.jobs:,}"),
        (Column("failed", right=True), lambda row: f"{row.jobs_failed:,}" if row.jobs_failed else ""),
        (Column("changed" if exact else "for"), lambda row: _age(row.changed, now, exact=exact)),
        (Column("reason", text=True), lambda row: row.reason),
    )
    session.screen.listing(columns, rows)


def _detail(event: RequestEvent) -> str:
    """The detail in words; elements that moved by their number and states."""
    try:
        facts = json.loads(event.detail)
    except ValueError:
        return event.detail
    if not isinstance(facts, dict):
        return event.detail
    moved = facts.get("elements")
    if event.kind == ELEMENTS and isinstance(moved, list):
        shown = ", ".join(str(element) for element in moved[:ELEMENTS_SHOWN])
        more = ", ..." if len(moved) > ELEMENTS_SHOWN else ""
        return f"{plural(len(moved), 'element')} {event.old} → {event.new}: {shown}{more}"
    return ", ".join(f"{name} {value}" for name, value in facts.items())
