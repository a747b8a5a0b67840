"""`pilotage catalogue list|show|test` and `pilotage dataset follow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pilotage.cli.asked_services import show_facts, state_of
from pilotage.cli.console import Column, Columns
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import Session, connected
from pilotage.cli.submit import show_warnings
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.catalogues import CatalogueSummary, FollowedSummary

NameArgument = Annotated[str, CommandArgument("A catalogue of the policy", "NAME")]


@connected
def list_catalogues(session: Session) -> None:
    """List the outside catalogues of the policy: whether they answer, and how many data sets are copied from them."""
    with session.client() as client:
        summaries = client.catalogues()
    session.screen.json({"catalogues": summaries})
    columns: Columns[CatalogueSummary] = (
        (Column("catalogue"), lambda row: row.name),
        (Column("type", rank=2), lambda row: row.type),
        (Column("state"), lambda row: state_of(row)),
        (Column("since", rank=1), lambda row: session.screen.instant(row.since)),
        (Column("data sets", right=True), lambda row: row.datasets),
        (Column("oldest reading", rank=3), lambda row: session.screen.instant(row.oldest)),
        (Column("outputs", rank=2), lambda row: _outputs(row)),
        (Column("problem", text=True), lambda row: row.problem or row.registration_problem),
    )
    session.screen.listing(columns, summaries)


def _outputs(row: CatalogueSummary) -> str:
    if not row.registered and not row.waiting:
        return ""
    waiting = f", {row.waiting:,} waiting" if row.waiting else ""
    return f"{plural(row.registered, 'block')} registered{waiting}"


@connected
def show(session: Session, name: NameArgument) -> None:
    """Show an outside catalogue, and the data sets that are copied from it."""
    with session.client() as client:
        report = client.catalogue(name)
    session.screen.json(report)
    _print_facts(session, report.catalogue)
    if report.datasets:
        session.screen.line("")
    columns: Columns[FollowedSummary] = (
        (Column("data set"), lambda row: row.name),
        (Column("read"), lambda row: session.screen.instant(row.read) or "never"),
        (Column("problem", text=True), lambda row: row.problem),
        (Column("note", text=True), lambda row: row.note),
    )
    if report.datasets:
        session.screen.listing(columns, report.datasets)


def _print_facts(session: Session, row: CatalogueSummary) -> None:
    show_facts(
        session,
        row,
        ("catalogue", f"{row.name} ({row.type})"),
        more=(
            ("software", row.software),
            ("last answer", session.screen.instant(row.answered)),
            ("outputs", _outputs(row)),
            ("output problem", row.registration_problem),
            ("data sets", plural(row.datasets, "copied data set")),
        ),
    )


@connected
def test(session: Session, name: NameArgument) -> int:
    """Log in to an outside catalogue now, and print its software and version."""
    with session.client() as client:
        summary = client.test_catalogue(name)
    session.screen.json(summary)
    _print_facts(session, summary)
    return 1 if summary.problem else 0


@connected
def follow(
    session: Session,
    name: Annotated[str, CommandArgument("CATALOGUE:NAME THERE, such as rucio:data26:run.2026.AOD", "NAME")],
) -> None:
    """Copy a data set from an outside catalogue from now on. If it is copied already, read it at once."""
    with session.client() as client:
        followed = client.follow_dataset(name)
    session.screen.json(followed)
    show_warnings(session.screen, followed.warnings)
    session.screen.line(f"{name} is copied from its catalogue: see `pilotage dataset show {name}`")
