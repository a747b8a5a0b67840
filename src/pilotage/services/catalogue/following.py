"""Data sets that are copied from outside catalogues: named CATALOGUE:NAME THERE, such as rucio:data26:run.2026.AOD.

A duty reads the catalogue and stores the answers here, each part in a transaction. A reading that was interrupted is
continued by the next one, since files that are registered change nothing. A catalogue that does not answer changes
nothing: the last known blocks and locations stay, with their age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pilotage.core.datasets.facts import BlockEntry, check_data_set_name
from pilotage.core.policy import Policy
from pilotage.services.catalogue import registration
from pilotage.services.catalogue.registration import Added
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import catalogues, datasets, followed_datasets
from pilotage.store.tables.catalogues import CatalogueRow
from pilotage.store.tables.datasets import BlockRow, DataSetRow
from pilotage.store.tables.followed_datasets import FollowedRow
from pilotage.store.writer.transaction import Transaction


def catalogue_of(policy: Policy, name: str) -> str:
    """The outside catalogue that the name of a data set begins with; empty: none of the policy."""
    catalogue, colon, there = name.partition(":")
    return catalogue if colon and there and catalogue in policy.catalogues else ""


def follow(tx: Transaction, policy: Policy, name: str, *, owner: str, group: str, now: float) -> DataSetRow:
    """The data set of this name, which is copied from now on, and read soon."""
    check_data_set_name(name)
    catalogue = catalogue_of(policy, name)
    made = datasets.insert(tx.connection, name=name, owner=owner, group=group, now=now, catalogue=catalogue)
    if made is not None:
        followed_datasets.insert(tx.connection, made.id, now)
        return made
    row = registration.find(tx.connection, name)
    followed_datasets.ask(tx.connection, row.id, now)
    return row


class KnownBlock(NamedTuple):
    """A block of the catalogue as our tables have it."""

    ids: tuple[int, ...]
    """The block, and further blocks with later files of it."""
    files: int
    is_closed: bool


def known_blocks(connection: Connection, dataset: int, after: int = 0) -> dict[str, KnownBlock]:
    """The blocks of a data set with ids above `after`, by their name in the catalogue."""
    parts: dict[str, list[BlockRow]] = {}
    while page := datasets.block_page(connection, dataset, after, 1000):
        after = page[-1].id
        for block in page:
            name, _, number = block.name.rpartition("#")
            parts.setdefault(name if number.isdigit() else block.name, []).append(block)
    return {
        name: KnownBlock(
            tuple(block.id for block in blocks),
            sum(block.files for block in blocks),
            not any(block.open for block in blocks),
        )
        for name, blocks in parts.items()
    }


def store_files(tx: Transaction, dataset: int, entry: BlockEntry, *, complete: bool, now: float) -> Added:
    """Store files of a block. `complete`: the block has no more files now."""
    row = datasets.lock(tx.connection, dataset)
    if row is None or not row.open:
        return Added()
    return registration.add_files(tx, row, entry, complete=complete, now=now)


def finish_reading(tx: Transaction, dataset: int, begun: float, note: str, *, closed: bool) -> None:
    """A reading that began at `begun` is complete. `closed`: no more blocks will come."""
    if closed and datasets.lock(tx.connection, dataset) is not None:
        datasets.close(tx.connection, dataset)
    followed_datasets.finish(tx.connection, dataset, begun, note)


def due_of(connection: Connection, policy: Policy, name: str, now: float) -> list[FollowedRow]:
    """The data sets of a catalogue whose next reading is due."""
    section = policy.catalogues[name]
    return followed_datasets.due(
        connection, name, read_before=now - section.period, tried_before=now - section.retry
    )


class CatalogueChange(NamedTuple):
    """A catalogue serves, or has another problem than before."""

    name: str
    problem: str
    since: float


def record_answer(
    tx: Transaction, name: str, now: float, *, problem: str = "", software: str = ""
) -> CatalogueChange | None:
    """Store how a catalogue has answered; returns the change, if there is one."""
    known = catalogues.by_name(tx.connection).get(name)
    before = None if known is None else known.problem
    since = now if known is None or before != problem else known.since
    answered = now if not problem else None if known is None else known.answered
    software = software or ("" if known is None else known.software)
    catalogues.save(tx.connection, CatalogueRow(name, now, answered, software, problem, since))
    is_change = problem != (before or "")
    return CatalogueChange(name, problem, since) if is_change else None


def notes_of(unused: Mapping[str, Sequence[str]], open_blocks: int) -> str:
    """Blocks that a reading left out. `unused`: blocks by the reason why a place of theirs is not used."""
    notes = []
    if open_blocks:
        noun = "block is" if open_blocks == 1 else "blocks are"
        notes.append(f"{open_blocks:,} {noun} open there")
    for reason, blocks in sorted(unused.items()):
        noun = "block" if len(blocks) == 1 else "blocks"
        notes.append(f"{len(blocks):,} {noun} at {reason}")
    return "; ".join(notes)
