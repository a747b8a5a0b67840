"""`pilotage queue history` and `share history`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_instant, parse_duration

if TYPE_CHECKING:
    from pilotage.wire.intervals import SharePoint

Since = Annotated[str, CommandOption("Length of the period, up to now: 7d, 12h", "SPAN")]
Points = Annotated[int, CommandOption("Parts of the period, at most", "N", min=1, max=50)]


@connected
def queue_history(
    session: Session,
    since: Since = "1d",
    points: Points = 24,
    group: Annotated[str, CommandOption("Only this group", "GROUP", names="--group -g")] = "",
) -> None:
    """Show how many of your jobs waited for which reason over time, on average.

    Administrators see all jobs. Members of a group that shares its jobs see the jobs of this group. Times without a
    server have no rows.
    """
    with session.client() as client:
        report = client.waiting_history(since=parse_duration(since), points=points, group=group)
    if session.as_json:
        session.screen.json(report)
        return
    columns = (Column("from"), Column("group"), Column("reason"), Column("jobs", right=True))
    session.screen.table(
        columns,
        (
            (_from(point.begin), point.group or "(others)", point.reason or "unknown", f"{point.jobs:.1f}")
            for point in report.points
        ),
    )
    session.screen.note(_about(report.recorded, report.span))


@connected
def share_history(
    session: Session,
    since: Since = "1d",
    points: Points = 24,
    group: Annotated[
        str, CommandOption("The owners of this group, in place of the groups", "GROUP", names="--group -g")
    ] = "",
) -> None:
    """Show the entitled, used and corrected shares of groups, or of the owners of one, over time."""
    with session.client() as client:
        report = client.share_history(since=parse_duration(since), points=points, group=group)
    if session.as_json:
        session.screen.json(report)
        return
    names = ("entitled", "used", "correction", "corrected")
    columns = (
        Column("from"),
        Column("owner" if group else "group"),
        *(Column(name, right=True) for name in names),
    )
    session.screen.table(columns, (_share_cells(point) for point in report.points))
    session.screen.note(_about(report.recorded, report.span))


def _share_cells(point: SharePoint) -> Sequence[object]:
    parts = [f"{part:.1%}" for part in (point.entitled, point.used)]
    return (
        _from(point.begin),
        point.owner or point.group,
        *parts,
        f"{point.correction:.3f}",
        f"{point.corrected:.1%}",
    )


def _from(begin: float) -> str:
    return format_instant(begin, begin, exact=True)


def _about(recorded: Sequence[float], span: float) -> str:
    return (
        f"# averages over {span:g} s each; recorded: {sum(recorded) / (span * len(recorded)):.0%} of the time"
    )
