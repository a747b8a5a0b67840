"""`pilotage site list|show|drain|down|enable`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pilotage.cli.console import Column
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_instant, parse_end
from pilotage.core.errors import NotFound

if TYPE_CHECKING:
    from pilotage.wire.sites import SiteSummary

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A site of the policy")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason to record")]
UntilOption = Annotated[
    str,
    typer.Option(
        "--until",
        metavar="TIME",
        help="The site becomes normal then: in 90m, 2h, 3d, or a date; otherwise never",
    ),
]


@connected
def list_sites(session: Session) -> int | None:
    """List the sites: their state, pilots and jobs."""
    with session.client() as client:
        sites = client.sites()
    if session.as_json:
        session.screen.json({"sites": sites})
        return None
    now, exact = time.time(), not session.screen.terminal
    columns = (
        Column("site"),
        Column("state"),
        Column("ces", text=True, rank=3),
        Column("slots", right=True, rank=2),
        Column("pilots", rank=2),
        Column("running", right=True),
        Column("waiting", right=True),
        Column("until", rank=1),
        Column("reason", text=True),
    )
    rows = (
        (
            site.name,
            site.state,
            ",".join(site.ces),
            site.slots,
            ", ".join(f"{number} {state}" for state, number in sorted(site.pilots.items())),
            site.running,
            site.waiting,
            "" if site.until is None else format_instant(site.until, now, exact=exact),
            site.reason,
        )
        for site in sites
    )
    session.screen.table(columns, rows)
    return None


@connected
def show(session: Session, name: NameArgument) -> int | None:
    """Show one site: its state with who set it, when and why, its CEs, pilots and jobs."""
    with session.client() as client:
        site = _find(client.sites(), name)
    if session.as_json:
        session.screen.json(site)
        return None
    now, exact = time.time(), not session.screen.terminal
    pilots = ", ".join(f"{number} {state}" for state, number in sorted(site.pilots.items()))
    facts = {
        "site": site.name,
        "state": site.state,
        "set by": site.changed_by,
        "since": "" if site.since is None else format_instant(site.since, now, exact=exact),
        "until": "" if site.until is None else format_instant(site.until, now, exact=exact),
        "reason": site.reason,
        "CEs": ", ".join(site.ces) or "none",
        "slots": str(site.slots),
        "pilots": pilots or "none",
        "running": f"{site.running} jobs",
        "waiting": f"{site.waiting} jobs may run there",
    }
    for label, text in facts.items():
        if text:
            session.screen.line(f"{label:<9}{text}")
    return None


def _find(sites: list[SiteSummary], name: str) -> SiteSummary:
    for site in sites:
        if site.name == name:
            return site
    raise NotFound(f"the policy has no site {name}", hint="see `pilotage site list`")


@connected
def drain(
    session: Session, name: NameArgument, until: UntilOption = "", reason: ReasonOption = ""
) -> int | None:
    """Drain a site: no new elements for it, and pilots only for jobs that can run nowhere else."""
    return _set(session, name, "drain", until, reason)


@connected
def down(
    session: Session, name: NameArgument, until: UntilOption = "", reason: ReasonOption = ""
) -> int | None:
    """Take a site down: no pilot is submitted, and no job starts. Running jobs go on."""
    return _set(session, name, "down", until, reason)


@connected
def enable(session: Session, name: NameArgument, reason: ReasonOption = "") -> int | None:
    """Make a site normal again."""
    return _set(session, name, "normal", "", reason)


def _set(session: Session, name: str, state: str, until: str, reason: str) -> int | None:
    now = time.time()
    end = parse_end(until, now) if until else None
    with session.client() as client:
        site = client.set_site_state(name, state, until=end, reason=reason)
    if session.as_json:
        session.screen.json(site)
        return None
    text = {"normal": "is normal", "drain": "is drained", "down": "is down"}[site.state]
    if site.state != state:
        text += ", since the policy says so"
    elif site.until is not None:
        text += f" until {format_instant(site.until, now, exact=not session.screen.terminal)}"
    session.screen.line(f"site {name} {text}")
    return None
