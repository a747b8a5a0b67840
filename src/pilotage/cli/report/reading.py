"""Reads the figures of a submission, a request or a month from the server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pilotage import __version__, wire
from pilotage.cli.report import tables
from pilotage.cli.report.figures import AttemptSums, FailureCause, PlaceUse, WorkReport
from pilotage.cli.time_format import format_duration
from pilotage.core.errors import Forbidden, NotFound
from pilotage.core.plurals import plural
from pilotage.wire.queries import PageQuery

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.jobs import JobSummary
    from pilotage.wire.requests import RequestDetail

MOST_CAUSES = 10
FAILURES_READ = 1000
"""The newest failed jobs of a month that are grouped."""
LINE_LENGTH = 200


def read_submission(client: Client, number: int, now: float) -> WorkReport:
    progress = client.submission_progress(number)
    row = progress.submission
    sums = AttemptSums(now)
    sums.add_all(client.attempts(wire.jobs.Selection(submission=number)))
    left = "" if progress.time_left is None else f"about {format_duration(progress.time_left)}"
    causes = [
        FailureCause(group.reason, group.count, f"job {group.job}", group.last_line)
        for group in progress.failures
    ]
    note = f"Of the last {plural(progress.failures_read, 'failed job')}." if causes else ""
    facts = [
        ("name", row.name),
        ("owner", f"{row.owner} ({row.group})"),
        ("submitted", utc(row.submitted)),
        ("ended", f"{progress.ended:,} of {plural(row.count, 'job')}"),
        ("rate", "" if progress.rate is None else f"{progress.rate:,.1f} ends in an hour"),
        ("time left", left),
        *_use_facts(sums.total),
        *version_facts(client, now),
    ]
    shown = [tables.states_table(row.states), tables.places_table(sums)]
    document = {"submission": progress, "places": list(sums.places.values())}
    return WorkReport(
        f"Submission {number}: {row.name}", facts, row.states, causes, note, shown, sums, document
    )


def read_request(client: Client, number: int, now: float) -> WorkReport:
    detail = client.request(number)
    row = detail.request
    chosen = wire.jobs.Selection(request=number)
    sums, states = AttemptSums(now), client.counts(chosen).states
    sums.add_all(client.attempts(chosen))
    facts = [
        ("name", row.name),
        ("owner", f"{row.owner} ({row.group})"),
        ("submitted", utc(row.created)),
        ("state", row.state + (f": {row.reason}" if row.reason else "")),
        ("campaign", row.campaign),
        ("elements", f"{row.ended_elements:,} of {row.elements:,} ended"),
        ("jobs", f"{row.done_jobs:,} of {row.jobs:,} done, {row.failed_jobs:,} failed for good"),
        ("estimated end", "" if detail.estimated_end is None else utc(detail.estimated_end)),
        *_use_facts(sums.total),
        ("note", "jobs of others are not shown" if row.done_jobs and not sums.places else ""),
        *version_facts(client, now),
    ]
    shown = [tables.steps_table(detail), tables.request_places_table(detail)]
    shown += [tables.states_table(states), tables.places_table(sums)]
    document = {"request": detail, "places": list(sums.places.values())}
    return WorkReport(
        f"Request {number}: {row.name}", facts, states, _request_causes(detail), "", shown, sums, document
    )


def _request_causes(detail: RequestDetail) -> list[FailureCause]:
    causes = []
    for error in detail.errors:
        code = "" if error.exit_code is None else f"exit code {error.exit_code}"
        words = [f"step {error.step}", error.failure, code, error.message]
        example = f"job {error.job}" if error.job is not None else f"element {error.element}"
        cause = ": ".join(word for word in words if word)
        causes.append(FailureCause(cause, error.count, example, last_line(error.stderr.encode())))
    return causes


def read_month(client: Client, month: str, begin: float, end: float, now: float) -> WorkReport:
    rows = client.accounting(begin, end)
    chosen = wire.jobs.Selection(ended_since=begin, ended_before=end)
    states = client.counts(chosen).states
    cost = next((row for row in client.costs(by="month").rows if row.name == month), None)
    causes, read = _month_causes(client, begin, end)
    use = PlaceUse(
        "", "", core_seconds=sum(row.core_wall for row in rows), cpu_seconds=sum(row.cpu for row in rows)
    )
    facts = [
        ("month", f"{month} (UTC)" + ("" if now >= end else f", up to {utc(now)}")),
        ("jobs that ended", f"{sum(states.values()):,}"),
        *_use_facts(use),
        *version_facts(client, now),
    ]
    shown = [tables.states_table(states)]
    shown += [
        tables.accounts_table("Usage by site", ("site",), rows),
        tables.accounts_table("Usage by group and owner", ("group", "owner"), rows),
    ]
    if cost is not None:
        shown.append(tables.costs_table(cost))
    note = f"Of the newest {plural(read, 'failed job')} that ended in the month." if causes else ""
    document = {"month": month, "states": states, "accounting": rows, "cost": cost, "failures": causes}
    return WorkReport(f"Usage in {month}", facts, states, causes, note, shown, None, document)


def _month_causes(client: Client, begin: float, end: float) -> tuple[list[FailureCause], int]:
    """The newest failed jobs of a period by their reason, and how many were read."""
    chosen = wire.jobs.Selection(states=["Failed"], ended_since=begin, ended_before=end)
    by_reason: dict[str, list[JobSummary]] = {}
    read = 0
    for job in client.jobs(chosen, newest=True):
        by_reason.setdefault(job.reason, []).append(job)
        read += 1
        if read == FAILURES_READ:
            break
    groups = sorted(by_reason.items(), key=lambda item: -len(item[1]))[:MOST_CAUSES]
    return [
        FailureCause(reason, len(jobs), f"job {jobs[0].id}", _last_error_line(client, jobs[0].id))
        for reason, jobs in groups
    ], read


def _last_error_line(client: Client, job: int) -> str:
    """Empty if the server does not have the standard error of the job any more."""
    try:
        return last_line(client.log(job, stream="stderr").data)
    except NotFound:
        return ""


def last_line(data: bytes) -> str:
    lines = data.rstrip()[-4 * LINE_LENGTH :].decode("utf-8", "replace").splitlines()
    return lines[-1][:LINE_LENGTH] if lines else ""


def utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _use_facts(use: PlaceUse) -> list[tuple[str, str]]:
    return [
        ("core-seconds", f"{_amount(use.core_seconds)} ({tables.core_hours(use.core_seconds)} core-hours)"),
        ("CPU seconds", _amount(use.cpu_seconds)),
    ]


def _amount(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3f}"


def version_facts(client: Client, now: float) -> list[tuple[str, str]]:
    """The versions by which the report was made. Only administrators may read that of the policy."""
    identity = client.call(wire.identity.WHOAMI)
    try:
        policies = client.call(wire.policy.LIST_VERSIONS, PageQuery(limit=1)).versions
    except Forbidden:
        policies = []
    return [
        ("server", f"Pilotage {identity.server_version}"),
        ("report", f"made by Pilotage {__version__} for {identity.user} on {utc(now)}"),
        ("policy", f"version {policies[0].version}" if policies else ""),
    ]
