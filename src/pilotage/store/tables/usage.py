"""Recorded use: the cache of buckets, read at start and written by change, and queries on attempts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pilotage.core.shares.correction import Memory
from pilotage.core.shares.use import Entity, Ledger, Outage, UseBucket
from pilotage.store.engine.bulk_statements import delete, insert
from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.engine.decisions import ONE_SERVER, decision, hint, overwrites
from pilotage.store.engine.rows import Made, columns
from pilotage.store.tables import attempts

BATCH_SIZE = 50_000
"""Attempts read per batch."""


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """All statements inside the block see one snapshot. For a reader's connection."""
    connection.begin()
    try:
        yield
    finally:
        connection.rollback()


@decision(ONE_SERVER)
def as_of(connection: Connection) -> float | None:
    """The time up to which the buckets hold the use of attempts; None: they must be rebuilt."""
    row = connection.execute("SELECT use_as_of FROM instance WHERE id = 1").fetchone()
    return None if row is None else row[0]


def _set_as_of(connection: Connection, at: float | None) -> None:
    connection.execute("UPDATE instance SET use_as_of = ? WHERE id = 1", (at,))


RESETS_COUNTER = "use_resets"
"""The row of the table `counters` with the number of times that all buckets got invalid."""


@decision(ONE_SERVER)
def resets(connection: Connection) -> int:
    """How often all buckets got invalid."""
    row = connection.execute("SELECT last FROM counters WHERE name = ?", (RESETS_COUNTER,)).fetchone()
    return 0 if row is None else row[0]


def reset(connection: Connection) -> None:
    """Let all buckets be rebuilt, also computed ones that are not stored yet."""
    _set_as_of(connection, None)
    connection.execute(
        "INSERT INTO counters (name, last) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET last = counters.last + 1",
        (RESETS_COUNTER,),
    )


@overwrites("the use is charged again from the earliest resumed attempt on")
def save_resumed(connection: Connection, rows: Sequence[attempts.ResumedAttempt]) -> None:
    """Let attempts go on. The buckets may have their use up to the former end, and be further by now."""
    attempts.save_resumed(connection, rows)
    reset(connection)


@decision(ONE_SERVER)
def outages(connection: Connection) -> list[Outage]:
    return [(row[0], row[1]) for row in connection.execute("SELECT down, up FROM outages ORDER BY down")]


@overwrites(ONE_SERVER)
def insert_outage(connection: Connection, down: float, up: float, kept_since: float) -> None:
    """Record a period in which the system was down, or a clock step.

    After a step back, times in the future are invalid: they are set to `up`, and the buckets are rebuilt.
    """
    connection.execute("DELETE FROM outages WHERE up > ? OR up < ?", (up, kept_since))
    if up > down:
        connection.execute("INSERT INTO outages (down, up) VALUES (?, ?)", (down, up))
        return
    connection.execute("UPDATE attempts SET ended = ? WHERE ended > ?", (up, up))
    connection.execute(
        "UPDATE attempts SET started = ? WHERE (ended IS NULL OR ahead = 1) AND started > ?", (up, up)
    )
    reset(connection)


