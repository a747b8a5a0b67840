"""`pilotage storage list|test|unclaimed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.asked_services import show_facts, state_of
from pilotage.cli.console import Column, Columns
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, YesOption, connected
from pilotage.cli.time_format import format_size
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.storage import StorageSummary, UnclaimedObject


@connected
def list_storage(session: Session) -> None:
    """List the storage places of the policy that are no folders: their addresses, and whether S3 services answer."""
    with session.client() as client:
        summaries = client.storage()
    session.screen.json({"storage": summaries})
    columns: Columns[StorageSummary] = (
        (Column("storage"), lambda row: row.name),
        (Column("type", rank=2), lambda row: row.type),
        (Column("state"), lambda row: state_of(row)),
        (Column("since", rank=1), lambda row: session.screen.instant(row.since)),
        (Column("address"), lambda row: row.address),
        (Column("problem", text=True), lambda row: row.problem),
    )
    session.screen.listing(columns, summaries)


@connected
def test(
    session: Session,
    name: Annotated[str, CommandArgument("A table `storage` of the policy, of the type s3", "NAME")],
) -> int:
    """Ask an S3 service now whether its bucket is there and the server's key can list it."""
    with session.client() as client:
        summary = client.test_storage(name)
    session.screen.json(summary)
    named = f"{summary.name} ({summary.type})"
    show_facts(session, summary, ("storage", named), ("address", summary.address))
    return 1 if summary.problem else 0


@connected
def unclaimed(
    session: Session,
    name: Annotated[str, CommandArgument("A table `storage` of the policy, of the type s3", "NAME")],
    remove: Annotated[bool, CommandOption("Remove them")] = False,
    yes: YesOption = False,
) -> None:
    """List the outputs in an S3 service that refused attempts have stored, and that no data set names.

    Left out are files of attempts that count, of other pools, and of attempts that ended a short while ago.
    """
    with session.client() as client:
        objects = list(client.unclaimed(name))
        if remove and objects:
            question = f"remove {_amount(objects)} from {name}?"
            if not yes and not session.screen.ask(question):
                raise InvalidInput(f"nothing done: {question}", hint="use -y to skip the confirmation")
            objects = list(client.unclaimed(name, remove=True))
    session.screen.json({"objects": objects, "removed": remove})
    columns: Columns[UnclaimedObject] = (
        (Column("job", right=True), lambda row: row.job),
        (Column("size", right=True), lambda row: format_size(row.size)),
        (Column("stored", rank=1), lambda row: session.screen.instant(row.modified)),
        (Column("object", text=True), lambda row: row.url),
    )
    session.screen.listing(columns, objects)
    session.screen.note(f"{_amount(objects)}{' removed' if remove else ''}")


def _amount(objects: Sequence[UnclaimedObject]) -> str:
    return f"{plural(len(objects), 'object')} of {format_size(sum(row.size for row in objects))}"
