"""`pilotage ce list|show|enable|disable`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.ces.add import is_experimental
from pilotage.cli.console import Column, Columns, CommandOutput
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import ReasonOption, Session, connected
from pilotage.cli.time_format import format_duration
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.ces import CeBudget, CeFailure, CeReport, CeSummary, CeWait

NameArgument = Annotated[str, CommandArgument("A CE of the policy", "NAME")]


@connected
def list_ces(session: Session) -> None:
    """List the CEs of the policy: whether pilots are submitted there and why not, and how many there are."""
    with session.client() as client:
        summaries = client.ces()
    session.screen.json({"ces": summaries})
    now = time.time()
    columns: Columns[CeSummary] = (
        (Column("ce"), lambda ce: ce.name),
        (Column("type", rank=3), lambda ce: ce.type),
        (Column("site", rank=4), lambda ce: ce.site),
        (Column("state"), lambda ce: ce.state),
        (Column("waiting", right=True), lambda ce: _room(ce.waiting, ce.max_waiting)),
        (Column("running", right=True), lambda ce: _room(ce.running + ce.orphans, ce.max_running)),
        (Column("in doubt", right=True, rank=2), lambda ce: ce.in_doubt),
        (Column("until", rank=1), lambda ce: session.screen.instant(ce.until)),
        (Column("reason", text=True), lambda ce: reason_of(ce, now)),
    )
    session.screen.listing(columns, summaries)


def reason_of(ce: CeSummary, now: float) -> str:
    """Why a CE is not active, or why its pilots wait or failed, or why it is not known well."""
    unlisted = f"the last listing lacks {ce.unlisted} of its pilots" if ce.unlisted else ""
    waits = f"pilots wait: {wait_text(ce.waits[0], now)}" if ce.waits else ""
    failure = f"last failure: {ce.failure}" if ce.alike else ""
    information = f"information: {ce.information}" if ce.information else ""
    return ce.reason or orphans_text(ce, now) or unlisted or waits or failure or information


def orphans_text(ce: CeSummary, now: float) -> str:
    """The batch jobs that have outlived their pilots; empty: there are none."""
    if not ce.orphans or ce.orphans_since is None:
        return ""
    noun = "batch job counts" if ce.orphans == 1 else "batch jobs count"
    age = format_duration(max(0.0, now - ce.orphans_since))
    return f"{ce.orphans} {noun} as running, though the pilots ended {age} ago: `pilotage ce jobs {ce.name}`"


def wait_text(wait: CeWait, now: float) -> str:
    """Why pilots wait, for how long, and when that is ended."""
    words = [wait.reason]
    if wait.since is None:
        words.append(f"submitted {format_duration(max(0.0, now - wait.submitted))} ago")
    else:
        words.append(f"for {format_duration(max(0.0, now - wait.since))}")
    if wait.deadline is not None:
        words.append(f"cancelled in {format_duration(max(0.0, wait.deadline - now))} if they do not start")
    return ", ".join(words)


def _room(number: int, most: int | None) -> str:
    return str(number) if most is None else f"{number}/{most}"


@connected
def show(session: Session, name: NameArgument) -> None:
    """Explain the state of a CE, and show its last failed pilots and whose fault they look like."""
    with session.client() as client:
        report = client.ce(name)
    session.screen.json(report)
    _show_facts(session.screen, report)
    if report.failures:
        session.screen.line()
        session.screen.line("Last failed pilots")
        _show_failures(session.screen, report.failures)


def _show_facts(screen: CommandOutput, report: CeReport) -> None:
    ce = report.ce
    now, instant = time.time(), screen.instant
    waits = "; ".join(
        f"{wait_text(wait, now)} ({wait.wait + ', ' if wait.wait else ''}{plural(wait.submissions, 'submission')})"
        for wait in ce.waits
    )
    unlisted = f"{plural(ce.unlisted, 'pilot')}; each is given up after `settle` without a sign of life"
    switched = f"{instant(ce.since)} by {ce.by}" if ce.since is not None else ""
    screen.facts(
        (
            ("CE", ce.name),
            ("type", f"{ce.type} (experimental)" if is_experimental(ce.type) else ce.type),
            ("site", ce.site),
            ("jobs of", "all users" if ce.owners == "any" else "the owner of the home"),
            ("isolation", ce.isolation),
            ("state", ce.state),
            ("reason", ce.reason),
            ("advice", ce.advice),
            ("until", instant(ce.until)),
            ("last switched", switched),
            ("waiting pilots", _room(ce.waiting, ce.max_waiting)),
            ("running pilots", _room(ce.running + ce.orphans, ce.max_running)),
            ("without a pilot", orphans_text(ce, now)),
            ("budget", "" if ce.budget is None else _budget(ce.budget)),
            ("submissions in doubt", ce.in_doubt or ""),
            ("pilots wait for", waits),
            ("last listing", instant(ce.listed)),
            ("lacking there", unlisted if ce.unlisted else ""),
            ("last information", instant(ce.information_at)),
            ("information", ce.information),
            ("failures alike", f"{ce.alike}: {ce.failure}" if ce.alike else ""),
            ("efficiency", efficiency_text(report)),
            ("clocks off", clocks_text(report)),
            ("clock advice", report.clock_advice),
        )
    )


def efficiency_text(report: CeReport) -> str:
    """The fraction of the booked core-seconds that jobs held; empty: nothing is booked, or not shown."""
    if report.efficiency is None:
        return ""
    hours, window = report.core_seconds / 3600, format_duration(report.window)
    return f"{report.efficiency:.1%} of {hours:,.4g} core-h in the last {window}"


def clocks_text(report: CeReport) -> str:
    """The nodes whose clock is off."""
    return "; ".join(f"{clock.node} is {clock.text}" for clock in report.clocks)


def _budget(budget: CeBudget) -> str:
    limit, used, committed = (
        f"{amount / 3600:,.6g}" for amount in (budget.core_seconds, budget.used, budget.committed)
    )
    return (
        f"{used} of {limit} core-h used in {format_duration(budget.window)}, {committed} more committed;"
        f" room for {plural(budget.room, 'pilot')}"
    )


def _show_failures(screen: CommandOutput, failures: list[CeFailure]) -> None:
    columns = (
        Column("pilot", right=True),
        Column("ended"),
        Column("node"),
        Column("looks like", text=True),
        Column("reason", text=True),
    )
    screen.table(
        columns,
        ((row.pilot, screen.instant(row.at), row.node, row.blame, row.reason) for row in failures),
    )
    for row in failures:
        if row.log:
            screen.line()
            screen.line(f"Output of pilot {row.pilot}:")
            for line in row.log.splitlines():
                screen.line(f"  {line}")
            break


@connected
def enable(
    session: Session,
    name: NameArgument,
    reason: ReasonOption = "",
) -> None:
    """Submit pilots to a CE again: after failures had stopped it, after a pause, or after `ce disable`."""
    with session.client() as client:
        ce = client.enable_ce(name, reason)
    session.screen.json(ce)
    session.screen.line(
        f"CE {name} is enabled" + ("" if ce.state == "active" else f", but {ce.state}: {ce.reason}")
    )


@connected
def disable(
    session: Session,
    name: NameArgument,
    reason: ReasonOption,
) -> None:
    """Submit no more pilots to a CE until `ce enable`. Its pilots and their jobs go on."""
    with session.client() as client:
        ce = client.disable_ce(name, reason)
    session.screen.json(ce)
    session.screen.line(f"CE {name} is disabled; {plural(ce.waiting + ce.running, 'pilot')} of it may go on")
