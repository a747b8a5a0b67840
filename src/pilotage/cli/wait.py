"""`pilotage wait`: wait until jobs have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotage.cli.console import CommandOutput, format_counts
from pilotage.cli.job_selection import (
    IdsArgument,
    LastingConditions,
    no_jobs_error,
    require_named_jobs,
    require_selection,
)
from pilotage.cli.option_groups import with_option_groups
from pilotage.cli.outcome import WaitOutcome, note_jobs_continue, report_outcome
from pilotage.cli.session import LONG_PATIENCE, Session, TimeoutOption, connected
from pilotage.cli.time_format import parse_duration
from pilotage.core.errors import NotFound

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.jobs import Selection


@connected
@with_option_groups
def wait(
    session: Session,
    conditions: LastingConditions,
    ids: IdsArgument = None,
    timeout: TimeoutOption = "",
) -> int | None:
    """Wait until jobs have ended. The exit code is 0 if all are Done with all their outputs.

    It is 1 if a job is not Done, and 8 if all are Done but an output is missing.
    """
    selection = require_selection(conditions.selection(ids), "wait")
    limit = parse_duration(timeout) if timeout else None
    with session.client(patience=LONG_PATIENCE) as client:
        require_named_jobs(client, ids)
        outcome = watch_to_end(session.screen, client, selection, limit)
    session.screen.json(outcome)
    return outcome.code


def watch_to_end(
    screen: CommandOutput, client: Client, selection: Selection, timeout: float | None = None
) -> WaitOutcome:
    """Wait with a progress bar, then report how the jobs ended."""
    with note_jobs_continue(screen, selection), screen.progress("jobs") as advance:
        try:
            counts = client.wait(
                selection,
                timeout=timeout,
                progress=lambda counts: advance(counts.final, counts.total, format_counts(counts)),
            )
        except NotFound:
            raise no_jobs_error(client, selection) from None
    return report_outcome(screen, client, selection, counts)
