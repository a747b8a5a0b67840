"""Data sets that are copied from outside catalogues: when they were read, and their problems."""

from __future__ import annotations

from typing import NamedTuple

from pilotage.store.engine.connection import Connection
from pilotage.store.engine.decisions import ONE_SERVER, SHOWN, hint, overwrites
from pilotage.store.engine.rows import columns
from pilotage.store.tables.dataset_removal import ENDED, reads


class FollowedRow(NamedTuple):
    dataset: int
    name: str
    """CATALOGUE:NAME THERE."""
    catalogue: str
    open: int
    """1: more blocks may come."""
    asked: float
    """When somebody last needed fresh knowledge."""
    read: float | None
    """When the last complete reading began; None: there was none."""
    tried: float | None
    """When the last reading began, complete or not; None: none has begun."""
    problem: str
    """Why the last reading failed; empty: it did not."""
    note: str
    """Blocks that the last complete reading left out, and why."""

    @property
    def there(self) -> str:
        """Its name in the catalogue."""
        return self.name.partition(":")[2]


_COLUMNS = columns(
    FollowedRow, "f.", dataset="f.dataset_id", name="d.name", catalogue="d.catalogue", open="d.open"
)
_FOLLOWED = (
    f"SELECT {_COLUMNS} FROM followed_datasets f JOIN datasets d ON d.id = f.dataset_id"
    " WHERE d.removed IS NULL"
)


def insert(connection: Connection, dataset: int, now: float) -> None:
    sql = "INSERT INTO followed_datasets (dataset_id, asked) VALUES (?, ?)"
    connection.execute(sql, (dataset, now))


def ask(connection: Connection, dataset: int, now: float) -> None:
    """Somebody needs fresh knowledge now."""
    sql = "UPDATE followed_datasets SET asked = ? WHERE dataset_id = ? AND asked < ?"
    connection.execute(sql, (now, dataset, now))


@hint(SHOWN)
def of_dataset(connection: Connection, dataset: int) -> FollowedRow | None:
    row = connection.execute(f"{_FOLLOWED} AND f.dataset_id = ?", (dataset,)).fetchone()
    return None if row is None else FollowedRow(*row)


def of_catalogue(connection: Connection, catalogue: str) -> list[FollowedRow]:
    rows = connection.execute(f"{_FOLLOWED} AND d.catalogue = ? ORDER BY f.dataset_id", (catalogue,))
    return [FollowedRow(*row) for row in rows]


def due(
    connection: Connection, catalogue: str, *, read_before: float, tried_before: float
) -> list[FollowedRow]:
    """The data sets of a catalogue whose next reading is due.

    They were asked for since their last reading, or an unfinished request reads them and it was before `read_before`.
    A data set that was tried since `tried_before` is left out, unless it was asked for after the try. The one whose
    last try is oldest comes first, so one that brings the catalogue down is the last next time.
    """
    used = (
        "EXISTS (SELECT 1 FROM request_steps s JOIN requests r ON r.id = s.request_id"
        f" WHERE {reads(connection, 'f.dataset_id')} AND r.state NOT IN ({ENDED}))"
    )
    rows = connection.execute(
        f"{_FOLLOWED} AND d.catalogue = ? AND (f.tried IS NULL OR f.tried < ? OR f.asked > f.tried)"
        f" AND (f.read IS NULL OR f.asked > f.read OR (f.read < ? AND {used}))"
        " ORDER BY coalesce(f.tried, 0), f.asked, f.dataset_id",
        (catalogue, tried_before, read_before),
    )
    return [FollowedRow(*row) for row in rows]


@hint("the intake looks again after the next reading")
def is_behind(connection: Connection, dataset: int, instant: float) -> bool:
    """Whether a data set is copied from a catalogue that was not read completely since an instant."""
    row = connection.execute(
        "SELECT 1 FROM followed_datasets WHERE dataset_id = ? AND (read IS NULL OR read < ?)",
        (dataset, instant),
    ).fetchone()
    return row is not None


def begin(connection: Connection, dataset: int, now: float) -> None:
    """A reading begins."""
    connection.execute("UPDATE followed_datasets SET tried = ? WHERE dataset_id = ?", (now, dataset))


@overwrites(ONE_SERVER)
def finish(connection: Connection, dataset: int, read: float, note: str) -> None:
    """A reading that began at `read` is complete."""
    connection.execute(
        "UPDATE followed_datasets SET read = ?, problem = '', note = ? WHERE dataset_id = ?",
        (read, note, dataset),
    )


def fail(connection: Connection, dataset: int, problem: str) -> None:
    """A reading has failed."""
    connection.execute("UPDATE followed_datasets SET problem = ? WHERE dataset_id = ?", (problem, dataset))


def counts(connection: Connection) -> dict[str, tuple[int, float | None]]:
    """The number of copied data sets of each catalogue, and the time of the oldest reading among them."""
    rows = connection.execute(
        "SELECT d.catalogue, count(*), min(f.read) FROM followed_datasets f JOIN datasets d ON d.id = f.dataset_id"
        " WHERE d.removed IS NULL GROUP BY d.catalogue"
    )
    return {row[0]: (int(row[1]), row[2]) for row in rows}
