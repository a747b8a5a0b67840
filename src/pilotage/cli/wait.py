"""`pilotage wait`: until jobs have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pilotage.cli.choosing import (
    GroupOption,
    IdsArgument,
    JobGroupOption,
    OwnerOption,
    SubmissionOption,
    chosen,
    required,
)
from pilotage.cli.moments import parse_span
from pilotage.cli.screen import Screen, counts_text
from pilotage.cli.session import LONG_PATIENCE, Session, connected
from pilotage.wire.people import Counts, Selection

if TYPE_CHECKING:
    from pilotage.client import Client

JOB_FAILED = 1


@connected
def wait(
    session: Session,
    ids: IdsArgument = None,
    submission: SubmissionOption = None,
    owner: OwnerOption = None,
    group: GroupOption = None,
    job_group: JobGroupOption = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Give up after so long: 90s, 15m, 2h")
    ] = "",
) -> int | None:
    """Wait until jobs have ended. The exit code is 0 if all are Done, else 1."""
    selection = required(chosen(ids, submission, None, owner, group, job_group), "wait")
    limit = parse_span(timeout) if timeout else None
    with session.client(patience=LONG_PATIENCE) as client:
        counts = watch_to_end(session.screen, client, selection, limit)
    if session.as_json:
        session.screen.json(counts)
    return verdict(session.screen, counts)


def watch_to_end(
    screen: Screen, client: Client, selection: Selection, timeout: float | None = None
) -> Counts:
    """Wait with a progress bar; the last counts."""
    with screen.progress("jobs") as advance:
        return client.wait(
            selection,
            timeout=timeout,
            progress=lambda counts: advance(counts.final, counts.total, counts_text(counts)),
        )


def verdict(screen: Screen, counts: Counts) -> int:
    """Say how it ended; the exit code."""
    screen.line(counts_text(counts))
    if counts.final < counts.total:
        screen.note(f"pilotage: {counts.total - counts.final:,} of {counts.total:,} jobs have not ended yet")
    return 0 if counts.states.get("Done", 0) == counts.total else JOB_FAILED
