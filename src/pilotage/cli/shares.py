"""`pilotage share list` and `fairness check`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_instant, parse_duration
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.wire.shares import FairnessReport, FairnessRow, ShareRow, ShareSlice, ShareTable


@connected
def share_list(
    session: Session,
    group: Annotated[str, CommandOption("Show only this group", "GROUP", names="--group -g")] = "",
) -> None:
    """Show the share, usage, correction factor and priority of each group and owner."""
    with session.client() as client:
        table = client.shares()
    table.rows = [row for row in table.rows if not group or row.group == group]
    if group and not table.rows:
        raise InvalidInput(f"there is no group {group}", hint="`pilotage share list` lists the groups")
    if session.as_json:
        session.screen.json(table)
        return
    windows = _windows(table)
    if session.screen.terminal:
        session.screen.table(
            _narrow_columns(windows, table),
            (_narrow_cells(row, windows, bool(table.correctors)) for row in table.rows),
        )
        _print_notes(session, table)
    else:
        session.screen.table(_columns(windows), (_cells(row, windows) for row in table.rows))
    session.screen.note(_status_line(table, exact=not session.screen.terminal))
    return


Window = tuple[float, str]
"""Seconds, and how use is measured in them: `used` or `decayed`."""


def _windows(table: ShareTable) -> list[Window]:
    """The spans and half-lives that the rows look back over, ascending."""
    return sorted({(part.time_span, part.measure) for row in table.rows for part in row.slices})


def _by_window(row: ShareRow) -> dict[Window, ShareSlice]:
    """The slices of a row. If two instances have the same window, the first one counts."""
    slices: dict[Window, ShareSlice] = {}
    for part in row.slices:
        slices.setdefault((part.time_span, part.measure), part)
    return slices


def _format_span(seconds: float) -> str:
    """Such as "1h" or "7d": for the head of a column."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def _narrow_columns(windows: Sequence[Window], table: ShareTable) -> Sequence[Column]:
    """For 80 columns: owners stand below their group, a factor that was scaled behind the raw one."""
    used = [Column(f"{measure} {_format_span(span)}", right=True) for span, measure in windows]
    factor = [Column("factor", right=True)] if table.correctors else []
    names = [Column("group"), Column("share", right=True), Column("entitled", right=True)]
    return (*names, *used, *factor, Column("priority", right=True), Column("waiting", right=True))


def _narrow_cells(row: ShareRow, windows: Sequence[Window], corrected: bool) -> Sequence[object]:
    slices = _by_window(row)
    factor = f"{row.correction:.3f}"
    if row.owner and abs(row.scaled - row.correction) > 0.0005:
        factor += f" → {row.scaled:.3f}"
    return (
        f"  {row.owner}" if row.owner else row.group,
        f"{row.share:.4g}" if row.share else "" if row.owner else "0",
        _part(row.entitled),
        *(_used(slices.get(window)) for window in windows),
        *([factor] if corrected else []),
        f"{row.priority:.4g}",
        row.waiting,
    )


def _print_notes(session: Session, table: ShareTable) -> None:
    for row in table.rows:
        who = f"{row.owner} in group {row.group}" if row.owner else f"group {row.group}"
        if len(row.factors) > 1:
            session.screen.note(f"# {who}: factor {row.correction:.3f} = {_factors(row)}")
        if row.note:
            session.screen.note(f"# {who}: {row.note}")


def _factors(row: ShareRow) -> str:
    """Such as "0.500 (WMSHistory groups) × 0.800 (HalfLife groups)"."""
    return " × ".join(f"{factor.factor:.3f} ({factor.corrector} {factor.instance})" for factor in row.factors)


def _columns(windows: Sequence[Window]) -> Sequence[Column]:
    used = [Column(f"{measure} {_format_span(span)}", right=True) for span, measure in windows]
    names = ("correction", "scaled", "priority", "waiting")
    right = [Column(name, right=True) for name in names]
    share = (Column("share", right=True), Column("entitled", right=True))
    return (Column("group"), Column("owner"), *share, *used, *right, Column("factors"), Column("note"))


def _cells(row: ShareRow, windows: Sequence[Window]) -> Sequence[object]:
    slices = _by_window(row)
    return (
        row.group,
        row.owner,
        f"{row.share:.6g}" if row.share else "" if row.owner else "0",
        _part(row.entitled),
        *(_used(slices.get(window)) for window in windows),
        f"{row.correction:.3f}",
        f"{row.scaled:.3f}",
        f"{row.priority:.6g}",
        row.waiting,
        _factors(row),
        row.note,
    )


def _used(part: ShareSlice | None) -> str:
    if part is None or part.expected is None:
        return "-"
    return "none" if part.used is None else _part(part.used)


def _part(part: float | None) -> str:
    return "-" if part is None else "100%" if part == 1 else f"{part:.1%}"


def _status_line(table: ShareTable, *, exact: bool) -> str:
    correctors = ", ".join(table.correctors) or "no correction"
    if table.as_of is None:
        return f"# rule {table.rule}, {correctors}; use is not charged yet"
    charged = format_instant(table.as_of, time.time(), exact=exact)
    return f"# rule {table.rule}, {correctors}; use until {charged}; owners are parts of their group"


UNFAIR = 1


@connected
def fairness(
    session: Session,
    since: Annotated[str, CommandOption("Length of the period, up to now", "SPAN")] = "7d",
) -> int | None:
    """Compare usage with the shares and the draw rule in force.

    The exit code is 1 if the usage of a group or owner deviates more than chance explains.
    """
    seconds = parse_duration(since)
    if seconds < 60:
        raise InvalidInput("usage is recorded per minute", hint="--since must be at least 60 s")
    with session.client() as client:
        report = client.fairness(seconds)
    outside = [row for row in report.rows if row.verdict in ("below", "above")]
    if session.as_json:
        session.screen.json(report)
    else:
        _report_fairness(session, report)
    return UNFAIR if outside else None


def _report_fairness(session: Session, report: FairnessReport) -> None:
    terminal = session.screen.terminal
    whose = [Column("group")] if terminal else [Column("group"), Column("owner")]
    names = ["entitled", "expected", "used", "bound", "demand", "waiting"]
    if not terminal:
        names.append(f"running {report.unit}")
    columns = (*whose, *(Column(name, right=True) for name in names), Column("verdict"))
    session.screen.table(columns, (_fairness_cells(row, terminal) for row in report.rows))
    since, until = (format_instant(at, time.time(), exact=not terminal) for at in (report.begin, report.end))
    session.screen.note(f"# rule {report.rule}, from {since} until {until}; owners are parts of their group")
    for text in report.assumptions:
        session.screen.note(f"# {text}")


def _fairness_cells(row: FairnessRow, terminal: bool) -> Sequence[object]:
    whose = [f"  {row.owner}" if row.owner else row.group] if terminal else [row.group, row.owner]
    parts = [_part(part) for part in (row.entitled, row.expected, row.used)]
    numbers = [*parts, f"±{row.bound:.1%}", _part(row.demand), row.waiting]
    return (*whose, *numbers, *([] if terminal else [f"{row.running:.2f}"]), row.verdict)
