"""Replicas of blocks at sites, and the locations of blocks that follow from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pilotage.core.datasets.facts import Replica, sorted_sites
from pilotage.store.engine import bulk_statements
from pilotage.store.engine.connection import Connection, bounded_sum, in_list, lock_clause
from pilotage.store.engine.decisions import SHOWN, hint, overwrites
from pilotage.store.engine.rows import columns
from pilotage.store.tables import location_sets


class ReplicaRow(NamedTuple):
    block: int
    site: str
    prefix: str
    known: float
    """When this was last known to be true."""

    @property
    def replica(self) -> Replica:
        return Replica(self.site, self.prefix)


_REPLICA = columns(ReplicaRow, block="block_id")


class MovedBlock(NamedTuple):
    """A block whose location has changed, while elements may still have the earlier one."""

    block: int
    number: int
    """Raised by each change."""
    moved: float


_MOVED_BLOCK = columns(MovedBlock, block="block_id")


# --- replicas

_SAVE = bulk_statements.insert(
    "replicas",
    ("block_id", "site", "prefix", "known"),
    conflict=("block_id", "site"),
    otherwise="UPDATE",
)
_CONFIRM = bulk_statements.update(
    "replicas", ("known", "block_id"), "known = {known}", "block_id = {block_id} AND known < {known}"
)
_SET_LOCATION = bulk_statements.update(
    "blocks",
    ("location_set", "located", "id"),
    "location_set = {location_set}, located = {located}",
    "id = {id}",
)


def save(connection: Connection, rows: Iterable[ReplicaRow]) -> None:
    """Insert replicas; one at the same site gets the new prefix and time."""
    connection.execute_bulk(_SAVE, list(rows))


def confirm(connection: Connection, blocks: Iterable[int], now: float) -> None:
    """All replicas of these blocks are known to be true now."""
    connection.execute_bulk(_CONFIRM, [(now, block) for block in blocks])


def delete(connection: Connection, blocks: Sequence[int], site: str = "") -> None:
    """Delete the replicas of blocks at one site, or all of them."""
    condition, value = in_list(connection, "block_id", blocks)
    connection.execute(
        f"DELETE FROM replicas WHERE {condition} AND (? = '' OR site = ?)", (value, site, site)
    )


def of_blocks(connection: Connection, blocks: Sequence[int]) -> dict[int, list[ReplicaRow]]:
    """The replicas of each block by site. A block without any is not in the answer."""
    condition, value = in_list(connection, "block_id", blocks)
    sql = f"SELECT {_REPLICA} FROM replicas WHERE {condition} ORDER BY block_id, site"
    by_block: dict[int, list[ReplicaRow]] = {}
    for row in connection.execute(sql, (value,)):
        by_block.setdefault(row[0], []).append(ReplicaRow(*row))
    return by_block


@hint(SHOWN)
def places_of(connection: Connection, dataset: int, most: int) -> list[Replica]:
    """The distinct places of a data set, at most `most`."""
    sql = (
        "SELECT DISTINCT r.site, r.prefix FROM blocks b JOIN replicas r ON r.block_id = b.id"
        " WHERE b.dataset_id = ? ORDER BY r.site, r.prefix LIMIT ?"
    )
    return [Replica(*row) for row in connection.execute(sql, (dataset, most))]


def by_site(connection: Connection, dataset: int) -> list[tuple[str, int, int, int, float]]:
    """(site, blocks, files, bytes, oldest time of a replica) for each site with a part of a data set."""
    rows = connection.execute(
        f"SELECT r.site, count(*), {bounded_sum(connection, 'b.files')}, {bounded_sum(connection, 'b.size')},"
        " min(r.known) FROM blocks b"
        " JOIN replicas r ON r.block_id = b.id WHERE b.dataset_id = ? GROUP BY r.site ORDER BY r.site",
        (dataset,),
    )
    return [(row[0], int(row[1]), int(row[2]), int(row[3]), row[4]) for row in rows]


def unplaced(connection: Connection, dataset: int) -> tuple[int, int]:
    """How many blocks of a data set are at an unknown location, and how many are known to be nowhere."""
    nowhere = connection.execute("SELECT id FROM location_sets WHERE sites = '[]'").fetchone()
    row = connection.execute(
        "SELECT coalesce(sum(CASE WHEN location_set = 0 THEN 1 ELSE 0 END), 0),"
        " coalesce(sum(CASE WHEN location_set = ? THEN 1 ELSE 0 END), 0) FROM blocks WHERE dataset_id = ?",
        (-1 if nowhere is None else nowhere[0], dataset),
    ).fetchone()
    return int(row[0]), int(row[1])


def share_open_block(connection: Connection, dataset: int, replica: Replica) -> int | None:
    """The newest open block of a data set at this place. Nobody can close it until the transaction ends.

    Its replicas may change meanwhile: messages of pilots do not wait for that.
    """
    row = connection.execute(
        "SELECT b.id FROM blocks b JOIN replicas r ON r.block_id = b.id"
        " WHERE b.dataset_id = ? AND b.open = 1 AND r.site = ? AND r.prefix = ? ORDER BY b.id DESC LIMIT 1"
        + lock_clause(connection, "KEY SHARE OF b"),
        (dataset, replica.site, replica.prefix),
    ).fetchone()
    return None if row is None else int(row[0])


# --- locations of blocks


def lock_blocks(connection: Connection, blocks: Sequence[int]) -> list[int]:
    """The blocks among these that exist. Nobody else changes their replicas, or uses their location, meanwhile.

    Call it before the first look at replicas that are to change.
    """
    condition, value = in_list(connection, "id", blocks)
    sql = f"SELECT id FROM blocks WHERE {condition} ORDER BY id"
    return [row[0] for row in connection.execute(sql + lock_clause(connection, "NO KEY UPDATE"), (value,))]


def share_locations(connection: Connection, blocks: Collection[int]) -> dict[int, int]:
    """The location set of each of these blocks. It stays until the transaction ends, and so it is true of new work."""
    condition, value = in_list(connection, "id", sorted(blocks))
    sql = f"SELECT id, location_set FROM blocks WHERE {condition} ORDER BY id"
    return dict(connection.execute(sql + lock_clause(connection, "SHARE"), (value,)).fetchall())


def locate(connection: Connection, blocks: Sequence[int], now: float, *, forget: bool = False) -> int:
    """Store the location of locked blocks from their replicas; returns how many have moved.

    A block without replicas is then known to be nowhere. With `forget` its location is unknown instead.
    """
    condition, value = in_list(connection, "id", blocks)
    before = dict(
        connection.execute(f"SELECT id, location_set FROM blocks WHERE {condition}", (value,)).fetchall()
    )
    replicas = of_blocks(connection, blocks)
    sets: dict[tuple[str, ...], int] = {}
    changes, moved = [], list[int]()
    for block, old in before.items():
        if forget:
            new = location_sets.UNKNOWN
        else:
            sites = sorted_sites(row.replica for row in replicas.get(block, ()))
            new = (
                sets[sites]
                if sites in sets
                else sets.setdefault(sites, location_sets.id_of(connection, sites))
            )
        changes.append((new, None if forget else now, block))
        if new != old:
            moved.append(block)
    connection.execute_bulk(_SET_LOCATION, changes)
    record_moved(connection, moved, now)
    return len(moved)


def record_moved(connection: Connection, blocks: Sequence[int], now: float) -> None:
    """Remember that elements need the present location of these blocks."""
    for block in blocks:
        connection.execute_later(
            "INSERT INTO moved_blocks (block_id, number, moved) VALUES (?, 1, ?) ON CONFLICT (block_id)"
            " DO UPDATE SET number = moved_blocks.number + 1, moved = excluded.moved",
            (block, now),
        )


def moved_blocks(connection: Connection, limit: int, after: int = 0) -> list[MovedBlock]:
    """Moved blocks with ids above `after`, by id."""
    sql = f"SELECT {_MOVED_BLOCK} FROM moved_blocks WHERE block_id > ? ORDER BY block_id LIMIT ?"
    return [MovedBlock(*row) for row in connection.execute(sql, (after, limit))]


_SETTLE = bulk_statements.delete(
    "moved_blocks", ("block_id", "number"), "block_id = {block_id} AND number = {number}"
)


@overwrites("the condition leaves a block that has moved again")
def settle(connection: Connection, moved: Iterable[MovedBlock]) -> None:
    """All elements have the location of these blocks, unless a block has moved again since."""
    connection.execute_bulk(_SETTLE, [(row.block, row.number) for row in moved])
