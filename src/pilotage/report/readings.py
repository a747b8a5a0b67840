"""The reports of a submission and of a request, from the answers of API calls."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pilotage import __version__
from pilotage.core.errors import Forbidden
from pilotage.core.jobs.durations import format_duration
from pilotage.core.plurals import plural
from pilotage.report import tables
from pilotage.report.figures import AttemptSums, FailureCause, PlaceUse, WorkReport
from pilotage.report.questions import Reading, ask
from pilotage.wire.attempts import LIST_ATTEMPTS, AttemptsQuery
from pilotage.wire.identity import WHOAMI
from pilotage.wire.jobs import COUNT_JOBS, Selection
from pilotage.wire.limits import MAX_PAGE
from pilotage.wire.policy import LIST_VERSIONS
from pilotage.wire.queries import PageQuery
from pilotage.wire.requests import SHOW_REQUEST
from pilotage.wire.submission_progress import SHOW_PROGRESS

if TYPE_CHECKING:
    from pilotage.wire.requests import RequestDetail

LINE_LENGTH = 200


def read_submission(number: int, now: float) -> Reading[WorkReport]:
    progress = yield from ask(SHOW_PROGRESS, submission_id=number)
    row = progress.submission
    sums = yield from _attempts(AttemptsQuery(submission=number), now)
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
        *use_facts(sums.total),
        *(yield from version_facts(now)),
    ]
    shown = [tables.states_table(row.states), tables.places_table(sums)]
    document = {"submission": progress, "places": list(sums.places.values())}
    return WorkReport(
        f"Submission {number}: {row.name}", facts, row.states, causes, note, shown, sums, document
    )


def read_request(number: int, now: float) -> Reading[WorkReport]:
    detail = yield from ask(SHOW_REQUEST, request=number)
    row = detail.request
    states = (yield from ask(COUNT_JOBS, Selection(request=number))).states
    sums = yield from _attempts(AttemptsQuery(request=number), now)
    facts = [
        ("name", row.name),
        ("owner", f"{row.owner} ({row.group})"),
        ("submitted", utc(row.created)),
        ("state", row.state + (f": {row.reason}" if row.reason else "")),
        ("campaign", row.campaign),
        ("elements", f"{row.ended_elements:,} of {row.elements:,} ended"),
        ("jobs", f"{row.done_jobs:,} of {row.jobs:,} done, {row.failed_jobs:,} failed for good"),
        ("estimated end", "" if detail.estimated_end is None else utc(detail.estimated_end)),
        *use_facts(sums.total),
        ("note", "jobs of others are not shown" if row.done_jobs and not sums.places else ""),
        *(yield from version_facts(now)),
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


def _attempts(asked: AttemptsQuery, now: float) -> Reading[AttemptSums]:
    """All attempts of the selected jobs, added up."""
    sums, asked = AttemptSums(now), replace(asked, limit=MAX_PAGE)
    while True:
        page = yield from ask(LIST_ATTEMPTS, asked)
        sums.add_all(page.attempts)
        if page.next is None:
            return sums
        asked = replace(asked, after=page.next)


def last_line(data: bytes) -> str:
    lines = data.rstrip()[-4 * LINE_LENGTH :].decode("utf-8", "replace").splitlines()
    return lines[-1][:LINE_LENGTH] if lines else ""


def utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def use_facts(use: PlaceUse) -> list[tuple[str, str]]:
    return [
        (
            "core-seconds of attempts",
            f"{_amount(use.core_seconds)} ({tables.core_hours(use.core_seconds)} core-hours)",
        ),
        ("CPU seconds", _amount(use.cpu_seconds)),
    ]


def _amount(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3f}"


def version_facts(now: float) -> Reading[list[tuple[str, str]]]:
    """The versions by which the report was made. Only administrators may read that of the policy."""
    identity = yield from ask(WHOAMI)
    try:
        policies = (yield from ask(LIST_VERSIONS, PageQuery(limit=1))).versions
    except Forbidden:
        policies = []
    return [
        ("server", f"Pilotage {identity.server_version}"),
        ("report", f"made by Pilotage {__version__} for {identity.user} on {utc(now)}"),
        ("policy", f"version {policies[0].version}" if policies else ""),
    ]
