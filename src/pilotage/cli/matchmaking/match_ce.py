"""`pilotage match-ce`: the CEs that can run a job, and why the others cannot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.matchmaking.answers import show_report
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected
from pilotage.core.errors import InvalidInput
from pilotage.wire.matchmaking import MAX_MATCHED_CES

if TYPE_CHECKING:
    from pilotage.wire.matchmaking import MatchReport


@connected
def match_ce(
    session: Session,
    target: Annotated[
        str, CommandArgument("A waiting job, or a job file (- for standard input)", "JOB|FILE")
    ],
    ads: Annotated[
        list[str] | None,
        CommandOption("Match these CE ads, without a server; may be repeated", "FILE", names="--ad"),
    ] = None,
    ce: Annotated[str, CommandOption("Only this CE", "NAME")] = "",
    owner: Annotated[str, CommandOption("Match a job file as this owner", "NAME")] = "",
    group: Annotated[str, CommandOption("Match a job file in this group", "NAME")] = "",
    vo: Annotated[str, CommandOption("With --ad: the virtual organisation of the job", "NAME")] = "",
    limit: Annotated[int, CommandOption("CEs at most", "N", min=1, max=MAX_MATCHED_CES)] = 200,
) -> None:
    """Match a job with each CE: yes or no, the sub-expression that said no, rank, residual and native flags.

    Nothing is submitted. With --ad the CE ads come from files, and no server is asked.
    """
    report = (
        _from_files(session, target, ads, ce=ce, owner=owner, group=group, vo=vo, limit=limit)
        if ads
        else _from_server(session, target, ce=ce, owner=owner, group=group, vo=vo, limit=limit)
    )
    if session.as_json:
        session.screen.json(report)
    else:
        show_report(session.screen, report, time.time())


def _from_files(
    session: Session, target: str, ads: list[str], *, ce: str, owner: str, group: str, vo: str, limit: int
) -> MatchReport:
    from pilotage.cli.matchmaking.local_ads import match_files, only_ce, read_ce_ads, read_description

    if target.isdecimal():
        raise InvalidInput("--ad matches a job file", hint="without --ad the server matches a waiting job")
    if target == "-" and "-" in ads:
        raise InvalidInput("standard input cannot be both the job file and an ad")
    now = time.time()
    description = read_description(target)
    ce_ads = only_ce(ce, read_ce_ads(ads, now)) if ce else read_ce_ads(ads, now)
    return match_files(description, ce_ads, owner=owner, group=group, vo=vo, limit=limit, now=now)


def _from_server(
    session: Session, target: str, *, ce: str, owner: str, group: str, vo: str, limit: int
) -> MatchReport:
    from pilotage.cli.matchmaking.queries import query_for

    if vo:
        raise InvalidInput("--vo goes with --ad", hint="the policy has the vo of each group")
    query = query_for(target, owner=owner, group=group, ce=ce, limit=limit)
    with session.client() as client:
        return client.match_ces(query)
