"""`pilotage site list|show|drain|down|enable`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column, Columns
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import ReasonOption, Session, connected
from pilotage.cli.time_format import parse_end
from pilotage.core.errors import NotFound
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.sites import SiteSummary

NameArgument = Annotated[str, CommandArgument("A site of the policy", "NAME")]
UntilOption = Annotated[
    str,
    CommandOption("When the site becomes normal again: in 90m, 2h, 3d, or a date; otherwise never", "TIME"),
]


@connected
def list_sites(session: Session) -> None:
    """List the sites: their state, pilots and jobs."""
    with session.client() as client:
        sites = client.sites()
    session.screen.json({"sites": sites})
    columns: Columns[SiteSummary] = (
        (Column("site"), lambda site: site.name),
        (Column("state"), lambda site: site.state),
        (Column("ces", text=True, rank=3), lambda site: ",".join(site.ces)),
        (Column("slots", right=True, rank=2), lambda site: site.slots),
        (
            Column("pilots", rank=2),
            lambda site: ", ".join(f"{number} {state}" for state, number in sorted(site.pilots.items())),
        ),
        (Column("running", right=True), lambda site: site.running),
        (Column("waiting", right=True), lambda site: site.waiting),
        (Column("until", rank=1), lambda site: session.screen.instant(site.until)),
        (Column("reason", text=True), lambda site: site.reason),
    )
    session.screen.listing(columns, sites)


@connected
def show(session: Session, name: NameArgument) -> None:
    """Show one site: its state with who set it, when and why, its CEs, pilots and jobs."""
    with session.client() as client:
        site = _find(client.sites(), name)
    session.screen.json(site)
    pilots = ", ".join(f"{number} {state}" for state, number in sorted(site.pilots.items()))
    facts = {
        "site": site.name,
        "state": site.state,
        "set by": site.changed_by,
        "since": session.screen.instant(site.since),
        "until": session.screen.instant(site.until),
        "reason": site.reason,
        "CEs": ", ".join(site.ces) or "none",
        "slots": str(site.slots),
        "pilots": pilots or "none",
        "running": plural(site.running, "job"),
        "waiting": f"{plural(site.waiting, 'job')} may run there",
    }
    for label, text in facts.items():
        if text:
            session.screen.line(f"{label:<9}{text}")


def _find(sites: list[SiteSummary], name: str) -> SiteSummary:
    for site in sites:
        if site.name == name:
            return site
    raise NotFound(f"the policy has no site {name}", hint="see `pilotage site list`")


@connected
def drain(session: Session, name: NameArgument, until: UntilOption = "", reason: ReasonOption = "") -> None:
    """Drain a site: no new elements for it, and pilots only for jobs that can run nowhere else."""
    _set(session, name, "drain", until, reason)


@connected
def down(session: Session, name: NameArgument, until: UntilOption = "", reason: ReasonOption = "") -> None:
    """Take a site down: no pilot is submitted, and no job starts. Running jobs go on."""
    _set(session, name, "down", until, reason)


@connected
def enable(session: Session, name: NameArgument, reason: ReasonOption = "") -> None:
    """Make a site normal again."""
    _set(session, name, "normal", "", reason)


def _set(session: Session, name: str, state: str, until: str, reason: str) -> None:
    now = time.time()
    end = parse_end(until, now) if until else None
    with session.client() as client:
        site = client.set_site_state(name, state, until=end, reason=reason)
    session.screen.json(site)
    text = {"normal": "is normal", "drain": "is drained", "down": "is down"}[site.state]
    if site.state != state:
        text += ", since the policy says so"
    elif site.until is not None:
        text += f" until {session.screen.instant(site.until)}"
    session.screen.line(f"site {name} {text}")
