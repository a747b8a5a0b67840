"""`pilotage ban user|list|lift` and `pilotage unban`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import ReasonOption, Session, connected
from pilotage.cli.time_format import parse_end

if TYPE_CHECKING:
    from pilotage.wire.bans import BanSummary

UserArgument = Annotated[str, CommandArgument("A user of the policy", "USER")]
SiteOption = Annotated[str | None, CommandOption("Only at this site; otherwise at all", "NAME")]


@connected
def ban(
    session: Session,
    user: UserArgument,
    site: SiteOption = None,
    until: Annotated[
        str, CommandOption("End of the ban: in 90m, 2h, 3d, or a date; otherwise none", "TIME")
    ] = "",
    reason: ReasonOption = "",
) -> None:
    """Ban a user from a site: their running jobs there are killed, and none starts until the ban ends."""
    now = time.time()
    with session.client() as client:
        summary = client.ban_user(
            user, site=site, until=parse_end(until, now) if until else None, reason=reason
        )
    session.screen.json(summary)
    end = "until it is lifted" if summary.until is None else f"until {_instant(session, summary.until, now)}"
    session.screen.line(f"{user} is banned from {_place(summary)} {end}")


@connected
def unban(session: Session, user: UserArgument, site: SiteOption = None, reason: ReasonOption = "") -> None:
    """End a ban. Killed jobs stay killed; waiting ones may start there again."""
    with session.client() as client:
        summary = client.lift_ban(user, site=site, reason=reason)
    session.screen.json(summary)
    session.screen.line(f"{user} is no longer banned from {_place(summary)}")


@connected
def list_bans(
    session: Session,
    everything: Annotated[bool, CommandOption("Ended bans too", names="--all")] = False,
) -> None:
    """List the bans in force: who is banned where, by whom, why and until when."""
    now = time.time()
    with session.client() as client:
        summaries = client.bans(everything=everything)
    session.screen.json({"bans": summaries})
    names = ("user", "site", "by", "since", "until", "ended", "reason")
    rows = (
        (
            ban.user,
            ban.site or "(all)",
            ban.by,
            _instant(session, ban.since, now),
            _instant(session, ban.until, now),
            "" if ban.ended is None else f"{_instant(session, ban.ended, now)} by {ban.ended_by}",
            ban.reason,
        )
        for ban in summaries
    )
    ranks = {"by": 2, "since": 1, "ended": 3}
    columns = [Column(name, rank=ranks.get(name, 0), text=name == "reason") for name in names]
    session.screen.table(columns, rows)


def _instant(session: Session, at: float | None, now: float) -> str:
    return session.screen.instant(at)


def _place(summary: BanSummary) -> str:
    return f"site {summary.site}" if summary.site else "all sites"
