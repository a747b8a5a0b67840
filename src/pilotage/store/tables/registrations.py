"""Closed blocks of output data sets, on their way into an outside catalogue."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.rows import columns


class RegistrationRow(NamedTuple):
    """A block that is not registered."""

    block: int
    name: str
    """The name of the block."""
    dataset: int
    dataset_name: str
    """CATALOGUE:NAME THERE."""
    failures: int
    problem: str
    """Why the last try failed; empty: it did not."""

    @property
    def there(self) -> str:
        """The name of the data set in the catalogue."""
        return self.dataset_name.partition(":")[2]


_COLUMNS = columns(RegistrationRow, "r.", block="b.id", name="b.name", dataset="d.id", dataset_name="d.name")
_OPEN = (
    f"SELECT {_COLUMNS} FROM block_registrations r JOIN blocks b ON b.id = r.block_id"
    " JOIN datasets d ON d.id = b.dataset_id WHERE r.catalogue = ? AND r.registered IS NULL AND d.removed IS NULL"
)


def intend(connection: Connection, now: float, most: int) -> int:
    """Note closed blocks that nobody has registered, before the first call; returns their number."""
    done = connection.execute(
        "INSERT INTO block_registrations (block_id, dataset_id, catalogue, intended)"
        " SELECT b.id, d.id, d.catalogue, ? FROM datasets d JOIN blocks b ON b.dataset_id = d.id"
        " WHERE d.catalogue <> '' AND d.request_id IS NOT NULL AND d.removed IS NULL AND b.open = 0 AND b.files > 0"
        " AND NOT EXISTS (SELECT 1 FROM block_registrations r WHERE r.block_id = b.id) LIMIT ?",
        (now, most),
    )
    return done.rowcount


def open_ones(
    connection: Connection, catalogue: str, tried_before: float, most: int
) -> list[RegistrationRow]:
    """Blocks that are not registered, blocks that were never tried first. None tried since `tried_before`."""
    rows = connection.execute(
        f"{_OPEN} AND (r.tried IS NULL OR r.tried < ?) ORDER BY coalesce(r.tried, 0), r.block_id LIMIT ?",
        (catalogue, tried_before, most),
    )
    return [RegistrationRow(*row) for row in rows]


def finish(connection: Connection, block: int, now: float) -> None:
    """The catalogue has the whole block."""
    connection.execute(
        "UPDATE block_registrations SET registered = ?, tried = ?, problem = '' WHERE block_id = ?",
        (now, now, block),
    )


def fail(connection: Connection, block: int, problem: str, now: float) -> None:
    """A try has failed."""
    connection.execute(
        "UPDATE block_registrations SET tried = ?, failures = failures + 1, problem = ? WHERE block_id = ?",
        (now, problem, block),
    )


class OutputDataset(NamedTuple):
    """A closed output data set whose blocks are all registered."""

    dataset: int
    name: str

    @property
    def there(self) -> str:
        return self.name.partition(":")[2]


def complete(connection: Connection, catalogue: str) -> list[OutputDataset]:
    """The output data sets of a catalogue that can be closed there."""
    rows = connection.execute(
        "SELECT d.id, d.name FROM datasets d WHERE d.catalogue = ? AND d.request_id IS NOT NULL AND d.open = 0"
        " AND d.removed IS NULL AND NOT EXISTS (SELECT 1 FROM closed_registrations c WHERE c.dataset_id = d.id)"
        " AND EXISTS (SELECT 1 FROM block_registrations r WHERE r.dataset_id = d.id)"
        " AND NOT EXISTS (SELECT 1 FROM blocks b LEFT JOIN block_registrations r ON r.block_id = b.id"
        " WHERE b.dataset_id = d.id AND (b.open = 1 OR (b.files > 0 AND r.registered IS NULL))) ORDER BY d.id",
        (catalogue,),
    )
    return [OutputDataset(*row) for row in rows]


def set_closed(connection: Connection, dataset: int, now: float) -> None:
    """An output data set is closed in its catalogue."""
    connection.execute(
        "INSERT INTO closed_registrations (dataset_id, closed) VALUES (?, ?) ON CONFLICT (dataset_id) DO NOTHING",
        (dataset, now),
    )


class RegistrationCount(NamedTuple):
    """Blocks of outputs that a catalogue has, or waits for."""

    registered: int
    waiting: int
    problem: str
    """One of the problems; empty: there is none."""


class WaitingOutputs(NamedTuple):
    """Blocks of a request's outputs that a catalogue does not have yet."""

    catalogue: str
    blocks: int
    problem: str
    """One of the problems; empty: there is none."""


def waiting_of_request(connection: Connection, request: int) -> list[WaitingOutputs]:
    """The blocks of a request's outputs that are not registered, by catalogue."""
    rows = connection.execute(
        "SELECT r.catalogue, count(*), coalesce(max(r.problem), '') FROM block_registrations r"
        " JOIN datasets d ON d.id = r.dataset_id WHERE r.registered IS NULL AND d.request_id = ?"
        " AND d.removed IS NULL GROUP BY r.catalogue ORDER BY r.catalogue",
        (request,),
    )
    return [WaitingOutputs(*row) for row in rows]


def counts(connection: Connection) -> dict[str, RegistrationCount]:
    """The blocks of each catalogue."""
    rows = connection.execute(
        "SELECT catalogue, count(registered), count(*) - count(registered),"
        " coalesce(max(CASE WHEN registered IS NULL THEN problem END), '') FROM block_registrations"
        " GROUP BY catalogue"
    )
    return {row[0]: RegistrationCount(int(row[1]), int(row[2]), row[3]) for row in rows}
