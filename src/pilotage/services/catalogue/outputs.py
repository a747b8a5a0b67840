"""Output data sets: files are registered in the transaction in which their job finishes.

Each place (site and prefix) has an open block of its own in a data set. Finishing jobs share the lock of the block, and
its counts are stored when it is closed: servers that finish jobs at the same time do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pilotage.core.datasets.facts import ANYWHERE, FileEntry, Replica
from pilotage.core.policy import Policy
from pilotage.services.catalogue.registration import free_number, insert_part
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import datasets, replicas
from pilotage.store.tables.dataset_totals import Totals
from pilotage.store.tables.datasets import DataSetRow
from pilotage.store.writer.transaction import Transaction

BLOCKS_AT_ONCE = 64
"""Blocks closed in one transaction, at most."""
FILES_AT_ONCE = 3000
"""Files counted in one transaction before it ends: about 2 ms on SQLite."""


class WrittenFile(NamedTuple):
    """A file that a job has written and stored."""

    dataset: int
    file: FileEntry
    place: Replica
    """Where it is stored: its path there is the prefix, a slash and its name."""
    also: tuple[str, ...] = ()
    """Further sites that read it at the same address."""


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """When an open block of an output data set is closed: at the first of these limits."""

    files: int = 500
    size: int = 500_000_000_000
    age: float = 3600.0
    """Seconds since its first file."""

    @classmethod
    def of(cls, policy: Policy) -> BlockLimits:
        requests = policy.requests
        return cls(requests.output_block_files, requests.output_block_size, requests.output_block_age)


def register_outputs(
    tx: Transaction,
    element_job: int,
    outputs: Sequence[WrittenFile],
    now: float,
    limits: BlockLimits = BlockLimits(),
) -> tuple[str, ...]:
    """Register the outputs of a finished job; returns the names that another job or user has registered before.

    Files with these names were not registered. Call it within the transaction of the finish, which makes it durable
    together with the end of the job. Files that this job has registered before change nothing.
    """
    blocks: dict[tuple[int, Replica], int] = {}
    taken: list[str] = []
    for dataset in sorted({output.dataset for output in outputs}):
        of_dataset = [output for output in outputs if output.dataset == dataset]
        for place, also in sorted({(output.place, output.also) for output in of_dataset}):
            places = [place, *(Replica(site, place.prefix) for site in also)]
            blocks[dataset, place] = _open_block(tx, dataset, places, limits, now)
        rows = [(blocks[dataset, output.place], output.file, element_job) for output in of_dataset]
        inserted = datasets.insert_files(tx.connection, dataset, rows, now)
        missing = [output.file.name for output in of_dataset if output.file.name not in inserted]
        if missing:
            known = datasets.files_named(tx.connection, dataset, missing)
            taken += [name for name in missing if known[name].element_job != element_job]
    return tuple(taken)


def _open_block(
    tx: Transaction, dataset: int, places: Sequence[Replica], limits: BlockLimits, now: float
) -> int:
    """The open block of a place, locked against closing until the transaction ends. A full one gets a successor.

    `places`: the place of the job, and the same address for further sites.
    """
    connection, number, place = tx.connection, 0, places[0]
    name = "anywhere" if place.site == ANYWHERE else place.site
    while True:
        block = replicas.share_open_block(connection, dataset, place)
        if block is not None and not datasets.has_files(connection, block, limits.files):
            return block
        number = number + 1 if number else free_number(connection, dataset, name)
        # Another server may have taken the number: then its block may be the one of this place.
        block = insert_part(connection, dataset, name, number, places, now)
        if block is not None:
            return block


class BegunBlock(NamedTuple):
    """An open block of an output data set."""

    id: int
    dataset: int
    created: float
    has_ended: bool
    """The data set was closed."""


def begun_blocks(connection: Connection) -> list[BegunBlock]:
    return [
        BegunBlock(block.id, block.dataset, block.created, has_ended)
        for block, has_ended in datasets.open_output_blocks(connection)
    ]


def due_blocks(
    connection: Connection, begun: Sequence[BegunBlock], now: float, limits: BlockLimits = BlockLimits()
) -> dict[int, list[int]]:
    """The blocks of each output data set that have reached a limit. Of a closed data set: all of them."""
    contents = datasets.contents_of(connection, [block.id for block in begun])
    due: dict[int, list[int]] = {}
    for block in begun:
        if block.has_ended or _is_due(block, contents.get(block.id, Totals()), limits, now):
            due.setdefault(block.dataset, []).append(block.id)
    return due


def _is_due(block: BegunBlock, contents: Totals, limits: BlockLimits, now: float) -> bool:
    return (
        contents.files >= limits.files
        or contents.size >= limits.size
        or not 0 <= now - block.created < limits.age
    )


def close_blocks(tx: Transaction, dataset: int, blocks: Sequence[int]) -> int:
    """Close these blocks of an output data set and store their counts; returns how many were closed.

    Blocks stay open that a finish on another server uses at this instant, and all after `FILES_AT_ONCE` files.
    """
    if datasets.lock(tx.connection, dataset) is None:
        return 0
    closed = files = 0
    for block in datasets.lock_open_blocks(tx.connection, blocks):
        if files >= FILES_AT_ONCE:
            break
        files += datasets.count_contents(tx.connection, block.id)
        datasets.close_block(tx.connection, dataset, block.id)
        closed += 1
    return closed


def close_output(tx: Transaction, dataset: int, now: float) -> bool:
    """Close an output data set whose step has ended, with all of its blocks. False: call it again."""
    begun = [block.id for block in datasets.open_blocks(tx.connection, dataset)]
    if close_blocks(tx, dataset, begun[:BLOCKS_AT_ONCE]) < len(begun):
        return False
    datasets.close(tx.connection, dataset)
    return True


def create_output(
    tx: Transaction,
    name: str,
    *,
    owner: str,
    group: str,
    request: int,
    step: int,
    catalogue: str = "",
    now: float,
) -> DataSetRow | None:
    """A new data set that a step of a request writes; None: the name is taken.

    `catalogue`: the outside catalogue that its blocks are registered in.
    """
    return datasets.insert(
        tx.connection,
        name=name,
        owner=owner,
        group=group,
        now=now,
        request=request,
        step=step,
        catalogue=catalogue,
    )
