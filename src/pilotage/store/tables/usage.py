"""The cache of use: buckets as rows, read whole at start and written by change; and what attempts say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pilotage.core.shares.correction import Memory
from pilotage.core.shares.use import Bucket, Entity, Ledger, Outage
from pilotage.store.engine.bulk_statements import delete, insert
from pilotage.store.engine.connection import Connection

BATCH_SIZE = 50_000
"""Attempts that are read at once."""


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """All that is read within is of one instant. A reader's connection."""
    connection.begin()
    try:
        yield
    finally:
        connection.rollback()


def as_of(connection: Connection) -> float | None:
    """Until when the buckets hold the use of attempts; None: they are to be made anew."""
    row = connection.execute("SELECT use_as_of FROM instance WHERE id = 1").fetchone()
    return None if row is None else row[0]


def set_as_of(connection: Connection, at: float | None) -> None:
    connection.execute("UPDATE instance SET use_as_of = ? WHERE id = 1", (at,))


def outages(connection: Connection) -> list[Outage]:
    return [(row[0], row[1]) for row in connection.execute("SELECT down, up FROM outages ORDER BY down")]


def insert_outage(connection: Connection, down: float, up: float, kept_since: float) -> None:
    """The system was down, or its clock stepped.

    After a step back nothing is believed that lies ahead: tries cannot have begun or ended then, and the buckets
    are made anew.
    """
    connection.execute("DELETE FROM outages WHERE up > ? OR up < ?", (up, kept_since))
    if up > down:
        connection.execute("INSERT INTO outages (down, up) VALUES (?, ?)", (down, up))
        return
    connection.execute("UPDATE attempts SET ended = ? WHERE ended > ?", (up, up))
    connection.execute("UPDATE attempts SET started = ? WHERE ended IS NULL AND started > ?", (up, up))
    set_as_of(connection, None)


def load(connection: Connection, ledger: Ledger) -> None:
    """Fill an empty ledger with the buckets of the store."""
    rows = connection.execute("SELECT place, owner, grp FROM use_entities ORDER BY place").fetchall()
    for place, owner, group in rows:
        assert ledger.place((owner, group)) == place
    for span, start, *arrays in connection.execute(
        "SELECT span, start, places, jobs, cores FROM use_buckets"
    ):
        ledger.levels[span][start] = Bucket(
            np.frombuffer(arrays[0], "<i8"), np.frombuffer(arrays[1], "<f8"), np.frombuffer(arrays[2], "<f8")
        )


@dataclass(frozen=True, slots=True)
class LedgerChanges:
    """A part of what was charged, for one transaction."""

    expected: float | None
    """What `as_of` must be; None: whatever it is."""
    as_of: float | None
    """Until when the buckets then hold all use; None: more is to be stored."""
    anew: bool
    """Forget all buckets first."""
    first_entity: int
    entities: Sequence[Entity]
    """At the places `first_entity`, `first_entity` + 1, ..."""
    buckets: Sequence[tuple[int, int, Bucket]]
    """(span, start, bucket), new or in place of what was there."""
    gone: Sequence[tuple[int, int]]


_ENTITIES = insert("use_entities", ("place", "owner", "grp"), conflict=("place",), otherwise="UPDATE")
_BUCKETS = insert(
    "use_buckets",
    ("span", "start", "places", "jobs", "cores"),
    conflict=("span", "start"),
    otherwise="UPDATE",
)
_GONE = delete("use_buckets", ("span", "start"), "span = {span} AND start = {start}")


def save_changes(connection: Connection, part: LedgerChanges) -> None:
    if part.anew:
        connection.execute("DELETE FROM use_buckets")
        connection.execute("DELETE FROM use_entities")
    connection.execute_bulk(
        _ENTITIES, [(part.first_entity + place, *entity) for place, entity in enumerate(part.entities)]
    )
    _save_buckets(connection, part.buckets)
    connection.execute_bulk(_GONE, part.gone)
    set_as_of(connection, part.as_of)


def _save_buckets(connection: Connection, rows: Iterable[tuple[int, int, Bucket]]) -> None:
    connection.execute_bulk(
        _BUCKETS,
        [
            (
                span,
                start,
                bucket.places.astype("<i8").tobytes(),
                bucket.jobs.astype("<f8").tobytes(),
                bucket.cores.astype("<f8").tobytes(),
            )
            for span, start, bucket in rows
        ],
    )


