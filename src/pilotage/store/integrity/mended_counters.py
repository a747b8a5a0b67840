"""The changes of rows by which repairs mend counters, and the rows of servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pilotage.store.engine.connection import Connection, in_list
from pilotage.store.integrity.counters import rows_of_jobs
from pilotage.store.tables import job_counts

_KEYS: Final = "submission_id, month, state"


def count_submissions(connection: Connection, submissions: Sequence[int]) -> None:
    """Let the counters of submissions be the numbers of their jobs, and let their owners' be the sums."""
    job_counts.add_all(connection)
    them, value = in_list(connection, "submission_id", submissions)
    connection.execute(f"DELETE FROM submission_counts WHERE {them}", (value,))
    connection.execute(
        f"INSERT INTO submission_counts ({_KEYS}, jobs) SELECT {_KEYS}, jobs FROM ({rows_of_jobs(connection)})"
        f" AS counted WHERE {them}",
        (value,),
    )
    ids, value = in_list(connection, "id", submissions)
    owners = connection.execute(f"SELECT DISTINCT owner FROM submissions WHERE {ids}", (value,))
    count_owners(connection, [row[0] for row in owners])


def count_owners(connection: Connection, owners: Sequence[str]) -> None:
    """Let the counters of owners be the sums of their submissions' counters."""
    job_counts.add_all(connection)
    them, value = in_list(connection, "owner", owners)
    connection.execute(f"DELETE FROM owner_counts WHERE {them}", (value,))
    owned, value = in_list(connection, "s.owner", owners)
    connection.execute(
        "INSERT INTO owner_counts (month, owner, grp, state, jobs) SELECT c.month, s.owner, s.grp, c.state, sum(c.jobs)"
        f" FROM submission_counts c JOIN submissions s ON s.id = c.submission_id WHERE {owned} GROUP BY 1, 2, 3, 4",
        (value,),
    )


def raise_sequences(connection: Connection, tables: Sequence[str]) -> None:
    for table in tables:
        connection.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}), true)"
        ).fetchone()


def release_duties(connection: Connection, names: Sequence[str]) -> None:
    them, value = in_list(connection, "name", names)
    sql = f"UPDATE duties SET holder = '', until = 0, epoch = epoch + 1 WHERE {them}"
    connection.execute(sql, (value,))


def count_again(connection: Connection, limits: Sequence[str]) -> None:
    """Let the next server count the running jobs of shared limits."""
    them, value = in_list(connection, "limit_key", limits)
    connection.execute(f"UPDATE limit_states SET running = NULL WHERE {them}", (value,))
