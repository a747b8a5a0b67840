"""Why made jobs of a request are not released, by the functions that release them."""

from __future__ import annotations

from pilotage.core.workqueue.release_why import MadeJobs, ReleaseFacts
from pilotage.core.workqueue.roll_up import WORKING, is_working
from pilotage.core.workqueue.why import unblocks, verdicts
from pilotage.services.requests.why_wording import CHANGES_SHOWN, best_advice, closest_condition
from pilotage.services.workqueue.release_loads import counted_agent, loads_of_team, loads_together
from pilotage.services.workqueue.state import WorkQueue, site_rules
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_jobs, queued_requests, releasing, request_waits
from pilotage.store.tables.queued_requests import QueuedRequest
from pilotage.wire.request_why import ReleaseChange, ReleaseCondition, RequestWhy


def explain_made_jobs(
    work_queue: WorkQueue, connection: Connection, request: QueuedRequest, answer: RequestWhy, now: float
) -> tuple[str, str]:
    """Add the verdicts of the sites and the changes that help; returns the summary and the advice."""
    live = releasing.live_agents(connection, now).get(request.team, [])
    groups = _groups(work_queue, connection, request, live, answer.element, now)
    if not groups:
        return "its made jobs are being cancelled", ""
    facts = _facts(work_queue, connection, request, live)
    rows, changes = verdicts(groups, facts), unblocks(groups, facts)
    answer.made_jobs = [
        ReleaseCondition(row.site, "" if row.verdict is None else str(row.verdict), row.number)
        for row in rows
    ]
    answer.releases = [ReleaseChange(*change) for change in changes[:CHANGES_SHOWN]]
    total = sum(group.number for group in groups)
    open_ = sum(group.number for group in groups if facts.is_open(group))
    advice = best_advice(rows, changes, facts.closed_by_policy)
    if answer.waiting_job is not None:
        advice += (
            f"{'; ' if advice else ''}`pilotage why {answer.waiting_job}` explains the oldest job in the pool"
        )
    if open_:
        return f"{open_:,} of {total:,} made jobs have a site that takes them: the release goes on", advice
    noun = "job" if total == 1 else "jobs"
    return f"no site takes its {total:,} made {noun} now: {closest_condition(rows)}", advice


def _groups(
    work_queue: WorkQueue,
    connection: Connection,
    request: QueuedRequest,
    live: list[int],
    element: int | None,
    now: float,
) -> list[MadeJobs]:
    steps = {step.position: step for step in queued_requests.steps_of(connection, [request.id])}
    return [
        MadeJobs(
            made.jobs,
            request.priority,
            work_queue.locations(connection, steps[made.step], made.location_set, now),
            steps[made.step].type,
            counted_agent(made.agent, live),
            element_jobs.avoided(made.avoided_sites),
        )
        for made in request_waits.made_jobs(connection, request.id, element)
        if is_working(request.state, steps[made.step].type)
    ]


def _facts(
    work_queue: WorkQueue, connection: Connection, request: QueuedRequest, live: list[int]
) -> ReleaseFacts:
    """The facts that the next release would decide by."""
    counts = element_jobs.released_counts(connection, releasing.in_states(connection, sorted(WORKING)))
    counted = sorted({count.request for count in counts})
    requests = queued_requests.by_ids(connection, counted)
    steps = {(step.request_id, step.position): step for step in queued_requests.steps_of(connection, counted)}
    together = loads_together(counts, requests, steps)
    loads = loads_of_team(work_queue, request.team, live, counts, requests, steps, together)
    return ReleaseFacts(
        site_rules(request), work_queue.site_states(), loads, closed_by_policy=work_queue.closed_by_policy()
    )
