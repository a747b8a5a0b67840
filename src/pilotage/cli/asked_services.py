"""Services outside that the server asks whether they serve: issuers, storage and catalogues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pilotage.cli.session import Session


class AskedService(Protocol):
    problem: str
    since: float | None
    """Since when it serves, or has the problem; None: nobody has asked it."""


def state_of(row: AskedService, serving: str = "serves") -> str:
    if row.since is None:
        return "not asked"
    return "problem" if row.problem else serving


def show_facts(
    session: Session,
    row: AskedService,
    *named: tuple[str, object],
    more: Iterable[tuple[str, object]] = (),
    serving: str = "serves",
) -> None:
    """Show the facts `named`, the state and the problem, then `more`."""
    state, since = state_of(row, serving), session.screen.instant(row.since)
    dated = f"{state} since {since}" if since else state
    session.screen.facts((*named, ("state", dated), ("problem", row.problem), *more))
