"""`pilotage dataset files`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.console import Column
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.datasets import BlockSummary, FileSummary, ReplicaLocation


@connected
def files(
    session: Session,
    name: Annotated[str, CommandArgument("A data set", "NAME")],
    site: Annotated[str, CommandOption("The paths at this site; default: at any site", "SITE")] = "",
    long: Annotated[
        bool, CommandOption("Also events, bytes and checksum of each file", names="--long -l")
    ] = False,
) -> None:
    """Print the path or URL of each file of a data set, one in a line."""
    with session.client() as client:
        rows = list(_paths(client, name, site))
    if session.as_json:
        session.screen.json({"files": [{"path": path, **vars(file)} for path, file in rows]})
    elif long:
        columns = (
            Column("events", right=True),
            Column("size", right=True),
            Column("checksum"),
            Column("path"),
        )
        session.screen.table(columns, ((file.events, file.size, file.checksum, path) for path, file in rows))
    else:
        for path, _ in rows:
            session.screen.line(path)


def _paths(client: Client, name: str, site: str) -> Iterator[tuple[str, FileSummary]]:
    """The path of each file, and the file. A file without a place there has the path "(none)"."""
    for block in list(client.dataset_blocks(name)):
        place = _place(block, site)
        for file in client.dataset_files(name, block.name):
            yield (f"{place.prefix}/{file.name}" if place else "(none)"), file


def _place(block: BlockSummary, site: str) -> ReplicaLocation | None:
    """The replica of a block at a site, or at any site; every site reads a replica of "*"."""
    wanted = [replica for replica in block.replicas if not site or replica.site in (site, "*")]
    return wire.datasets.ReplicaLocation(wanted[0].site, wanted[0].prefix) if wanted else None
