"""Reading for people: selections, pages by key, counts. On read-only connections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pilotage.core.jobs.states import FINAL
from pilotage.store.connection import Connection, Cursor, among


@dataclass(frozen=True, slots=True)
class Viewer:
    """Whose jobs may be seen: all, or those of `owner`, or also those of `shared_group`."""

    owner: str
    shared_group: str = ""
    everything: bool = False

    def may_see(self, owner: str, group: str) -> bool:
        """Whether a job or queue of that owner and group is shown."""
        return self.everything or owner == self.owner or (bool(group) and group == self.shared_group)


@dataclass(frozen=True, slots=True)
class Selection:
    ids: Sequence[int] = ()
    submission: int | None = None
    states: Sequence[str] = ()
    owner: str = ""
    group: str = ""
    job_group: str = ""
    site: str = ""


_FROM = (
    "FROM jobs j JOIN submissions s ON s.id = j.submission_id"
    " LEFT JOIN attempts a ON a.job_id = j.id AND a.epoch = j.epoch"
    " LEFT JOIN pilots p ON p.id = coalesce(j.pilot_id,"
    " CASE WHEN j.state NOT IN ('Waiting', 'Rescheduled') THEN a.pilot_id END)"
)
_JOB_COLUMNS = (
    'j.id, j.submission_id AS submission, j.state, j.reason, s.owner, s.grp AS "group", s.job_name AS name,'
    " s.job_group, s.job_type, j.user_priority, j.queue_id AS queue, j.epoch, j.attempt,"
    " j.failures + j.own_failures AS failures, coalesce(p.site, '') AS site, coalesce(p.ce, '') AS ce, p.id AS pilot,"
    " coalesce(p.hostname, '') AS hostname, j.exit_code, j.submitted,"
    " coalesce(a.started, CASE WHEN j.state IN ('Running', 'Stalled', 'Completing') THEN j.started END) AS started,"
    " j.ended"
)


def _dictionaries(cursor: Cursor) -> list[dict[str, Any]]:
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _where(connection: Connection, selection: Selection, viewer: Viewer) -> tuple[str, list[Any]]:
    conditions, values = ["TRUE"], list[Any]()

    def add(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    if not viewer.everything:
        if viewer.shared_group:
            add("(s.owner = ? OR s.grp = ?)", viewer.owner, viewer.shared_group)
        else:
            add("s.owner = ?", viewer.owner)
    if selection.ids:
        add(*among(connection, "j.id", selection.ids))
    if selection.states:
        add(*among(connection, "j.state", selection.states))
    for column, value in (
        ("j.submission_id", selection.submission),
        ("s.owner", selection.owner),
        ("s.grp", selection.group),
        ("s.job_group", selection.job_group),
        ("p.site", selection.site),
    ):
        if value:
            add(f"{column} = ?", value)
    return " AND ".join(conditions), values


def jobs(
    connection: Connection, selection: Selection, viewer: Viewer, after: int, limit: int
) -> list[dict[str, Any]]:
    """A page of job summaries with ids above `after`, ascending."""
    where, values = _where(connection, selection, viewer)
    sql = f"SELECT {_JOB_COLUMNS} {_FROM} WHERE {where} AND j.id > ? ORDER BY j.id LIMIT ?"
    return _dictionaries(connection.execute(sql, (*values, after, limit)))


def job_ids(
    connection: Connection, selection: Selection, viewer: Viewer, after: int, limit: int
) -> list[int]:
    where, values = _where(connection, selection, viewer)
    sql = f"SELECT j.id {_FROM} WHERE {where} AND j.id > ? ORDER BY j.id LIMIT ?"
    return [row[0] for row in connection.execute(sql, (*values, after, limit))]


def counts(connection: Connection, selection: Selection, viewer: Viewer) -> dict[str, int]:
    """How many jobs in each state, those of an accepted submission that are still being made as Submitting."""
    where, values = _where(connection, selection, viewer)
    source = _FROM if selection.site else "FROM jobs j JOIN submissions s ON s.id = j.submission_id"
    sql = f"SELECT j.state, count(*) {source} WHERE {where} GROUP BY j.state"
    return {row[0]: row[1] for row in connection.execute(sql, values)}


def final(states: dict[str, int]) -> int:
    return sum(count for state, count in states.items() if state in FINAL)


def job_facts(connection: Connection, job: int) -> dict[str, Any] | None:
    """What a detail needs besides the summary."""
    sql = (
        "SELECT j.submission_id, j.parameters, j.epoch, j.finished_epoch, j.last_event, j.state, j.pilot_id,"
        " s.description, s.inputs, s.names, s.first_job, s.count, s.owner, s.grp"
        " FROM jobs j JOIN submissions s ON s.id = j.submission_id WHERE j.id = ?"
    )
    found = _dictionaries(connection.execute(sql, (job,)))
    return found[0] if found else None


def attempts(connection: Connection, job: int) -> list[dict[str, Any]]:
    sql = (
        "SELECT a.epoch, a.attempt, a.pilot_id AS pilot, coalesce(p.site, '') AS site, coalesce(p.ce, '') AS ce,"
        " coalesce(p.hostname, '') AS hostname, a.started, a.ended, coalesce(a.outcome, '') AS outcome, a.exit_code,"
        " a.failure, a.message, a.wall, a.cpu, a.max_rss, a.processors"
        " FROM attempts a LEFT JOIN pilots p ON p.id = a.pilot_id WHERE a.job_id = ? ORDER BY a.epoch"
    )
    return _dictionaries(connection.execute(sql, (job,)))


def pilots(connection: Connection, after: int, limit: int) -> list[dict[str, Any]]:
    """Newest first: `after` is the id below which the page begins; 0 for the newest."""
    sql = (
        "SELECT p.id, p.state, p.site, p.ce, p.batch_id, p.hostname, coalesce(p.only_owner, '') AS owner, p.version,"
        " p.processors, p.finished, p.submitted, p.started, p.ended, p.reason,"
        " (SELECT count(*) FROM jobs WHERE pilot_id = p.id) AS jobs"
        " FROM pilots p WHERE ? = 0 OR p.id < ? ORDER BY p.id DESC LIMIT ?"
    )
    return _dictionaries(connection.execute(sql, (after, after, limit)))


def pilots_by_site(connection: Connection) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for site, state, count in connection.execute(
        "SELECT site, state, count(*) FROM pilots WHERE ended IS NULL GROUP BY site, state"
    ):
        found.setdefault(site, {})[state] = count
    return found


def running_by_site(connection: Connection) -> dict[str, int]:
    sql = (
        "SELECT p.site, count(*) FROM jobs j JOIN pilots p ON p.id = j.pilot_id"
        " WHERE j.pilot_id IS NOT NULL GROUP BY p.site"
    )
    return dict(connection.execute(sql).fetchall())


def state_totals(connection: Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())
