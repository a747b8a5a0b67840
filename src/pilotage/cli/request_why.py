"""`pilotage request why`, and the answer of `pilotage why` for a request or an element."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_instant

if TYPE_CHECKING:
    from pilotage.wire.request_why import RequestWhy

OPEN = "open: the next pull may take them"
RELEASED_NEXT = "open: the next release may take them"


@connected
def why_request(
    session: Session,
    request: Annotated[int, CommandArgument("Number of the request", "REQUEST")],
) -> None:
    """Explain why a request is not further: each site's condition, and the changes that would help."""
    with session.client() as client:
        show_request(session, client.why_request(request), time.time())


def show_request(session: Session, answer: RequestWhy, now: float) -> None:
    """Print the summary, the verdict of each site, and the changes that would help."""
    session.screen.json(answer)
    session.screen.facts(_facts(answer, now, exact=not session.screen.terminal))
    for title, columns, rows in _tables(answer):
        if rows:
            session.screen.line()
            session.screen.line(title)
            session.screen.table(columns, rows)


def _tables(answer: RequestWhy) -> Iterator[tuple[str, tuple[Column, ...], list[tuple[str, ...]]]]:
    elements, jobs = Column("elements", right=True), Column("jobs", right=True)
    yield (
        "Elements that no agent has, by site",
        (Column("site"), elements, Column("condition")),
        [(row.site, f"{row.elements:,}", row.reason or OPEN) for row in answer.sites],
    )
    yield (
        "Single changes that would let elements go",
        (elements, Column("change")),
        [(f"{row.elements:,}", row.change) for row in answer.changes],
    )
    yield (
        "Jobs that are made and not released, by site",
        (Column("site"), jobs, Column("condition")),
        [(row.site, f"{row.jobs:,}", row.reason or RELEASED_NEXT) for row in answer.made_jobs],
    )
    yield (
        "Single changes that would let made jobs go",
        (jobs, Column("change")),
        [(f"{row.jobs:,}", row.change) for row in answer.releases],
    )


def _facts(answer: RequestWhy, now: float, *, exact: bool) -> Iterator[tuple[str, object]]:
    yield "request", f"{answer.request} ({answer.name}, {answer.state})"
    if answer.element is not None:
        yield "element", answer.element
    yield "why", answer.summary
    yield "hint", answer.advice
    yield "elements", _counts(answer.elements)
    yield "jobs", _counts(answer.jobs)
    if answer.next_retry is not None:
        yield "next retry", format_instant(answer.next_retry, now, exact=exact)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in counts.items())
