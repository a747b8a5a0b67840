"""`pilotage storage list|test`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pilotage.cli.asked_services import show_facts, state_of
from pilotage.cli.console import Column, Columns
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import Session, connected

if TYPE_CHECKING:
    from pilotage.wire.storage import StorageSummary


@connected
def list_storage(session: Session) -> None:
    """List the storage places of the policy that are no folders: their addresses, and whether S3 services answer."""
    with session.client() as client:
        summaries = client.storage()
    session.screen.json({"storage": summaries})
    columns: Columns[StorageSummary] = (
        (Column("storage"), lambda row: row.name),
        (Column("type", rank=2), lambda row: row.type),
        (Column("state"), lambda row: state_of(row)),
        (Column("since", rank=1), lambda row: session.screen.instant(row.since)),
        (Column("address"), lambda row: row.address),
        (Column("problem", text=True), lambda row: row.problem),
    )
    session.screen.listing(columns, summaries)


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
