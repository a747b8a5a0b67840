"""Reading for people: selections, pages by key, counts. On read-only connections."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pilotage.core.jobs.states import FINAL
from pilotage.store.engine.connection import Connection, Cursor, in_list, json_numbers
from pilotage.store.tables.selections import (
    OUTPUTS_INCOMPLETE,
    JobSelection,
    Viewer,
    counts_where,
    history_where,
    jobs_where,
)
from pilotage.wire.limits import MAX_INT64

_FROM = (
    "FROM jobs j JOIN submissions s ON s.id = j.submission_id"
    " LEFT JOIN attempts a ON a.job_id = j.id AND a.epoch = j.epoch"
    " LEFT JOIN pilots p ON p.id = coalesce(j.pilot_id,"
    " CASE WHEN j.state NOT IN ('Waiting', 'Rescheduled') THEN a.pilot_id END)"
)
_JOB_COLUMNS = (
    'j.id, j.submission_id AS submission, j.state, j.reason, s.owner, s.grp AS "group",'
    " coalesce(j.name, s.job_name) AS name, s.job_group, s.job_type, j.user_priority, j.queue_id AS queue,"
    " j.epoch, j.attempt,"
    " j.failures + j.own_failures AS failures, coalesce(p.site, '') AS site, coalesce(p.ce, '') AS ce, p.id AS pilot,"
    " coalesce(p.hostname, '') AS hostname, j.exit_code, j.submitted,"
    " coalesce(a.started, CASE WHEN j.state IN ('Running', 'Stalled', 'Completing') THEN j.started END) AS started,"
    f" j.ended, {OUTPUTS_INCOMPLETE} AS outputs_incomplete"
)


_OLD_COLUMNS = (
    'j.id, j.submission_id AS submission, j.state, j.reason, j.owner, j.grp AS "group", j.job_name AS name,'
    " j.job_group, j.job_type, j.user_priority, j.queue_id AS queue, j.epoch, j.attempt,"
    " j.failures + j.own_failures AS failures, j.site, j.ce, j.pilot_id AS pilot, j.hostname, j.exit_code, j.submitted,"
    f" j.started, j.ended, {OUTPUTS_INCOMPLETE} AS outputs_incomplete"
)
"""The same of history j."""


def _each_dictionary(cursor: Cursor) -> Iterator[dict[str, Any]]:
    names = [column[0] for column in cursor.description or ()]
    for row in cursor:
        yield dict(zip(names, row, strict=True))


def _dictionaries(cursor: Cursor) -> list[dict[str, Any]]:
    return list(_each_dictionary(cursor))


def jobs(
    connection: Connection,
    selection: JobSelection,
    viewer: Viewer,
    after: int,
    limit: int,
    *,
    newest: bool = False,
) -> list[dict[str, Any]]:
    """A page of job summaries with ids above `after`, ascending: of the hot table and of history as of one table.

    `newest`: with ids below `after`, descending; 0 begins at the newest.
    """
    return list(job_rows(connection, selection, viewer, after, limit, newest=newest))


def job_rows(
    connection: Connection,
    selection: JobSelection,
    viewer: Viewer,
    after: int,
    limit: int,
    *,
    newest: bool = False,
) -> Iterator[dict[str, Any]]:
    """The same, row by row: who needs no more of them does not read on."""
    sql, values = _page(connection, (_JOB_COLUMNS, _OLD_COLUMNS), selection, viewer, after, limit, newest)
    for row in _each_dictionary(connection.execute(sql, values)):
        row["outputs_incomplete"] = bool(row["outputs_incomplete"])  # SQLite answers 0 or 1
        yield row


def job_ids(
    connection: Connection, selection: JobSelection, viewer: Viewer, after: int, limit: int
) -> list[int]:
    sql, values = _page(connection, ("j.id", "j.id"), selection, viewer, after, limit)
    return [row[0] for row in connection.execute(sql, values)]


def _page(
    connection: Connection,
    columns: tuple[str, str],
    selection: JobSelection,
    viewer: Viewer,
    after: int,
    limit: int,
    newest: bool = False,
) -> tuple[str, list[Any]]:
    """One statement: a job that changes over meanwhile is in one of the tables, and shown once."""
    beyond, order = (">", "") if not newest else ("<", " DESC")
    if newest and not after:
        after = MAX_INT64
    hot = jobs_where(connection, selection, viewer)
    parts = [f"SELECT {columns[0]} {_FROM} WHERE {hot.sql}"]
    values: list[Any] = [*hot.values, after, limit]
    for old in history_where(connection, selection, viewer):
        parts.append(f"SELECT {columns[1]} FROM history j WHERE {old.sql}")
        values += [*old.values, after, limit]
    pages = [
        f"SELECT * FROM ({part} AND j.id {beyond} ? ORDER BY j.id{order} LIMIT ?) AS part{place}"
        for place, part in enumerate(parts)
    ]
    return f"{' UNION ALL '.join(pages)} ORDER BY id{order} LIMIT ?", [*values, limit]


def counts(connection: Connection, selection: JobSelection, viewer: Viewer) -> dict[str, int]:
    """How many jobs in each state, those of an accepted submission that are still being made as Submitting."""
    hot = jobs_where(connection, selection, viewer)
    source = (
        _FROM if selection.site is not None else "FROM jobs j JOIN submissions s ON s.id = j.submission_id"
    )
    parts = [f"SELECT j.state, count(*) AS jobs {source} WHERE {hot.sql} GROUP BY j.state"]
    values = list(hot.values)
    if selection.uses_counted_columns:
        counted = counts_where(connection, selection, viewer)
        parts.append(f"SELECT state, jobs FROM history_counts WHERE {counted.sql}")
        values += counted.values
    else:
        for old in history_where(connection, selection, viewer):
            parts.append(f"SELECT j.state, count(*) FROM history j WHERE {old.sql} GROUP BY j.state")
            values += old.values
    sql = f"SELECT state, sum(jobs) FROM ({' UNION ALL '.join(parts)}) AS each_part GROUP BY state"
    return {row[0]: int(row[1]) for row in connection.execute(sql, values) if row[1]}


def final(states: dict[str, int]) -> int:
    return sum(count for state, count in states.items() if state in FINAL)


def job_facts(connection: Connection, job: int) -> dict[str, Any] | None:
    """What a detail needs besides the summary."""
    return facts_of_jobs(connection, [job]).get(job)


def facts_of_jobs(connection: Connection, jobs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The same of several jobs, by id and in the order of `jobs`; without those that there are not."""
    of_both, of_jobs = (
        "j.id, j.submission_id, j.parameters, j.epoch, j.finished_epoch, j.last_event, j.state",
        "j.pilot_id",
    )
    of_submission = (
        "s.description, s.inputs, s.names, s.first_job, coalesce(s.expected, s.count) AS count, s.owner,"
        " s.grp"
    )
    condition, values = in_list(connection, "j.id", jobs)
    sql = " UNION ALL ".join(
        f"SELECT {of_both}, {pilot} AS pilot_id, {of_submission}"
        f" FROM {table} j JOIN submissions s ON s.id = j.submission_id WHERE {condition}"
        for table, pilot in (("jobs", of_jobs), ("history", "NULL"))
    )
    rows = {row["id"]: row for row in _dictionaries(connection.execute(sql, (values, values)))}
    return {job: rows[job] for job in jobs if job in rows}


