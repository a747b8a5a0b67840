"""Copies a data set of another catalogue into our own tables, and keeps it up to date.

Reading may take long and fail: it happens outside of the writer. Each function for the writer takes a part that was
read before. A catalogue that does not answer changes nothing, so the last known location stays, with its age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from pilotage.core.datasets.facts import BlockEntry
from pilotage.outside.catalogue.adapter import Catalogue, KnownReplicas
from pilotage.services.catalogue import registration
from pilotage.services.catalogue.locations import BLOCKS_AT_ONCE, set_replicas
from pilotage.services.catalogue.registration import FILES_AT_ONCE
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import datasets
from pilotage.store.tables.selections import Viewer
from pilotage.store.writer.transaction import Transaction

Result = TypeVar("Result")
Write = Callable[[Callable[[Transaction], Result]], Result]
"""Runs a function as one transaction of the writer."""


def copy_blocks(
    source: Catalogue, name: str, after: int, write: Write[object], now: float, by: Viewer
) -> int:
    """Register the closed blocks of a data set after a cursor; returns the cursor of the last block.

    The data set exists in our tables. A copy that was interrupted is continued by the next call: files that are
    registered already change nothing.
    """
    while blocks := source.blocks(name, after, BLOCKS_AT_ONCE):
        places = source.replicas(name, [block.name for block in blocks])
        for block in blocks:
            known = places.get(block.name)
            files = tuple(source.files(name, block.name))
            for first in range(0, max(1, len(files)), FILES_AT_ONCE):
                part = files[first : first + FILES_AT_ONCE]
                entry = BlockEntry(block.name, part, () if known is None else known.replicas)
                complete = first + FILES_AT_ONCE >= len(files)
                write(
                    partial(
                        registration.add_block,
                        name=name,
                        entry=entry,
                        changer=by,
                        complete=complete,
                        now=now,
                    )
                )
            after = block.cursor
    return after


def refresh_replicas(source: Catalogue, connection: Connection, name: str, write: Write[int]) -> int:
    """Bring the location of all blocks of a data set up to date; returns how many have moved."""
    row = registration.find(connection, name)
    moved = 0
    for part in _parts(connection, row.id):
        answer = source.replicas(name, [block for _, block in part])
        by_time: dict[float, dict[int, KnownReplicas]] = {}
        for number, block in part:
            if block in answer:
                by_time.setdefault(answer[block].known, {})[number] = answer[block]
        for known, places in by_time.items():
            answers = {block: place.replicas for block, place in places.items()}
            moved += write(partial(set_replicas, known=answers, now=known))
    return moved


def _parts(connection: Connection, dataset: int) -> Iterator[Sequence[tuple[int, str]]]:
    """The ids and names of all blocks, some at a time."""
    after = 0
    while rows := datasets.block_page(connection, dataset, after, BLOCKS_AT_ONCE):
        yield [(row.id, row.name) for row in rows]
        after = rows[-1].id
