"""Reads the figures of a report from the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.core.errors import NotFound, PilotageError
from pilotage.core.plurals import plural
from pilotage.report import tables
from pilotage.report.figures import FailureCause, PlaceUse, WorkReport
from pilotage.report.questions import Answer, Reading
from pilotage.report.readings import last_line, use_facts, utc, version_facts

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.jobs import JobSummary

MOST_CAUSES = 10
FAILURES_READ = 1000
"""The newest failed jobs of a month that are grouped."""


def answered(client: Client, reading: Reading[Answer]) -> Answer:
    """The outcome of a reading whose questions the client asks."""
    try:
        question = next(reading)
        while True:
            try:
                answer = client.call(question.call, question.request, **question.parts)
            except PilotageError as error:
                question = reading.throw(error)
            else:
                question = reading.send(answer)
    except StopIteration as end:
        outcome: Answer = end.value
        return outcome


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
        *use_facts(use),
        *answered(client, version_facts(now)),
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
