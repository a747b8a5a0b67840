"""Page: jobs by a filter, and verbs on all of them. The server does it: the browser never has the list."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.jobs.states import JobState
from pilotage.core.jobs.written_ids import parse_written_ids
from pilotage.server.web.page import PageRouter
from pilotage.server.web.visit import Visit
from pilotage.wire.jobs import (
    ACT_ON_JOBS,
    COUNT_JOBS,
    LIST_JOBS,
    ActionRequest,
    Counts,
    JobsPage,
    JobsQuery,
    ListedJobs,
    Selection,
)

pages = PageRouter(menu="Jobs", order=2)

ROWS = 50
MOST_IDS = 1000
VERBS = {
    "kill": ("Kill", "killed", "They end at once, and do not start again."),
    "hold": ("Hold", "held", "They do not start until they are released."),
    "release": ("Release", "released", "They wait for a place again."),
    "reschedule": (
        "Run again",
        "put into their queues again",
        "They run with the description and files sent before.",
    ),
    "priority": (
        "Give a priority to",
        "given the priority",
        "It counts among all jobs of their owner, whenever they wait.",
    ),
}
"""Words of a verb: on its button, for its result, and its meaning."""
_TEXTS = ("owner", "group", "job_group", "site", "name")


@pages.get("/jobs")
async def show(visit: Visit) -> Response:
    """The filter, the number of jobs by state, and the newest of them."""
    given = dict(visit.query)
    selection, listed, refused = Selection(), Selection(), None
    counts, page = Counts({}, 0, 0), JobsPage([])
    try:
        selection = selection_of(given)
    except InvalidInput as error:
        # The filter is shown as it was given, so that a slip can be mended.
        refused = error
    else:
        listed = ListedJobs.by(selection)
        counts = await visit.ask(COUNT_JOBS, listed)
        asked = JobsQuery(**vars(listed), after=_number(given, "before") or 0, limit=ROWS, newest=True)
        page = await visit.ask(LIST_JOBS, asked)
    return await visit.render(
        "selection.html",
        400 if refused else 200,
        filter=given,
        refused=refused,
        has_filter=selection != Selection(),
        is_pattern=isinstance(listed, ListedJobs),
        query=query_of(selection),
        counts=counts,
        jobs=page.jobs,
        next=page.next,
        states=[str(state) for state in JobState],
        verbs=VERBS,
    )


@pages.get("/jobs/all/{verb}")
async def ask_first(visit: Visit, verb: str) -> Response:
    """The effect of the verb, and the number of jobs. Nothing is changed."""
    selection = await _chosen(visit, dict(visit.query), verb)
    action = ActionRequest(selection, dry_run=True, priority=0 if verb == "priority" else None)
    outcome = await visit.ask(ACT_ON_JOBS, action, verb=verb)
    if not outcome.matched:
        raise NotFound("no job of yours matches", hint="go back, and change the filter")
    counts = await visit.ask(COUNT_JOBS, selection)
    return await visit.render(
        "confirm.html",
        verb=verb,
        words=VERBS[verb],
        filter=_given(selection),
        query=query_of(selection),
        outcome=outcome,
        counts=counts,
        one=selection.ids[0] if selection.ids and len(selection.ids) == 1 else None,
    )


@pages.post("/jobs/all/{verb}")
async def act(visit: Visit, verb: str) -> Response:
    """Carry the verb out, with a reason for the history of each job."""
    selection = await _chosen(visit, dict(visit.form), verb)
    reason, priority = visit.form.get("reason", "").strip(), _number(dict(visit.form), "priority")
    action = ActionRequest(selection, reason=reason, priority=priority)
    outcome = await visit.ask(ACT_ON_JOBS, action, verb=verb)
    if selection.ids and len(selection.ids) == 1 and outcome.done:
        return visit.redirect(f"jobs/{selection.ids[0]}")
    return await visit.render(
        "acted.html", verb=verb, words=VERBS[verb], query=query_of(selection), outcome=outcome
    )


def selection_of(given: dict[str, str]) -> Selection:
    """The selection that the fields of a form describe. Empty fields are no conditions."""
    texts: dict[str, Any] = {name: given[name].strip() for name in _TEXTS if given.get(name, "").strip()}
    states = [state for state in given.get("state", "").split(",") if state]
    unknown = [state for state in states if state not in list(JobState)]
    if unknown:
        raise InvalidInput(f"there is no state {unknown[0]}")
    return Selection(
        ids=parse_written_ids(given.get("ids", "").split(), MOST_IDS) or None,
        submission=_number(given, "submission"),
        states=states or None,
        **texts,
    )


def query_of(selection: Selection) -> str:
    """The selection as the query of an address."""
    given = _given(selection)
    for name, other in (("states", "state"), ("ids", "ids")):
        if values := given.pop(name, None):
            given[other] = ",".join(map(str, values))
    return urlencode(given)


def _given(selection: Selection) -> dict[str, Any]:
    """The conditions that are set."""
    pairs = ((field.name, getattr(selection, field.name)) for field in fields(Selection))
    return {name: value for name, value in pairs if value is not None}


async def _chosen(visit: Visit, given: dict[str, str], verb: str) -> Selection:
    if verb not in VERBS:
        raise NotFound(f"there is no verb {verb[:20]}")
    selection = selection_of(given)
    if selection == Selection():
        raise InvalidInput("no condition is given", hint="give at least one: else it would be all jobs")
    return selection


def _number(given: dict[str, str], name: str) -> int | None:
    return _to_number(given[name].strip(), name) if given.get(name, "").strip() else None


def _to_number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidInput(f"{name}: {text[:40]!r} is not a number")
    return int(text)