def restrict_to_submission(selection: JobSelection, submission: int) -> JobSelection:
    """The jobs of a selection that are of one submission; none if it names another one."""
    if selection.submission not in (None, submission):
        return replace(selection, ids=[])
    return replace(selection, submission=submission)


def parameters_of(connection: Connection, jobs: Sequence[int]) -> dict[int, list[Any]]:
    """The values of the parameters of each of these jobs, in the order of its submission's names."""
    condition, values = in_list(connection, "j.id", jobs)
    sql = " UNION ALL ".join(
        f"SELECT j.id, j.parameters FROM {table} j WHERE {condition}" for table in ("jobs", "history")
    )
    return {row[0]: json.loads(row[1]) if row[1] else [] for row in connection.execute(sql, (values, values))}


def attempts(connection: Connection, job: int) -> list[dict[str, Any]]:
    sql = (
        "SELECT a.epoch, a.attempt, a.pilot_id AS pilot, coalesce(p.site, a.site) AS site, coalesce(p.ce, '') AS ce,"
        " coalesce(p.hostname, '') AS hostname, a.started, a.ended, coalesce(a.outcome, '') AS outcome, a.exit_code,"
        " a.failure, a.message, a.wall, a.cpu, a.max_rss, a.processors"
        " FROM attempts a LEFT JOIN pilots p ON p.id = a.pilot_id WHERE a.job_id = ? ORDER BY a.epoch"
    )
    return _dictionaries(connection.execute(sql, (job,)))


def pilots(connection: Connection, after: int, limit: int) -> Iterator[dict[str, Any]]:
    """Row by row, newest first: `after` is the id below which the page begins; 0 for the newest."""
    sql = (
        "SELECT p.id, p.state, p.site, p.ce, p.batch_id, p.hostname, coalesce(p.only_owner, '') AS owner, p.version,"
        " p.processors, p.finished, p.submitted, p.started, p.ended,"
        " CASE WHEN p.ended IS NULL AND substr(p.leave, 1, 6) = 'share:' THEN 'share' ELSE p.reason END AS reason,"
        f" (SELECT count(*) FROM jobs WHERE pilot_id = p.id AND id IN ({json_numbers(connection, 'p.jobs')})) AS jobs"
        " FROM pilots p WHERE ? = 0 OR p.id < ? ORDER BY p.id DESC LIMIT ?"
    )
    return _each_dictionary(connection.execute(sql, (after, after, limit)))


def pilots_by_site(connection: Connection) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for site, state, count in connection.execute(
        "SELECT site, state, count(*) FROM pilots WHERE ended IS NULL GROUP BY site, state"
    ):
        found.setdefault(site, {})[state] = count
    return found


def running_by_site(connection: Connection) -> dict[str, int]:
    sql = (
        f"SELECT p.site, sum((SELECT count(*) FROM jobs j WHERE j.pilot_id = p.id AND j.id IN"
        f" ({json_numbers(connection, 'p.jobs')}))) FROM pilots p"
        " WHERE p.ended IS NULL AND p.jobs <> '[]' GROUP BY p.site"
    )
    return dict(connection.execute(sql).fetchall())


def state_totals(connection: Connection) -> dict[str, int]:
    return counts(connection, JobSelection(), Viewer("", everything=True))