@decision(ONE_SERVER)
def entity_count(connection: Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM use_entities").fetchone()[0])


@decision(ONE_SERVER)
def load(connection: Connection, ledger: Ledger) -> None:
    """Fill an empty ledger with the stored buckets."""
    rows = connection.execute("SELECT place, owner, grp FROM use_entities ORDER BY place").fetchall()
    for place, owner, group in rows:
        assert ledger.place((owner, group)) == place
    for span, start, *arrays in connection.execute(
        "SELECT span, start, places, jobs, cores FROM use_buckets"
    ):
        ledger.levels[span][start] = UseBucket(
            np.frombuffer(arrays[0], "<i8"), np.frombuffer(arrays[1], "<f8"), np.frombuffer(arrays[2], "<f8")
        )


@dataclass(frozen=True, slots=True)
class LedgerChanges:
    """Changes of the ledger for one transaction."""

    resets: int
    """The required number of `resets`."""
    as_of: float | None
    """The time up to which the buckets then hold all use; None: further changes follow."""
    anew: bool
    """Delete all buckets first."""
    first_entity: int
    entities: Sequence[Entity]
    """The entities with the places `first_entity`, `first_entity` + 1, ..."""
    buckets: Sequence[tuple[int, int, UseBucket]]
    """(span, start, bucket) to insert or replace."""
    gone: Sequence[tuple[int, int]]
    """(span, start) of buckets to delete."""


_ENTITIES = insert("use_entities", ("place", "owner", "grp"), conflict=("place",), otherwise="UPDATE")
_BUCKETS = insert(
    "use_buckets",
    ("span", "start", "places", "jobs", "cores"),
    conflict=("span", "start"),
    otherwise="UPDATE",
)
_GONE = delete("use_buckets", ("span", "start"), "span = {span} AND start = {start}")


@overwrites(ONE_SERVER)
def save_changes(connection: Connection, part: LedgerChanges) -> None:
    if part.anew:
        connection.execute("DELETE FROM use_buckets")
        connection.execute("DELETE FROM use_entities")
    connection.execute_bulk(
        _ENTITIES, [(part.first_entity + place, *entity) for place, entity in enumerate(part.entities)]
    )
    _save_buckets(connection, part.buckets)
    connection.execute_bulk(_GONE, part.gone)
    _set_as_of(connection, part.as_of)


def _save_buckets(connection: Connection, rows: Iterable[tuple[int, int, UseBucket]]) -> None:
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


@decision(ONE_SERVER)
def attempts_since(connection: Connection, since: float) -> Iterator[list[Sequence[Any]]]:
    """(owner, group, started, ended or None, processors) of attempts that ran after `since`, in batches."""
    sql = (
        "SELECT owner, grp, started, ended, processors FROM attempts WHERE ended > ?"
        " UNION ALL SELECT owner, grp, started, NULL, processors FROM attempts WHERE ended IS NULL"
    )
    return connection.fetch_batches(sql, (since,), BATCH_SIZE)


def corrector_memory(connection: Connection) -> tuple[float | None, Memory]:
    """The time of the last correction, and the state that integral correctors keep."""
    row = connection.execute("SELECT at, memory FROM corrections WHERE id = 1").fetchone()
    if row is None:
        return None, {}
    stored = json.loads(row[1])
    return row[0], {(corrector, name, part, entity): value for corrector, name, part, entity, value in stored}


@hint("a later correction has a change row, and is read again")
def last_correction(connection: Connection) -> tuple[float | None, str]:
    """The time of the last correction, and its text as given to `save_correction`; "": unknown text."""
    row = connection.execute("SELECT at, found FROM corrections WHERE id = 1").fetchone()
    return (None, "") if row is None else (row[0], row[1])


_SAVE_MEMORY = (
    "INSERT INTO corrections (id, at, memory, found) VALUES (1, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET at = excluded.at, memory = excluded.memory, found = excluded.found"
)


def save_correction(connection: Connection, at: float, remembered: Memory, text: str = "") -> None:
    """Store a correction. `text`: all of it, for other servers."""
    memory = json.dumps([[*key, value] for key, value in sorted(remembered.items())])
    connection.execute(_SAVE_MEMORY, (at, memory, text))


WALL = "CASE WHEN wall > 0 THEN wall WHEN ended > started THEN ended - started ELSE 0 END"
"""The pilot's measurement or, without one, the time from the start to the end; 0 while an attempt runs."""
BEGAN = "ahead = 0"
"""The attempt is one at which a payload ran. Others were taken ahead and given back before their start."""


class AccountUsage(NamedTuple):
    """The use of attempts that ended in a period, for one site and owner; in seconds."""

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
    """The use of attempts that ended in [begin, end) by site, group and owner. `owner`: only this owner."""
    sql = (
        "SELECT site, grp, owner, count(*), sum(CASE WHEN outcome = 'applied' THEN 1 ELSE 0 END), sum(wall),"
        " sum(wall * processors), sum(cpu),"
        " sum(wall * processors * cpu_power), sum(cpu * cpu_power) FROM"
        f" (SELECT site, grp, owner, outcome, processors, cpu, cpu_power, {WALL} AS wall FROM attempts"
        f" WHERE {BEGAN} AND ended >= ? AND ended < ?{'' if owner is None else ' AND owner = ?'}) AS ended_then"
        " GROUP BY site, grp, owner"
    )
    values = (begin, end) if owner is None else (begin, end, owner)
    return sorted(AccountUsage(*row) for row in connection.execute(sql, values))


def attempts_of(connection: Connection, jobs: Sequence[int], kind: type[Made]) -> list[Made]:
    """The confirmed attempts of these jobs with their use, by job and epoch, as objects with the fields of `kind`."""
    listed = columns(
        kind,
        "a.",
        job="a.job_id",
        site="coalesce(p.site, a.site)",
        ce="coalesce(p.ce, '')",
        outcome=attempts.SHOWN_OUTCOME.format(a="a."),
        wall="a.used_wall",
    )
    condition, values = in_list(connection, "job_id", jobs)
    sql = (
        f"SELECT {listed} FROM (SELECT *, {WALL} AS used_wall FROM attempts WHERE {condition}) a"
        " LEFT JOIN pilots p ON p.id = a.pilot_id ORDER BY a.job_id, a.epoch"
    )
    return [kind(*row) for row in connection.execute(sql, (values,))]


def attempt_counts(connection: Connection, begin: float, end: float) -> dict[Entity, int]:
    """The number of attempts that ran in [begin, end) by entity."""
    sql = (
        "SELECT owner, grp, count(*) FROM attempts"
        f" WHERE (ended > ? OR ended IS NULL) AND started < ? AND {BEGAN}"
        " GROUP BY owner, grp"
    )
    return {(owner, group): count for owner, group, count in connection.execute(sql, (begin, end))}


def waiting_times(connection: Connection, begin: float) -> list[tuple[str, str, float, float | None]]:
    """(owner, group, since, until or None) of periods with waiting jobs in a queue of the owner.

    Periods that ended before `begin` are left out. Of an owner's periods with one end there is only the longest: many
    queues wait until now. Retention limits how far back the reasons reach.
    """
    sql = (
        "SELECT q.owner, q.grp, min(r.since), r.until FROM (SELECT queue_id, since, reason,"
        " lead(since) OVER (PARTITION BY queue_id ORDER BY id) AS until FROM queue_reasons) r"
        " JOIN queues q ON q.id = r.queue_id WHERE r.reason <> '' AND (r.until IS NULL OR r.until > ?)"
        " GROUP BY q.owner, q.grp, r.until ORDER BY 1, 2, 3"
    )
    return [tuple(row) for row in connection.execute(sql, (begin,))]


def first_and_last_end(connection: Connection) -> tuple[float, float] | None:
    """The ends of the first and the last attempt; None: no attempt has ended."""
    sql = "SELECT min(ended), max(ended) FROM attempts WHERE ended IS NOT NULL"
    row = connection.execute(sql).fetchone()
    return None if row[0] is None else (row[0], row[1])
