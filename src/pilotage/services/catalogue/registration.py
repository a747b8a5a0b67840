"""Registers data sets of users: new data sets, new files, closed blocks.

A closed block never changes, since work was made of it. Files that come later go to a further block, whose name has a
number: `run1`, `run1#2`, `run1#3`. All calls can be repeated: files that are registered already change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica, check_data_set_name, sorted_sites
from pilotage.core.errors import Conflict, Forbidden, NotFound
from pilotage.store.engine.connection import MAX_INTEGER, Connection
from pilotage.store.tables import dataset_removal, datasets, location_sets, replicas
from pilotage.store.tables.dataset_totals import Totals
from pilotage.store.tables.datasets import BlockRow, DataSetRow, FileRow
from pilotage.store.tables.replicas import ReplicaRow
from pilotage.store.tables.selections import Viewer
from pilotage.store.writer.transaction import Transaction

FILES_AT_ONCE = 300
"""Files registered in one transaction: 2.5 ms on SQLite, 5 ms on a slow machine."""
LUMIS_AT_ONCE = 10_000
"""Records of the files that are registered in one transaction; a single file may have as many."""
SHOWN = 5
"""Files that an error names."""


@dataclass(slots=True)
class Added:
    """The effect of a call of `add_block`."""

    files: int = 0
    """New files."""
    known: int = 0
    """Files that were registered already."""
    closed: int = 0
    """Blocks that were closed."""


def find(connection: Connection, name: str) -> DataSetRow:
    """The data set with this name. Raises `NotFound`."""
    row = datasets.by_name(connection, name)
    if row is None:
        raise NotFound(f"there is no data set {name}", hint="see `pilotage dataset list`")
    return row


def need_rights(row: DataSetRow, changer: Viewer) -> None:
    """Raise `Forbidden` unless the data set is the caller's, or of the caller's sharing group."""
    if not changer.may_see(row.owner, row.group):
        raise Forbidden(
            f"the data set {row.name} belongs to {row.owner} ({row.group})",
            hint="only its owner, members of a group with JOB_SHARING, and administrators may change it",
        )


def create(tx: Transaction, name: str, *, owner: str, group: str, changer: Viewer, now: float) -> DataSetRow:
    """A new open data set, or the one of this name if the caller may change it."""
    check_data_set_name(name)
    inserted = datasets.insert(tx.connection, name=name, owner=owner, group=group, now=now)
    if inserted is not None:
        return inserted
    row = find(tx.connection, name)
    need_rights(row, changer)
    return row


def locked(tx: Transaction, name: str, changer: Viewer) -> DataSetRow:
    """The data set for a change, locked until the transaction ends."""
    row = datasets.lock(tx.connection, find(tx.connection, name).id)
    if row is None:
        raise NotFound(f"there is no data set {name}", hint="it was removed just now")
    need_rights(row, changer)
    return row


def add_block(
    tx: Transaction, name: str, entry: BlockEntry, *, changer: Viewer, complete: bool, now: float
) -> Added:
    """Register at most `FILES_AT_ONCE` files of a block. `complete`: then close the block.

    Raises `Conflict` if the data set is closed, written by a request or copied from an outside catalogue, or if a
    file has other facts.
    """
    row = locked(tx, name, changer)
    check_own(row)
    return add_files(tx, row, entry, complete=complete, now=now)


def add_files(tx: Transaction, row: DataSetRow, entry: BlockEntry, *, complete: bool, now: float) -> Added:
    """Register files of a block of a locked data set."""
    connection = tx.connection
    known = datasets.files_named(connection, row.id, [file.name for file in entry.files])
    check_same(entry.files, known)
    new = [file for file in entry.files if file.name not in known]
    if new:
        _check_open(row)
        block = _open_block(tx, row.id, entry, now)
        datasets.insert_new_files(connection, row.id, block, new, now)
        datasets.add_contents(connection, block, _contents(new))
    _confirm(connection, entry.replicas, known.values(), now)
    closed = _close_parts(tx, row.id, entry.name) if complete else 0
    return Added(len(new), len(known), closed)


def check_own(row: DataSetRow) -> None:
    """Raise `Conflict` for a data set that is copied from an outside catalogue."""
    if row.catalogue and row.request is None:
        raise Conflict(
            f"the data set {row.name} is a copy: {row.catalogue} alone tells its files and places",
            hint=f"change them there; `pilotage dataset follow {row.name}` reads them at once",
        )


def _check_open(row: DataSetRow) -> None:
    if row.request is not None:
        raise Conflict(
            f"request {row.request} writes the data set {row.name}: nobody else adds files to it",
            hint="register the files as another data set",
        )
    if not row.open:
        raise Conflict(
            f"the data set {row.name} is closed: no more files can be added",
            hint="register the new files as another data set",
        )


def check_same(files: Sequence[FileEntry], known: dict[str, FileRow]) -> None:
    """Raise `Conflict` if a registered file has another size, number of events or checksum. 0 stands for unknown."""
    differing = []
    for file in files:
        row = known.get(file.name)
        if row is None:
            continue
        pairs = ((file.size, row.size), (file.events, row.events), (file.checksum, row.checksum))
        if any(new and old and new != old for new, old in pairs):
            differing.append(file.name)
    if differing:
        more = f" and {len(differing) - SHOWN:,} more" if len(differing) > SHOWN else ""
        raise Conflict(
            f"registered with another size, number of events or checksum: {', '.join(differing[:SHOWN])}{more}",
            hint="a registered file never changes: give the new contents another name",
        )


def _contents(files: Sequence[FileEntry]) -> Totals:
    events, size = sum(file.events for file in files), sum(file.size for file in files)
    return Totals(0, 0, len(files), min(events, MAX_INTEGER), min(size, MAX_INTEGER))


def _parts(blocks: Sequence[BlockRow], name: str) -> list[BlockRow]:
    """The blocks among these that have a name, or this name and a number."""
    return [
        block
        for block in blocks
        if block.name == name or (block.name.startswith(f"{name}#") and block.name[len(name) + 1 :].isdigit())
    ]


def _open_block(tx: Transaction, dataset: int, entry: BlockEntry, now: float) -> int:
    """The open block for these files: the one that an earlier call has begun, or a new one."""
    connection = tx.connection
    begun = _parts(datasets.open_blocks(connection, dataset), entry.name)
    places = replicas.of_blocks(connection, [block.id for block in begun])
    for block in begun:
        if {row.replica for row in places.get(block.id, ())} == set(entry.replicas):
            return block.id
    for block in begun:
        datasets.close_block(connection, dataset, block.id)
    number = free_number(connection, dataset, entry.name)
    while (made := insert_part(connection, dataset, entry.name, number, entry.replicas, now)) is None:
        number += 1
    return made


def insert_part(
    connection: Connection, dataset: int, name: str, number: int, places: Sequence[Replica], now: float
) -> int | None:
    """Insert an open block; returns its id. None: this part exists. Without places its location is not known."""
    location = location_sets.id_of(connection, sorted_sites(places)) if places else location_sets.UNKNOWN
    part = _part_name(name, number)
    block = datasets.insert_block(connection, dataset, part, now, location, now if places else None)
    if block is not None:
        replicas.save(connection, [ReplicaRow(block, *place, now) for place in places])
    return block


def free_number(connection: Connection, dataset: int, name: str) -> int:
    """A number that no part of this name has. They are given in order, so a few looks are enough."""

    def is_taken(number: int) -> bool:
        return datasets.block_named(connection, dataset, _part_name(name, number)) is not None

    low, high = 0, 1
    while is_taken(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_taken(middle) else (low, middle)
    return high


def _part_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name}#{number}"


def _confirm(connection: Connection, places: Sequence[Replica], known: Iterable[FileRow], now: float) -> None:
    """Files that are registered again are known to be where they were, if their places are the same."""
    blocks = sorted({row.block for row in known})
    if not blocks or not places:
        return
    stored = replicas.of_blocks(connection, blocks)
    same = [block for block in blocks if {row.replica for row in stored.get(block, ())} >= set(places)]
    replicas.confirm(connection, same, now)


def _close_parts(tx: Transaction, dataset: int, name: str) -> int:
    parts = _parts(datasets.open_blocks(tx.connection, dataset), name)
    for block in parts:
        datasets.close_block(tx.connection, dataset, block.id)
    return len(parts)


def close(tx: Transaction, name: str, *, changer: Viewer) -> DataSetRow:
    """Close a data set and its open blocks: no more files will come. Closing it again changes nothing."""
    row = locked(tx, name, changer)
    if row.request is not None and row.open:
        # A resubmission writes the data set of an earlier request.
        writer = max(dataset_removal.requests_using(tx.connection, row.id), default=row.request)
        raise Conflict(
            f"request {writer} writes the data set {name}, and closes it at its end",
            hint=f"`pilotage request force-complete {writer}` ends it now",
        )
    if row.request is not None:
        # The duty of output blocks counts and closes blocks of late files.
        return row
    blocks = datasets.open_blocks(tx.connection, row.id)
    if blocks and row.catalogue:
        raise Conflict(
            f"blocks of the data set {name} are being copied from {row.catalogue}",
            hint="close it when the reading is complete: see `pilotage catalogue show`",
        )
    for block in blocks:
        datasets.close_block(tx.connection, row.id, block.id)
    datasets.close(tx.connection, row.id)
    return row._replace(open=False)
