"""A digest of the rows of each table, to compare the stores of two runs."""

from __future__ import annotations

import hashlib
from typing import Any

from pilotage.store.engine.connection import Connection
from pilotage.store.schema import metadata

OTHER = frozenset({"secret_hash", "token_hash", "salt", "signing_key", "sandboxes", "xid"})
"""Columns that follow from secrets, from folders, or from the numbers of a database's transactions."""


def digest_of_tables(connection: Connection) -> dict[str, str]:
    """The digest of each table. Columns that differ between two stores by themselves are left out."""
    return {table.name: _digest(connection, table) for table in metadata.sorted_tables}


def _digest(connection: Connection, table: Any) -> str:
    left_out = OTHER | {"at"} if table.name == "changes" else OTHER
    columns = ", ".join(f'"{column.name}"' for column in table.columns if column.name not in left_out)
    digest, count = hashlib.sha256(), 0
    rows = sorted(repr(tuple(row)) for row in connection.execute(f'SELECT {columns} FROM "{table.name}"'))
    for row in rows:
        digest.update(row.encode())
        count += 1
    return f"{count} {digest.hexdigest()[:32]}"


def replace_secret(connection: Connection, digest: str, by: str) -> None:
    """Let another secret be the valid one, wherever a row has the digest of the first."""
    for table in metadata.sorted_tables:
        for column in table.columns:
            if column.name in ("secret_hash", "token_hash"):
                sql = f'UPDATE "{table.name}" SET "{column.name}" = ? WHERE "{column.name}" = ?'
                connection.execute(sql, (by, digest))
