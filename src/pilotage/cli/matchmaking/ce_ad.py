"""`pilotage ce ad`: the ad of a CE as it is matched, or a check of an ad in a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.console import Column, Columns, CommandOutput
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_duration

if TYPE_CHECKING:
    from pilotage.wire.matchmaking import CeAdReport, HostClassAd

SUSPICIOUS = 1


@connected
def ce_ad(
    session: Session,
    target: Annotated[
        str, CommandArgument("A CE of the policy, or a file with CE ads (- for standard input)", "NAME|FILE")
    ],
    hosts: Annotated[bool, CommandOption("List the classes of equal hosts instead")] = False,
) -> int | None:
    """Print the ad of a CE as it is matched. Of a file, check the ads and print them.

    A name with a slash is a file; so is a name with a dot if the file exists. Probable mistakes are reported on
    standard error; for a file the exit code is then 1. Errors have a line and a column.
    """
    reports = _of_file(target) if _is_file(target) else [_of_server(session, target)]
    session.screen.json(reports if len(reports) > 1 else reports[0])
    for report in reports:
        if not session.as_json:
            _show(session.screen, report, hosts)
        _report_age(session.screen, report, time.time())
        for suspicion in report.suspicions:
            session.screen.note(f"warning: {suspicion}")
    return SUSPICIOUS if _is_file(target) and any(report.suspicions for report in reports) else None


def _is_file(target: str) -> bool:
    return target == "-" or "/" in target or ("." in target and Path(target).exists())


def _of_server(session: Session, name: str) -> CeAdReport:
    with session.client() as client:
        return client.ce_ad(name)


def _of_file(name: str) -> list[CeAdReport]:
    from pilotage.cli.matchmaking.local_ads import ce_ads_of_text, read_text
    from pilotage.core.brokering.ad_text import parse_ads, suspicions_of
    from pilotage.core.classads import unparse

    now, text = time.time(), read_text(name)
    # The text as written has the paths of the slips; the ads have been completed.
    return [
        wire.matchmaking.CeAdReport(
            ad.name,
            unparse(ad.document()),
            unparse(ad.fixed),
            ad.updated or None,
            ad.updated + ad.expiry if ad.updated else None,
            not ad.is_current(now),
            suspicions=[f"{suspicion.path}: {suspicion.message}" for suspicion in suspicions_of(written)],
        )
        for ad, written in zip(ce_ads_of_text(name, text, now), parse_ads(text), strict=True)
    ]


def _show(screen: CommandOutput, report: CeAdReport, hosts: bool) -> None:
    from pilotage.core.brokering.ad_text import LIMITS
    from pilotage.core.classads import indented, parse_ad

    if not hosts:
        for line in indented(parse_ad(report.ad, LIMITS)).splitlines():
            screen.line(line)
        return
    columns: Columns[HostClassAd] = (
        (Column("hosts", right=True), lambda row: row.count),
        (
            Column("names"),
            lambda row: ", ".join(row.hosts) + (" ..." if len(row.hosts) < row.count and row.hosts else ""),
        ),
        (
            Column("attributes"),
            lambda row: "; ".join(f"{name} = {value}" for name, value in row.attributes.items()),
        ),
    )
    screen.listing(columns, report.hosts)


def _report_age(screen: CommandOutput, report: CeAdReport, now: float) -> None:
    if report.problem:
        screen.note(f"the batch system told no facts at the last attempt: {report.problem}")
    if report.updated is None:
        screen.note(f"{report.ce}: the age of these facts is not known")
        return
    age = format_duration(max(0.0, now - report.updated))
    if report.is_expired:
        screen.note(f"{report.ce}: the facts are {age} old and have expired: changing facts are unknown")
    else:
        left = format_duration(max(0.0, (report.expires or now) - now))
        screen.note(f"{report.ce}: the facts are {age} old and expire in {left}")
