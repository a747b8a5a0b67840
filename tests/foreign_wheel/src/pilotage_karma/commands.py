"""A command that asks the server."""

from __future__ import annotations

from typing import Annotated

from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected


@connected
def karma(
    session: Session,
    least: Annotated[int, CommandOption("Only states of this many jobs at least")] = 0,
) -> None:
    """Show how many jobs there are in each state."""
    counts = session.client().counts()
    session.screen.json({"states": counts.states})
    for state, number in sorted(counts.states.items()):
        if number >= least:
            session.screen.line(f"{state}: {number}")
