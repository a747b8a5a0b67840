"""The number of jobs by state: counters of each submission and owner, and changes that are not added to them yet.

A transaction that changes the state of jobs appends its changes. A duty adds them to the counters in slices. So
transactions of several servers never wait for the row of a counter, and a match changes none. Readers add the
appended changes to the counters, in one statement: their answers are exact at every instant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pilotage.store.engine.bulk_statements import RowWriter, insert
from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.engine.decisions import ONE_SERVER, decision, overwrites
from pilotage.store.tables.selections import JobSelection, Viewer, counts_where

HOT = 0
"""The month of jobs that are not archived."""

NOT_COUNTED = ""
"""The old state of new rows, and the new state of deleted ones."""


class CountChange(NamedTuple):
    """Jobs of one month that have left the state `old` for `new`."""

    month: int
    old: str
    new: str
    jobs: str
    """JSON {submission: number of jobs}."""

    @classmethod
    def of(cls, old: str, new: str, jobs: Mapping[int, int], month: int = HOT) -> CountChange:
        """The change of `jobs`, a number of jobs for each submission."""
        return cls(month, old, new, msgspec.json.encode(jobs).decode())


append = RowWriter[CountChange](insert("count_changes", CountChange._fields))


def not_added(connection: Connection, after: int, most: int) -> list[int]:
    """At most `most` ids above `after` of changes that are not added to the counters yet, ascending."""
    sql = "SELECT id FROM count_changes WHERE id > ? ORDER BY id LIMIT ?"
    return [row[0] for row in connection.execute(sql, (after, most))]


@overwrites(ONE_SERVER)
def add(connection: Connection, ids: Sequence[int]) -> None:
    """Add these changes to the counters, unless another server has added them."""
    them, value = in_list(connection, "id", ids)
    _add(
        connection,
        connection.execute(f"DELETE FROM count_changes WHERE {them} RETURNING {_COLUMNS}", (value,)),
    )


def add_all(connection: Connection) -> None:
    """Add all changes to the counters. Needed before submissions are deleted, since changes name no owner."""
    # Waits for a server that is adding a part of the changes.
    connection.execute(
        "SELECT 1 FROM count_changes ORDER BY id" + lock_clause(connection, "UPDATE")
    ).fetchall()
    _add(connection, connection.execute(f"DELETE FROM count_changes RETURNING {_COLUMNS}"))


def delete_month(connection: Connection, month: int) -> None:
    """Forget the jobs of an archived month. No other transaction may be changing its jobs."""
    add_all(connection)
    connection.execute("DELETE FROM submission_counts WHERE month = ?", (month,))
    connection.execute("DELETE FROM owner_counts WHERE month = ?", (month,))


def archived(connection: Connection) -> int:
    """The number of archived jobs."""
    sql = (
        f"SELECT coalesce(sum(jobs), 0) FROM (SELECT month, jobs FROM owner_counts"
        f" UNION ALL SELECT month, jobs FROM {changes(connection)} AS c) AS each_part WHERE month <> {HOT}"
    )
    return int(connection.execute(sql).fetchone()[0])


@decision("one statement; the limit is unsettled again by each transaction that changes a count")
def by_state(connection: Connection, selection: JobSelection, viewer: Viewer) -> dict[str, int]:
    """The number of jobs by state, for a selection with `uses_counted_columns`."""
    of_submissions = " JOIN submissions s ON s.id = c.submission_id"
    if selection.names_submissions:
        counters, owner = f"submission_counts c{of_submissions}", "s"
    else:
        counters, owner = "owner_counts c", "c"
    parts, values = [], []
    for source, alias in ((counters, owner), (f"{changes(connection)} c{of_submissions}", "s")):
        where = counts_where(connection, selection, viewer, alias)
        parts.append(f"SELECT c.state, c.jobs FROM {source} WHERE {where.sql}")
        values += where.values
    sql = f"SELECT state, sum(jobs) FROM ({' UNION ALL '.join(parts)}) AS each_part GROUP BY state"
    return {state: int(jobs) for state, jobs in connection.execute(sql, values) if jobs}


def owners_of_hot_jobs(connection: Connection, group: str | None) -> tuple[str, list[str]]:
    """The query for the owners with jobs in the hot table, and its values. `group`: with jobs of this group."""
    in_counters, in_changes, values = "", "", list[str]()
    if group is not None:
        in_counters, in_changes, values = " AND grp = ?", " WHERE s.grp = ?", [group, group]
    sql = (
        f"SELECT owner FROM owner_counts WHERE month = {HOT}{in_counters} UNION"
        f" SELECT s.owner FROM {changes(connection)} c JOIN submissions s ON s.id = c.submission_id{in_changes}"
    )
    return sql, values


def changes(connection: Connection) -> str:
    """The changes that are not added yet, as a subquery with the columns of `submission_counts`."""
    if connection.dialect == "sqlite":
        source, submission, jobs = "json_each(d.jobs) e", "CAST(e.key AS INTEGER)", "e.value"
    else:
        source, submission, jobs = "jsonb_each_text(d.jobs::jsonb) e", "e.key::bigint", "e.value::bigint"
    return "({})".format(
        " UNION ALL ".join(
            f"SELECT {submission} AS submission_id, d.month, d.{state} AS state, {sign}{jobs} AS jobs"
            f" FROM count_changes d CROSS JOIN {source} WHERE d.{state} <> '{NOT_COUNTED}'"
            for state, sign in (("new", ""), ("old", "-"))
        )
    )


_COLUMNS = ", ".join(CountChange._fields)
_OF_SUBMISSION = ("submission_id", "month", "state")
_OF_OWNER = ("month", "owner", "grp", "state")
_ADD_TO_SUBMISSIONS = insert(
    "submission_counts", (*_OF_SUBMISSION, "jobs"), conflict=_OF_SUBMISSION, otherwise="ADD"
)
_ADD_TO_OWNERS = insert("owner_counts", (*_OF_OWNER, "jobs"), conflict=_OF_OWNER, otherwise="ADD")


def _add(connection: Connection, rows: Iterable[Sequence[object]]) -> None:
    sums = Counter[tuple[int, int, str]]()
    for month, old, new, jobs in map(CountChange._make, rows):
        for submission, number in msgspec.json.decode(jobs, type=dict[int, int]).items():
            sums[submission, month, new] += number
            sums[submission, month, old] -= number
    changed = sorted((key, number) for key, number in sums.items() if number and key[2] != NOT_COUNTED)
    if not changed:
        return
    submissions, value = in_list(connection, "id", sorted({key[0] for key, _ in changed}))
    owners = {
        row[0]: (row[1], row[2])
        for row in connection.execute(f"SELECT id, owner, grp FROM submissions WHERE {submissions}", (value,))
    }
    of_owners = Counter[tuple[int, str, str, str]]()
    for (submission, month, state), number in changed:
        of_owners[month, *owners[submission], state] += number
    # All servers lock counters in the same order, so that two servers cannot deadlock.
    connection.execute_bulk(_ADD_TO_SUBMISSIONS, [(*key, number) for key, number in changed])
    connection.execute_bulk(
        _ADD_TO_OWNERS, [(*key, number) for key, number in sorted(of_owners.items()) if number]
    )
    theirs, value = in_list(connection, "submission_id", sorted(owners))
    connection.execute(f"DELETE FROM submission_counts WHERE jobs = 0 AND {theirs}", (value,))
    connection.execute("DELETE FROM owner_counts WHERE jobs = 0")
