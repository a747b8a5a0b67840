"""Sets of sites: each set is one row, which elements and blocks refer to. Rows never change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence

from pilotage.core.workqueue.eligibility import ANYWHERE
from pilotage.store.engine.connection import Connection, in_list

UNKNOWN = 0
"""Stands for a location that is not known. There is no such row."""


def id_of(connection: Connection, sites: Collection[str]) -> int:
    """The id of the set of these sites, which is stored if it is new."""
    text = json.dumps(sorted(set(sites)))
    digest = hashlib.sha256(text.encode()).hexdigest()
    select = "SELECT id FROM location_sets WHERE digest = ?"
    row = connection.execute(select, (digest,)).fetchone()
    if row is None:
        connection.execute(
            "INSERT INTO location_sets (digest, sites) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING",
            (digest, text),
        )
        row = connection.execute(select, (digest,)).fetchone()
    return int(row[0])


def anywhere(connection: Connection) -> int:
    """The id of the set that stands for all sites."""
    return id_of(connection, [ANYWHERE])


def sites_of(connection: Connection, ids: Sequence[int]) -> dict[int, frozenset[str]]:
    """The sites of each of these sets."""
    if not ids:
        return {}
    condition, value = in_list(connection, "id", ids)
    rows = connection.execute(f"SELECT id, sites FROM location_sets WHERE {condition}", (value,))
    return {row[0]: frozenset(json.loads(row[1])) for row in rows}


def after(connection: Connection, last: int) -> list[tuple[int, frozenset[str]]]:
    """Id and sites of each set with an id above `last`. A transaction may still store one with a smaller id: count."""
    rows = connection.execute("SELECT id, sites FROM location_sets WHERE id > ? ORDER BY id", (last,))
    return [(row[0], frozenset(json.loads(row[1]))) for row in rows]


def count(connection: Connection) -> int:
    """The number of all sets. None is ever deleted."""
    return int(connection.execute("SELECT count(*) FROM location_sets").fetchone()[0])
