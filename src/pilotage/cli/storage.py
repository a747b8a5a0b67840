"""`pilotage storage list|test`."""

from __future__ import annotations

from typing import Annotated

from pilotage.cli.asked_services import show_facts, state_of
from pilotage.cli.console import Column
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import Session, connected


@connected
def list_storage(session: Session) -> None:
    """List the storage places of the policy that are no folders: their addresses, and whether S3 services answer."""
    with session.client() as client:
        summaries = client.storage()
    session.screen.json({"storage": summaries})
    columns = (
        Column("storage"),
        Column("type", rank=2),
        Column("state"),
        Column("since", rank=1),
        Column("address"),
        Column("problem", text=True),
    )
    rows = (
        (row.name, row.type, state_of(row), session.screen.instant(row.since), row.address, row.problem)
        for row in summaries
    )
    session.screen.table(columns, rows)


@connected
def test(
    session: Session,
    name: Annotated[str, CommandArgument("A table `storage` of the policy, of the type s3", "NAME")],
) -> int:
    """Ask an S3 service now whether its bucket is there and the server's key can list it."""
    with session.client() as client:
        summary = client.test_storage(name)
    session.screen.json(summary)
    named = f"{summary.name} ({summary.type})"
    show_facts(session, summary, ("storage", named), ("address", summary.address))
    return 1 if summary.problem else 0
