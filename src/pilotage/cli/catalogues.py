"""`pilotage catalogue list|show|test` and `pilotage dataset follow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pilotage.cli.asked_services import show_facts, state_of
from pilotage.cli.console import Column
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import Session, connected
from pilotage.cli.submit import show_warnings
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.catalogues import CatalogueSummary

NameArgument = Annotated[str, CommandArgument("A catalogue of the policy", "NAME")]


@connected
def list_catalogues(session: Session) -> None:
    """List the outside catalogues of the policy: whether they answer, and how many data sets are copied from them."""
    with session.client() as client:
        summaries = client.catalogues()
    session.screen.json({"catalogues": summaries})
    columns = (
        Column("catalogue"),
        Column("type", rank=2),
        Column("state"),
        Column("since", rank=1),
        Column("data sets", right=True),
        Column("oldest reading", rank=3),
        Column("outputs", rank=2),
        Column("problem", text=True),
    )
    rows = (
        (
            row.name,
            row.type,
            state_of(row),
            session.screen.instant(row.since),
            row.datasets,
            session.screen.instant(row.oldest),
            _outputs(row),
            row.problem or row.registration_problem,
        )
        for row in summaries
    )
    session.screen.table(columns, rows)


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
    columns = (Column("data set"), Column("read"), Column("problem", text=True), Column("note", text=True))
    rows = (
        (row.name, session.screen.instant(row.read) or "never", row.problem, row.note)
        for row in report.datasets
    )
    if report.datasets:
        session.screen.table(columns, rows)


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
