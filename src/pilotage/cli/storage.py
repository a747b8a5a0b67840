"""`pilotage storage list|test`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column
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
    columns = (
        Column("storage"),
        Column("type", rank=2),
        Column("state"),
        Column("since", rank=1),
        Column("address"),
        Column("problem", text=True),
    )
    rows = (
        (row.name, row.type, _state(row), session.screen.instant(row.since), row.address, row.problem)
        for row in summaries
    )
    session.screen.table(columns, rows)


def _state(row: StorageSummary) -> str:
    if row.since is None:
        return "not asked"
    return "problem" if row.problem else "serves"


@connected
def test(
    session: Session,
    name: Annotated[
        str, CommandArgument(metavar="NAME", help="A table `storage` of the policy, of the type s3")
    ],
) -> int:
    """Ask an S3 service now whether its bucket is there and the server's key can list it."""
    with session.client() as client:
        summary = client.test_storage(name)
    session.screen.json(summary)
    session.screen.facts(
        (
            ("storage", f"{summary.name} ({summary.type})"),
            ("address", summary.address),
            ("state", f"{_state(summary)} since {session.screen.instant(summary.since)}"),
            ("problem", summary.problem),
        )
    )
    return 1 if summary.problem else 0
