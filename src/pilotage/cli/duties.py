"""`pilotage server duties`, and the line of `status` about rows that the server cannot process."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pilotage.cli.console import Column, Columns
from pilotage.cli.session import Session, connected
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.duties import FailingRowSummary


@connected
def duties(session: Session) -> None:
    """List the rows that duties of the server cannot process. Other rows do not wait for them."""
    with session.client() as client:
        answer = client.duties()
    session.screen.json(answer)
    columns: Columns[FailingRowSummary] = (
        (Column("duty"), lambda row: row.duty),
        (Column("step"), lambda row: row.step or "whole cycle"),
        (Column("row"), lambda row: row.row),
        (Column("since"), lambda row: session.screen.instant(row.since)),
        (Column("error"), lambda row: row.error),
    )
    session.screen.listing(columns, answer.failing)
    if session.screen.terminal and not answer.count:
        session.screen.line(f"All duties work: {len(answer.duties)}.")


def failing_line(client: Client) -> str:
    """A sentence about the rows that the server cannot process; empty: there are none."""
    answer = client.duties()
    if not answer.count:
        return ""
    counts = Counter(row.duty for row in answer.failing)
    named = ", ".join(f"{duty} ({number})" for duty, number in sorted(counts.items()))
    return f"the server cannot process {plural(answer.count, 'row')}: {named}; see `pilotage server duties`"
