"""Locations: changes of replicas, and the location sets of elements that are not split yet.

A change of replicas changes the location of its blocks at once. Elements follow by the duty of locations. Unknown is
never empty: a catalogue that does not answer leaves the last known location and its age as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pilotage.core.datasets.facts import Replica, common_sites
from pilotage.core.errors import InvalidInput
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import datasets, element_locations, location_sets, replicas
from pilotage.store.tables.replicas import MovedBlock, ReplicaRow
from pilotage.store.writer.transaction import Transaction

BLOCKS_AT_ONCE = 50
"""Blocks whose replicas change in one transaction."""
ELEMENTS_AT_ONCE = 250
"""Elements that get another location in one transaction."""
SETTLE = 30.0
"""Seconds for which elements of a moved block are looked for: a transaction that makes one may be open meanwhile."""


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
    blocks = sorted(known)
    replicas.delete(connection, blocks)
    replicas.save(
        connection, [ReplicaRow(block, *place, now) for block in blocks for place in set(known[block])]
    )
    return replicas.locate(connection, blocks, now)


# --- elements


class ElementMove(NamedTuple):
    """An element that is not split yet, and whose blocks have another location now."""

    element: int
    old: int
    """Its present location set."""
    sites: tuple[str, ...] | None
    """The sites of its blocks; None: not known."""


def element_moves(connection: Connection, moved: Sequence[MovedBlock]) -> list[ElementMove]:
    """The moves of Available and held elements that follow from moved blocks."""
    ids = {row.block for row in moved}
    inputs = {block.dataset for block in datasets.blocks_by_ids(connection, sorted(ids)).values()}
    elements = [row for row in element_locations.unsplit(connection, sorted(inputs)) if ids & set(row.blocks)]
    blocks = sorted({block for row in elements for block in row.blocks})
    sets = {block.id: block.location_set for block in datasets.blocks_by_ids(connection, blocks).values()}
    ids_of_sets = sorted({*sets.values(), *(row.location_set for row in elements)})
    known = {
        number: tuple(sorted(sites))
        for number, sites in location_sets.sites_of(connection, ids_of_sets).items()
    }
    moves = []
    for row in elements:
        sites = common_sites([known.get(sets.get(block, location_sets.UNKNOWN)) for block in row.blocks])
        if sites != known.get(row.location_set):
            moves.append(ElementMove(row.element, row.location_set, sites))
    return moves


def move_elements(tx: Transaction, moves: Sequence[ElementMove], now: float) -> list[int]:
    """Store the location of at most `ELEMENTS_AT_ONCE` elements; returns the elements that are now known to be nowhere.

    An element that was split or ended meanwhile keeps its location.
    """
    connection = tx.connection
    sets = {
        sites: location_sets.UNKNOWN if sites is None else location_sets.id_of(connection, sites)
        for sites in dict.fromkeys(move.sites for move in moves)
    }
    changed = element_locations.move(
        connection, [(sets[move.sites], now, move.element, move.old) for move in moves]
    )
    return [move.element for move in moves if move.sites == () and move.element in changed]


def settle(tx: Transaction, moved: Sequence[MovedBlock], now: float) -> None:
    """Forget moved blocks whose elements all have the new location, once no older transaction can be open."""
    replicas.settle(tx.connection, [row for row in moved if not 0 <= now - row.moved < SETTLE])
