"""`pilotage dataset list|show|replicas|close|remove`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column, Columns
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_size
from pilotage.core.datasets.facts import Replica, check_replica
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.wire.datasets import BlockSummary, DataSetReport, DataSetSummary, FileSummary

NameArgument = Annotated[str, CommandArgument("A data set", "NAME")]
BLOCKS_SHOWN = 20
"""Blocks of `show`, unless all are asked for."""


@connected
def list_datasets(
    session: Session,
    text: Annotated[str, CommandArgument("Only data sets with this text in their name", "[TEXT]")] = "",
    owner: Annotated[str, CommandOption("Only data sets of this user", "USER")] = "",
) -> None:
    """List the data sets with their blocks, files, events and bytes."""
    with session.client() as client:
        summaries = list(client.datasets(contains=text, owner=owner))
    session.screen.json({"datasets": summaries})
    columns: Columns[DataSetSummary] = (
        (Column("data set"), lambda row: row.name),
        (Column("owner", rank=3), lambda row: row.owner),
        (Column("state"), lambda row: "open" if row.open else "closed"),
        (Column("blocks", right=True, rank=2), lambda row: row.blocks),
        (Column("files", right=True), lambda row: row.files),
        (Column("events", right=True), lambda row: row.events),
        (Column("size", right=True), lambda row: _size(session, row.size)),
        (Column("created", rank=1), lambda row: session.screen.instant(row.created)),
    )
    session.screen.listing(columns, summaries)


@connected
def show(
    session: Session,
    name: NameArgument,
    block: Annotated[str, CommandOption("List the files of this block instead", "NAME")] = "",
    everything: Annotated[bool, CommandOption(f"More than {BLOCKS_SHOWN} blocks", names="--all")] = False,
) -> None:
    """Show a data set: its totals, where it is, and its blocks."""
    if block:
        _show_files(session, name, block)
        return
    with session.client() as client:
        report = client.dataset(name)
        blocks = list(islice(client.dataset_blocks(name), None if everything else BLOCKS_SHOWN))
    if session.as_json:
        session.screen.json({"report": report, "blocks": blocks})
        return
    _print_facts(session, report)
    if blocks:
        session.screen.line("")
        _print_blocks(session, blocks)
    if report.dataset.blocks > len(blocks):
        session.screen.note(f"... and {plural(report.dataset.blocks - len(blocks), 'more block')} (--all)")


def _show_files(session: Session, name: str, block: str) -> None:
    with session.client() as client:
        files = list(client.dataset_files(name, block))
    session.screen.json({"files": files})
    columns: Columns[FileSummary] = (
        (Column("file"), lambda file: file.name),
        (Column("size", right=True), lambda file: _size(session, file.size)),
        (Column("events", right=True), lambda file: file.events),
        (Column("checksum"), lambda file: file.checksum),
        (
            Column("records"),
            lambda file: " ".join(f"{run}:{first}-{last}" for run, first, last in file.lumis),
        ),
    )
    session.screen.listing(columns, files)


def _print_facts(session: Session, report: DataSetReport) -> None:
    dataset = report.dataset
    writer = "" if dataset.request is None else f"request {dataset.request}, step {dataset.step}"
    blocks = f"{dataset.blocks:,}" + (
        f", {dataset.open_blocks:,} of them open" if dataset.open_blocks else ""
    )
    session.screen.facts(
        (
            ("data set", dataset.name),
            ("state", "open: more files may come" if dataset.open else "closed"),
            ("owner", f"{dataset.owner} ({dataset.group})"),
            ("written by", writer),
            ("catalogue", dataset.catalogue),
            ("blocks", blocks),
            ("files", f"{dataset.files:,}"),
            ("events", f"{dataset.events:,}" if dataset.events else ""),
            ("size", _size(session, dataset.size)),
            ("sites", _sites(report)),
            ("unknown place", plural(report.unknown, "block") if report.unknown else ""),
            ("no place", plural(report.nowhere, "block") if report.nowhere else ""),
        )
    )


def _sites(report: DataSetReport) -> str:
    total = report.dataset.blocks
    return ", ".join(
        f"{_site(share.site)} ({'all' if share.blocks == total else plural(share.blocks, 'block')})"
        for share in report.sites
    )


def _print_blocks(session: Session, blocks: Iterable[BlockSummary]) -> None:
    columns = (
        Column("block"),
        Column("state"),
        *(Column(name, right=True) for name in ("files", "events", "size")),
        Column("sites", text=True),
    )
    session.screen.table(
        columns,
        (
            (
                block.name,
                "open" if block.open else "closed",
                block.files,
                block.events,
                _size(session, block.size),
                _block_sites(block),
            )
            for block in blocks
        ),
    )


def _block_sites(block: BlockSummary) -> str:
    if block.located is None:
        return "(unknown)"
    return ", ".join(_site(replica.site) for replica in block.replicas) or "(none)"


def _site(name: str) -> str:
    return "(any site)" if name == "*" else name


def _size(session: Session, size: int) -> str:
    return format_size(size) if session.screen.terminal else str(size)


@connected
def replicas(
    session: Session,
    name: NameArgument,
    block: Annotated[str | None, CommandOption("Only of this block", "NAME")] = None,
    add: Annotated[
        list[str] | None, CommandOption("The files are at this site too; may be repeated", "SITE[=PREFIX]")
    ] = None,
    remove: Annotated[
        list[str] | None, CommandOption("The files are no longer at this site; may be repeated", "SITE")
    ] = None,
    forget: Annotated[bool, CommandOption("Where the files are is not known any more")] = False,
) -> None:
    """Show where the blocks of a data set are, and when this was last known; or change it.

    Only the catalogue changes: nothing is copied or deleted. Work that waits follows within seconds.
    """
    with session.client() as client:
        if add or remove or forget:
            changed = client.change_replicas(
                name,
                block=block,
                add=[_place(text) for text in add or ()],
                remove=remove or (),
                forget=forget,
            )
            session.screen.json(changed)
            session.screen.line(
                f"{name}: {changed.moved:,} of {plural(changed.blocks, 'block')} now at other sites"
            )
            return
        blocks = [row for row in client.dataset_blocks(name) if block is None or row.name == block]
    session.screen.json({"blocks": blocks})
    _print_replicas(session, blocks)


def _place(text: str) -> Replica:
    site, _, prefix = text.partition("=")
    if not site:
        raise InvalidInput(f"--add {text}: the site is missing", hint="--add SITE or --add SITE=PREFIX")
    return check_replica(site, prefix) if prefix else Replica(site, "")


def _print_replicas(session: Session, blocks: Iterable[BlockSummary]) -> None:
    rows: list[tuple[str, str, str, str]] = []
    for block in blocks:
        rows += [
            (block.name, _site(place.site), place.prefix, session.screen.instant(place.known))
            for place in block.replicas
        ]
        if not block.replicas:
            unknown = block.located is None
            known = "" if unknown else session.screen.instant(block.located)
            rows.append((block.name, "(unknown)" if unknown else "(none)", "", known))
    session.screen.table(tuple(Column(name) for name in ("block", "site", "prefix", "known")), rows)


@connected
def close(session: Session, name: NameArgument) -> None:
    """Close a data set: no more files will come, so requests that read it can end."""
    with session.client() as client:
        summary = client.close_dataset(name)
    _tell(session, summary, "is closed")


@connected
def remove(session: Session, name: NameArgument) -> None:
    """Remove a data set from the catalogue. The files themselves stay where they are."""
    with session.client() as client:
        summary = client.remove_dataset(name)
    _tell(session, summary, "is removed; its files stay where they are")


def _tell(session: Session, summary: DataSetSummary, state: str) -> None:
    session.screen.json(summary)
    session.screen.line(
        f"{summary.name} ({plural(summary.files, 'file')} in {plural(summary.blocks, 'block')}) {state}"
    )
