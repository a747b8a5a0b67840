"""The contents of data sets. Closed blocks are counted as they are closed, since a data set may have very many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pilotage.store.engine.connection import (
    MAX_INTEGER,
    Connection,
    bounded_addition,
    bounded_sum,
    in_list,
)
from pilotage.store.engine.decisions import SHOWN, hint


class Totals(NamedTuple):
    """The contents of a data set or of a block."""

    blocks: int = 0
    open_blocks: int = 0
    files: int = 0
    events: int = 0
    size: int = 0


@hint(SHOWN)
def totals(connection: Connection, datasets: Sequence[int]) -> dict[int, Totals]:
    """The contents of each data set. Files of open blocks that jobs write are not in them."""
    condition, value = in_list(connection, "dataset_id", datasets)
    rows = connection.execute(
        f"SELECT dataset_id, count(*), {', '.join(sums(connection, 'files', 'events', 'size'))}"
        f" FROM blocks WHERE {condition} AND open = 1 GROUP BY dataset_id",
        (value,),
    )
    opened = {row[0]: Totals(*map(int, (row[1], *row[1:]))) for row in rows}
    condition, value = in_list(connection, "id", datasets)
    counted = connection.execute(
        f"SELECT id, closed_blocks, closed_files, closed_events, closed_size FROM datasets WHERE {condition}",
        (value,),
    )
    pairs = ((row[0], Totals(row[1], 0, *row[2:]), opened.get(row[0], Totals())) for row in counted)
    return {
        number: Totals(*(min(sum(pair), MAX_INTEGER) for pair in zip(closed, still_open, strict=True)))
        for number, closed, still_open in pairs
    }


def add_closed(connection: Connection, dataset: int, contents: Sequence[int]) -> None:
    """Count a block that is being closed, with its files, events and size. Its data set is locked."""
    added = ", ".join(
        f"{column} = {bounded_addition(column)}"
        for column in ("closed_files", "closed_events", "closed_size")
    )
    connection.execute(
        f"UPDATE datasets SET closed_blocks = closed_blocks + 1, {added} WHERE id = ?",
        (*(value for value in contents for _ in range(2)), dataset),
    )


def sums(connection: Connection, *columns: str) -> list[str]:
    return [bounded_sum(connection, column) for column in columns]
