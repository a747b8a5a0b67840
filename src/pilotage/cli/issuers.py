"""`pilotage issuer list|test`."""

from __future__ import annotations

from typing import Annotated

from pilotage.cli.asked_services import show_facts, state_of
from pilotage.cli.console import Column
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import Session, connected

SERVING = "answers"


@connected
def list_issuers(session: Session) -> None:
    """List the OpenID Connect issuers that the policy trusts, and whether the server can read their keys."""
    with session.client() as client:
        summaries = client.issuers()
    session.screen.json({"issuers": summaries})
    columns = (
        Column("issuer"),
        Column("url"),
        Column("sign_in", rank=1),
        Column("state"),
        Column("since", rank=2),
        Column("problem", text=True),
    )
    rows = (
        (
            row.name,
            row.url,
            "command line" if row.client else "programs only",
            state_of(row, SERVING),
            session.screen.instant(row.since),
            row.problem,
        )
        for row in summaries
    )
    session.screen.table(columns, rows)


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
