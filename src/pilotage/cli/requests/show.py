"""`pilotage request show`: the funnel of a request, from elements to results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pilotage.cli.console import Column, CommandOutput
from pilotage.cli.requests.lists import NumberArgument
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_instant
from pilotage.core.plurals import plural
from pilotage.core.requests.funnel import element_stages, job_stages

if TYPE_CHECKING:
    from pilotage.wire.requests import RequestDetail, RequestError, RequestStep

BAR = 30
"""Characters of the longest bar of the funnel."""


@connected
def show(session: Session, request: NumberArgument) -> None:
    """Show a request: its elements and jobs by state, events done, sites, errors with an example, estimated end."""
    with session.client() as client:
        detail = client.request(request)
    if session.as_json:
        session.screen.json(detail)
        return
    screen, now = session.screen, time.time()
    _show_facts(screen, detail, now)
    for step in detail.steps:
        _show_step(screen, step)
    _show_sites(screen, detail)
    _show_errors(screen, detail.errors)


def _show_facts(screen: CommandOutput, detail: RequestDetail, now: float) -> None:
    row = detail.request
    exact = not screen.terminal
    open_until = "" if detail.open_until is None else format_instant(detail.open_until, now, exact=exact)
    trusts = [
        name for name, is_set in (("input", detail.trust_input), ("pile-up", detail.trust_pileup)) if is_set
    ]
    end = detail.estimated_end
    screen.facts(
        (
            ("request", f"{row.id} {row.name}"),
            ("owner", f"{row.owner} ({row.group})"),
            (
                "state",
                row.state + (", paused" if row.paused else "") + (f": {row.reason}" if row.reason else ""),
            ),
            ("pending change", "has not reached all elements and jobs yet" if detail.propagating else ""),
            ("team", row.team or "(none: no agent takes it)"),
            ("priority", row.priority),
            ("campaign", row.campaign),
            ("from request", detail.origin or ""),
            ("resubmitted", _resubmitted(detail)),
            ("sites", "all" if detail.sites == ["*"] else ", ".join(detail.sites)),
            ("banned sites", ", ".join(detail.banned_sites)),
            ("read from elsewhere", " and ".join(trusts)),
            ("takes new blocks until", open_until),
            ("logs of jobs", next((step.logs for step in detail.steps if step.logs), "")),
            ("submitted", format_instant(row.created, now, exact=exact)),
            ("estimated end", "" if end is None else format_instant(end, now, exact=exact)),
        )
    )


def _resubmitted(detail: RequestDetail) -> str:
    """Such as "2 of 2 failed parts in request 3 (completed)"."""
    parts = detail.resubmitted
    if parts is None:
        return ""
    places = ", ".join(f"request {other.request} ({other.state})" for other in parts.resubmissions)
    head = f"{parts.taken:,} of {plural(parts.failed, 'failed part')}"
    return f"{head} in {places}" if places else head


def _show_step(screen: CommandOutput, step: RequestStep) -> None:
    """The funnel of one step: a line for each stage that has elements or jobs, as wide as its part of the whole."""
    flow = f"{step.input or plural(step.events, 'event')} → {step.output or 'no data set'}"
    how = step.type if step.type == step.name else f"{step.type}, {step.algorithm}"
    screen.line()
    screen.line(f"{step.name} ({how}): {flow}")
    for title, stages in (
        ("element", element_stages(step.elements)),
        ("job", job_stages(step.estimated_jobs, step.jobs, step.pool)),
    ):
        counts = [(name, number) for name, number in stages.items() if number]
        total = sum(number for _, number in counts)
        if not total:
            continue
        screen.line(f"  {plural(total, title)}" + _estimate_note(step, title))
        for name, number in counts:
            screen.line(f"    {name:<12} {number:>11,}  {_bar(screen, number, total)}")
    screen.line(f"  {_done_text(step)}")


def _estimate_note(step: RequestStep, title: str) -> str:
    return (
        f", about {step.estimated_jobs:,} of them not made" if title == "job" and step.estimated_jobs else ""
    )


def _bar(screen: CommandOutput, number: int, total: int) -> str:
    return "█" * max(1, round(BAR * number / total)) if screen.terminal else ""


def _done_text(step: RequestStep) -> str:
    """`40 of 100 events and 4 of 10 files done; no more elements will come`."""
    parts = [
        f"{done:,} of {total:,} {noun}"
        for done, total, noun in (
            (step.done_events, step.events, "events"),
            (step.done_files, step.files, "files"),
        )
        if total
    ]
    none = "nothing done yet" if step.elements else "no elements"
    done = f"{' and '.join(parts)} done" if parts else none
    if step.complete:
        done += f"; {step.complete} % complete, {step.success} % with success"
    if step.ended:
        return f"{done}; ended"
    return f"{done}; {'all elements are there' if step.closed else 'more elements may come'}"


def _show_sites(screen: CommandOutput, detail: RequestDetail) -> None:
    if not detail.places:
        return
    screen.line()
    names = ("pending", "running", "done", "failed")
    columns = (Column("site"), *(Column(name, right=True) for name in names))
    rows = (
        (
            place.site or "(none yet)",
            *(f"{number:,}" for number in (place.pending, place.running, place.done, place.failed)),
        )
        for place in detail.places
    )
    screen.table(columns, rows)


def _show_errors(screen: CommandOutput, errors: list[RequestError]) -> None:
    """Each kind of failure: how many jobs, an example, and the end of its standard error."""
    if not errors:
        return
    screen.line()
    screen.line("errors")
    for error in errors:
        if error.element is not None:
            screen.line(f"  not split in {error.step}: {plural(error.count, 'element')}")
            screen.line(f"    element {error.element}: {error.message or 'no message'}")
            continue
        code = error.failure if error.exit_code is None else f"exit code {error.exit_code}"
        final = f", {error.exhausted:,} for good" if error.exhausted else ""
        jobs = "job" if error.count == 1 else "jobs"
        screen.line(f"  {code} in {error.step}: {error.count:,} {jobs}{final}")
        example = f"job {error.job}" if error.job is not None else "no job"
        screen.line(f"    {example}: {error.message or error.failure or 'no message'}")
        for line in error.stderr.splitlines()[-5:]:
            screen.line(f"      {line}")
