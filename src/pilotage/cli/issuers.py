"""`pilotage issuer list|test`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pilotage.cli.asked_services import show_facts, state_of
from pilotage.cli.console import Column, Columns
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import Session, connected

if TYPE_CHECKING:
    from pilotage.wire.issuers import IssuerSummary

SERVING = "answers"


@connected
def list_issuers(session: Session) -> None:
    """List the OpenID Connect issuers that the policy trusts, and whether the server can read their keys."""
    with session.client() as client:
        summaries = client.issuers()
    session.screen.json({"issuers": summaries})
    columns: Columns[IssuerSummary] = (
        (Column("issuer"), lambda row: row.name),
        (Column("url"), lambda row: row.url),
        (Column("sign_in", rank=1), lambda row: "command line" if row.client else "programs only"),
        (Column("state"), lambda row: state_of(row, SERVING)),
        (Column("since", rank=2), lambda row: session.screen.instant(row.since)),
        (Column("problem", text=True), lambda row: row.problem),
    )
    session.screen.listing(columns, summaries)


@connected
def test(
    session: Session,
    name: Annotated[str, CommandArgument("A table `issuers` of the policy", "NAME")],
) -> int:
    """Let the server read the keys of an issuer now."""
    with session.client() as client:
        row = client.test_issuer(name)
    session.screen.json(row)
    show_facts(session, row, ("issuer", f"{row.name} ({row.url})"), serving=SERVING)
    return 1 if row.problem else 0
