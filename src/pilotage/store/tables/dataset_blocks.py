"""Blocks of data sets as the intake of requests reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import SHOWN, decision, hint
from pilotage.store.engine.rows import columns


class InputDataset(NamedTuple):
    id: int
    name: str
    open: int
    """1: more blocks may come."""


_INPUT_DATASET = columns(InputDataset)


@hint("an open data set is looked at again by the next intake")
def datasets_by_id(connection: Connection, ids: Sequence[int]) -> dict[int, InputDataset]:
    if not ids:
        return {}
    condition, value = in_list(connection, "id", ids)
    rows = connection.execute(f"SELECT {_INPUT_DATASET} FROM datasets WHERE {condition}", (value,))
    return {row[0]: InputDataset(*row) for row in rows}


@decision("looked at before the blocks: a closed data set gets no new block")
def has_open_block(connection: Connection, dataset: int) -> bool:
    sql = "SELECT 1 FROM blocks WHERE dataset_id = ? AND closed_number IS NULL LIMIT 1"
    return connection.execute(sql, (dataset,)).fetchone() is not None


@hint(SHOWN)
def location_sets_of(connection: Connection, dataset: int) -> list[int]:
    """The location sets of a data set's closed blocks."""
    sql = "SELECT DISTINCT location_set FROM blocks WHERE dataset_id = ? AND closed_number IS NOT NULL"
    return [row[0] for row in connection.execute(sql, (dataset,))]


@decision("the files of a closed block never change")
def lumis_of(connection: Connection, block: int) -> list[str]:
    """The lumis of each file of a block that has any, as JSON."""
    sql = "SELECT lumis FROM files WHERE block_id = ? AND lumis <> ''"
    return [row[0] for row in connection.execute(sql, (block,))]
