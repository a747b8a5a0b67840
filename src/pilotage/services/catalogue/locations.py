"""Locations: changes of replicas, and the location sets of elements and of their jobs.

A change of replicas changes the location of its blocks at once. New elements and jobs hold the locations of their
blocks until they are stored, so none of them begins with an old one. Stored ones follow by the duty of locations.
Unknown is never empty: a catalogue that does not answer leaves the last known location and its age as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pilotage.core.datasets.facts import Replica, common_sites
from pilotage.core.errors import InvalidInput
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import datasets, element_locations, location_sets, replicas
from pilotage.store.tables.element_locations import LocatedElement, StaleJob
from pilotage.store.tables.replicas import MovedBlock, ReplicaRow
from pilotage.store.writer.transaction import Transaction

BLOCKS_AT_ONCE = 50
"""Blocks whose replicas change in one transaction."""
ELEMENTS_AT_ONCE = 250
"""Elements that get another location in one transaction."""
JOBS_AT_ONCE = 500
"""Element jobs that get another location in one transaction."""


class ReplicaChange(NamedTuple):
    """A change of the replicas of blocks."""

    add: tuple[Replica, ...] = ()
    """With an empty prefix: the prefix of the replica that the block has elsewhere."""
    remove: tuple[str, ...] = ()
    """Sites. A block that loses its last replica is known to be nowhere."""
    forget: bool = False
    """Delete all replicas: the location is not known any more."""


def change_replicas(tx: Transaction, blocks: Sequence[int], change: ReplicaChange, now: float) -> int:
    """Change the replicas of at most `BLOCKS_AT_ONCE` blocks; returns how many blocks have moved."""
    connection = tx.connection
    blocks = replicas.lock_blocks(connection, blocks)
    if change.forget:
        replicas.delete(connection, blocks)
        return replicas.locate(connection, blocks, now, forget=True)
    for site in change.remove:
        replicas.delete(connection, blocks, site)
    if change.add:
        stored = replicas.of_blocks(connection, blocks)
        rows = [
            ReplicaRow(block, place.site, place.prefix or _prefix_elsewhere(stored.get(block, ())), now)
            for block in blocks
            for place in change.add
        ]
        replicas.save(connection, rows)
    return replicas.locate(connection, blocks, now)


def _prefix_elsewhere(stored: Sequence[ReplicaRow]) -> str:
    prefixes = {row.prefix for row in stored}
    if len(prefixes) != 1:
        raise InvalidInput(
            "the prefix of the new replica is needed, since the other replicas have none or several",
            hint="--add SITE=PREFIX",
            field="add",
        )
    return prefixes.pop()


def set_replicas(tx: Transaction, known: Mapping[int, Sequence[Replica]], now: float) -> int:
    """Store the answer of an outside catalogue about these blocks; returns how many have moved.

    A block that is not in `known` keeps its location: the catalogue does not know it, or has not answered.
    """
    connection = tx.connection
    blocks = replicas.lock_blocks(connection, sorted(known))
    replicas.delete(connection, blocks)
    replicas.save(
        connection, [ReplicaRow(block, *place, now) for block in blocks for place in set(known[block])]
    )
    return replicas.locate(connection, blocks, now)


# --- elements and their jobs


def hold_locations(tx: Transaction, inputs: Sequence[Sequence[int]]) -> list[int]:
    """The present location set of each of these lists of blocks, for new elements or jobs of them.

    No server moves the blocks until the transaction ends. So the moves of a block see all that was made of it before.
    """
    connection = tx.connection
    sets = replicas.share_locations(connection, {block for blocks in inputs for block in blocks})
    lists = [tuple({sets.get(block, location_sets.UNKNOWN) for block in blocks}) for blocks in inputs]
    mixed = {several for several in lists if len(several) != 1}
    known = _sites_of(connection, {number for several in mixed for number in several})
    common = {several: _id_of(connection, common_sites([known.get(n) for n in several])) for several in mixed}
    return [common[several] if several in common else several[0] for several in lists]


def _sites_of(connection: Connection, sets: Collection[int]) -> dict[int, tuple[str, ...]]:
    rows = location_sets.sites_of(connection, sorted(sets))
    return {number: tuple(sorted(sites)) for number, sites in rows.items()}


def _id_of(connection: Connection, sites: tuple[str, ...] | None) -> int:
    return location_sets.UNKNOWN if sites is None else location_sets.id_of(connection, sites)


def elements_of_moved(connection: Connection, moved: Sequence[MovedBlock]) -> list[LocatedElement]:
    """The elements of moved blocks that have not ended."""
    ids = {row.block for row in moved}
    inputs = {block.dataset for block in datasets.blocks_by_ids(connection, sorted(ids)).values()}
    return [row for row in element_locations.unended(connection, sorted(inputs)) if ids & set(row.blocks)]


def move_elements(tx: Transaction, elements: Sequence[LocatedElement], now: float) -> list[int]:
    """Give at most `ELEMENTS_AT_ONCE` elements the location of their blocks.

    Returns the ids of elements that are now known to be nowhere. An element that ended meanwhile keeps its location.
    """
    connection = tx.connection
    sets = hold_locations(tx, [element.blocks for element in elements])
    changed = element_locations.move(
        connection, [(number, now, element.id) for number, element in zip(sets, elements, strict=True)]
    )
    sites = _sites_of(connection, set(sets))
    return [
        element.id
        for number, element in zip(sets, elements, strict=True)
        if element.id in changed and sites.get(number) == ()
    ]


def move_jobs(tx: Transaction, jobs: Sequence[StaleJob]) -> None:
    """Give at most `JOBS_AT_ONCE` unfinished jobs the location of the blocks of their elements."""
    inputs = sorted({job.blocks for job in jobs})
    sets = dict(zip(inputs, hold_locations(tx, inputs), strict=True))
    element_locations.move_jobs(tx.connection, [(sets[job.blocks], job.id) for job in jobs])


def settle(tx: Transaction, moved: Sequence[MovedBlock]) -> None:
    """Forget moved blocks whose elements and jobs all have the new location, unless a block has moved again."""
    replicas.settle(tx.connection, moved)