def attempts_since(connection: Connection, since: float) -> Iterator[list[Sequence[Any]]]:
    """(owner, group, started, ended or None, processors) of all that ran after `since`, in fetch_batches."""
    sql = (
        "SELECT owner, grp, started, ended, processors FROM attempts WHERE ended > ?"
        " UNION ALL SELECT owner, grp, started, NULL, processors FROM attempts WHERE ended IS NULL"
    )
    return connection.fetch_batches(sql, (since,), BATCH_SIZE)


def corrector_memory(connection: Connection) -> tuple[float | None, Memory]:
    """When the last correction was, and what integral correctors carry on from it."""
    row = connection.execute("SELECT at, memory FROM corrections WHERE id = 1").fetchone()
    if row is None:
        return None, {}
    remembered: Memory = {}
    for *key, value in json.loads(row[1]):
        # A key of three parts was stored when WMSHistory was the only corrector.
        corrector, name, part, entity = key if len(key) == 4 else ("WMSHistory", *key)
        remembered[corrector, name, part, entity] = value
    return row[0], remembered


def last_correction(connection: Connection) -> tuple[float | None, str]:
    """When the last correction was, and what `save_correction` was given of it; "" if that is not known."""
    row = connection.execute("SELECT at, found FROM corrections WHERE id = 1").fetchone()
    return (None, "") if row is None else (row[0], row[1])


_SAVE_MEMORY = (
    "INSERT INTO corrections (id, at, memory, found) VALUES (1, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET at = excluded.at, memory = excluded.memory, found = excluded.found"
)


def save_correction(connection: Connection, at: float, remembered: Memory, text: str = "") -> None:
    """`text`: the whole correction, for other servers."""
    memory = json.dumps([[*key, value] for key, value in sorted(remembered.items())])
    connection.execute(_SAVE_MEMORY, (at, memory, text))


class AccountUsage(NamedTuple):
    """What attempts that ended in some time have used at one site for one owner; seconds."""

    site: str
    group: str
    owner: str
    attempts: int
    applied: int
    wall: float
    core_wall: float
    cpu: float
    normalised_wall: float
    normalised_cpu: float


def usage_by_account(
    connection: Connection, begin: float, end: float, owner: str | None = None
) -> list[AccountUsage]:
    """By site, group and owner: attempts that ended in [begin, end), of `owner` only unless it is None.

    Wall time is what the pilot measured, or that between confirm and end where nothing was measured.
    """
    wall = "CASE WHEN wall > 0 THEN wall WHEN ended > started THEN ended - started ELSE 0 END"
    sql = (
        "SELECT site, grp, owner, count(*), sum(CASE WHEN outcome = 'applied' THEN 1 ELSE 0 END), sum(wall),"
        " sum(wall * processors), sum(cpu),"
        " sum(wall * processors * cpu_power), sum(cpu * cpu_power) FROM"
        f" (SELECT site, grp, owner, outcome, processors, cpu, cpu_power, {wall} AS wall FROM attempts"
        f" WHERE ended >= ? AND ended < ?{'' if owner is None else ' AND owner = ?'}) AS ended_then"
        " GROUP BY site, grp, owner"
    )
    values = (begin, end) if owner is None else (begin, end, owner)
    return sorted(AccountUsage(*row) for row in connection.execute(sql, values))


def attempt_counts(connection: Connection, begin: float, end: float) -> dict[Entity, int]:
    """How many attempts that ran in [begin, end) each entity has."""
    sql = (
        "SELECT owner, grp, count(*) FROM attempts WHERE (ended > ? OR ended IS NULL) AND started < ?"
        " GROUP BY owner, grp"
    )
    return {(owner, group): count for owner, group, count in connection.execute(sql, (begin, end))}


def waiting_times(connection: Connection, begin: float) -> list[tuple[str, str, float, float | None]]:
    """(owner, group, from, until or None): when work waited in some queue of theirs, as far as the reasons of the
    queues are kept; only what reaches beyond `begin`.
    """
    sql = (
        "SELECT q.owner, q.grp, r.since, r.until FROM (SELECT queue_id, since, reason,"
        " lead(since) OVER (PARTITION BY queue_id ORDER BY id) AS until FROM queue_reasons) r"
        " JOIN queues q ON q.id = r.queue_id WHERE r.reason <> '' AND (r.until IS NULL OR r.until > ?)"
    )
    return [tuple(row) for row in connection.execute(sql, (begin,))]


def first_and_last_end(connection: Connection) -> tuple[float, float] | None:
    """When the first and the last attempt ended; None: none has."""
    sql = "SELECT min(ended), max(ended) FROM attempts WHERE ended IS NOT NULL"
    row = connection.execute(sql).fetchone()
    return None if row[0] is None else (row[0], row[1])
