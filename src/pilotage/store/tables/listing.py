"""Queries behind lists and details: pages by key, counts, facts of jobs. For read-only connections."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pilotage.core.jobs.per_job_inputs import named_values
from pilotage.core.jobs.states import FINAL
from pilotage.store.engine.connection import Connection, in_list, json_numbers
from pilotage.store.engine.decisions import SHOWN, hint
from pilotage.store.engine.rows import columns
from pilotage.store.tables import hot_jobs, job_counts
from pilotage.store.tables.attempts import SHOWN_OUTCOME
from pilotage.store.tables.hot_jobs import JOINED, Page
from pilotage.store.tables.selections import (
    OUTPUTS_INCOMPLETE,
    JobSelection,
    Viewer,
    history_where,
)


class JobSummaryRow(NamedTuple):
    """One job of a list. It has the fields of `wire.jobs.JobSummary`."""

    id: int
    submission: int
    state: str
    reason: str
    owner: str
    group: str
    name: str
    job_group: str
    job_type: str
    user_priority: int
    queue: int
    epoch: int
    attempt: int
    failures: int
    site: str
    ce: str
    pilot: int | None
    hostname: str
    exit_code: int | None
    submitted: float
    started: float | None
    ended: float | None
    outputs_incomplete: bool
    parameters: dict[str, Any]


# Both statements are parts of one UNION, whose first part names its columns.
_OF_JOB = {
    "submission": "j.submission_id AS submission",
    "queue": "j.queue_id AS queue",
    "failures": "j.failures + j.own_failures AS failures",
    "outputs_incomplete": f"{OUTPUTS_INCOMPLETE} AS outputs_incomplete",
}
_JOB_COLUMNS = columns(
    JobSummaryRow,
    "j.",
    **_OF_JOB,
    owner="s.owner",
    group='s.grp AS "group"',
    name="coalesce(j.name, s.job_name) AS name",
    job_group="s.job_group",
    job_type="s.job_type",
    site="coalesce(p.site, '') AS site",
    ce="coalesce(p.ce, '') AS ce",
    pilot="p.id AS pilot",
    hostname="coalesce(p.hostname, '') AS hostname",
    started="CASE WHEN a.ahead = 0 THEN a.started WHEN a.ahead IS NULL AND j.state IN"
    " ('Running', 'Stalled', 'Completing') THEN j.started END AS started",
    parameters="s.names, j.parameters",
)
_HISTORY_COLUMNS = columns(
    JobSummaryRow,
    "j.",
    **_OF_JOB,
    group='j.grp AS "group"',
    name="j.job_name AS name",
    pilot="j.pilot_id AS pilot",
    parameters="(SELECT s.names FROM submissions s WHERE s.id = j.submission_id) AS names, j.parameters",
)
"""The same columns, read from `history` as j."""


class JobFacts(NamedTuple):
    """One job with its submission, as details and sandboxes need it. Fields that hold JSON are texts."""

    id: int
    submission_id: int
    parameters: str | None
    """JSON list of the job's parameter values."""
    epoch: int
    finished_epoch: int
    last_event: int
    state: str
    pilot_id: int | None
    """The pilot that holds the job now."""
    description: str
    """JSON of the submission's job description, before parameters are filled in."""
    inputs: str
    """JSON list of the submission's inputs."""
    names: str
    """JSON list of the parameters' names."""
    first_job: int
    job_count: int
    owner: str
    group: str
    request: int | None
    """The request that the job works for; None: it is a user's."""


_OF_SUBMISSION = {
    **{name: f"s.{name}" for name in ("description", "inputs", "names", "first_job", "owner")},
    "job_count": "coalesce(s.expected, s.count) AS job_count",
    "group": "s.grp",
    "request": "s.request_id",
}
_JOB_FACTS = columns(JobFacts, "j.", **_OF_SUBMISSION)
_HISTORY_FACTS = columns(JobFacts, "j.", pilot_id="NULL AS pilot_id", **_OF_SUBMISSION)


class AttemptRow(NamedTuple):
    """One attempt of a job. It has the fields of `wire.jobs.Attempt`."""

    epoch: int
    attempt: int
    pilot: int
    site: str
    ce: str
    hostname: str
    started: float
    ended: float | None
    outcome: str
    exit_code: int | None
    failure: str
    message: str
    wall: float
    cpu: float
    max_rss: int
    processors: int


_ATTEMPT = columns(
    AttemptRow,
    "a.",
    pilot="a.pilot_id",
    site="coalesce(p.site, a.site)",
    ce="coalesce(p.ce, '')",
    hostname="coalesce(p.hostname, '')",
    outcome=SHOWN_OUTCOME.format(a="a."),
)


class PilotSummaryRow(NamedTuple):
    """One pilot of a list."""

    id: int
    state: str
    site: str
    ce: str
    batch_id: str
    hostname: str
    owner: str
    """The owner that the pilot is bound to; empty: none."""
    version: str
    processors: int
    finished: int
    submitted: float
    started: float | None
    ended: float | None
    reason: str
    jobs: int
    """Jobs that the pilot holds now."""
    pilot_type: str
    core_seconds: float
    """Core-seconds of its life, as far as they are booked."""
    payload_core_seconds: float


def jobs(
    connection: Connection,
    selection: JobSelection,
    viewer: Viewer,
    after: int,
    limit: int,
    *,
    newest: bool = False,
) -> list[JobSummaryRow]:
    """A page of jobs of `jobs` and `history` together, with ids above `after`, in ascending order.

    `newest`: ids below `after`, in descending order; 0 begins at the newest job.
    """
    return list(job_rows(connection, selection, viewer, after, limit, newest=newest))


@hint("each job is locked and looked at again")
def job_rows(
    connection: Connection,
    selection: JobSelection,
    viewer: Viewer,
    after: int,
    limit: int,
    *,
    newest: bool = False,
) -> Iterator[JobSummaryRow]:
    """The rows of `jobs`, one at a time: a caller may stop early."""
    sql, values = _page(connection, (_JOB_COLUMNS, _HISTORY_COLUMNS), selection, viewer, after, limit, newest)
    for *plain, incomplete, names, given in connection.execute(sql, values):
        parameters = named_values(json.loads(names), json.loads(given)) if given else {}
        yield JobSummaryRow._make((*plain, bool(incomplete), parameters))  # SQLite answers 0 or 1


@hint("each job is locked and looked at again")
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
    """The statement for one page, and its values.

    One statement reads both tables, so a job that moves between them meanwhile is listed exactly once.
    """
    page = Page(after, limit, newest)
    chosen, values = hot_jobs.ids(connection, selection, viewer, page)
    parts = [f"SELECT * FROM (SELECT {columns[0]} {JOINED} WHERE j.id IN ({chosen})) AS part0"]
    for old in history_where(connection, selection, viewer):
        part = f"SELECT {columns[1]} FROM history j WHERE {old.sql} AND {page.beyond}"
        parts.append(f"SELECT * FROM ({part} ORDER BY j.id{page.order} LIMIT ?) AS part{len(parts)}")
        values += [*old.values, *page.values]
    return f"{' UNION ALL '.join(parts)} ORDER BY id{page.order} LIMIT ?", [*values, limit]


def counts(connection: Connection, selection: JobSelection, viewer: Viewer) -> dict[str, int]:
    """The number of jobs by state, without jobs of a submission that have no row yet."""
    if selection.uses_counted_columns:
        return job_counts.by_state(connection, selection, viewer)
    chosen, values = hot_jobs.ids(connection, selection, viewer, Page())
    parts = [f"SELECT j.state, count(*) AS jobs FROM jobs j WHERE j.id IN ({chosen}) GROUP BY j.state"]
    for old in history_where(connection, selection, viewer):
        parts.append(f"SELECT j.state, count(*) FROM history j WHERE {old.sql} GROUP BY j.state")
        values += old.values
    sql = f"SELECT state, sum(jobs) FROM ({' UNION ALL '.join(parts)}) AS each_part GROUP BY state"
    return {row[0]: int(row[1]) for row in connection.execute(sql, values) if row[1]}


def final(states: dict[str, int]) -> int:
    """The jobs of `counts` that are in a final state."""
    return sum(count for state, count in states.items() if state in FINAL)


@hint(SHOWN)
def job_facts(connection: Connection, job: int) -> JobFacts | None:
    """The facts of one job; None: there is no such job."""
    return facts_of_jobs(connection, [job]).get(job)


def facts_of_jobs(connection: Connection, jobs: Sequence[int]) -> dict[int, JobFacts]:
    """The facts of several jobs by id, in the order of `jobs`. Jobs that do not exist are left out."""
    condition, values = in_list(connection, "j.id", jobs)
    sql = " UNION ALL ".join(
        f"SELECT {facts} FROM {table} j JOIN submissions s ON s.id = j.submission_id WHERE {condition}"
        for table, facts in (("jobs", _JOB_FACTS), ("history", _HISTORY_FACTS))
    )
    rows = {row[0]: JobFacts(*row) for row in connection.execute(sql, (values, values))}
    return {job: rows[job] for job in jobs if job in rows}


class OwnedJob(NamedTuple):
    owner: str
    state: str


@hint("the owner of a job never changes; each job is locked before it is changed")
def jobs_of_others(connection: Connection, jobs: Sequence[int], user: str) -> dict[int, OwnedJob]:
    """The owner and state of each of these jobs that another user owns, by id."""
    condition, values = in_list(connection, "j.id", jobs)
    sql = (
        f"SELECT j.id, s.owner, j.state FROM jobs j JOIN submissions s ON s.id = j.submission_id"
        f" WHERE {condition} AND s.owner <> ?"
        f" UNION ALL SELECT j.id, j.owner, j.state FROM history j WHERE {condition} AND j.owner <> ?"
    )
    rows = connection.execute(sql, (values, user, values, user))
    return {job: OwnedJob(owner, state) for job, owner, state in rows}


def restrict_to_submission(selection: JobSelection, submission: int) -> JobSelection:
    """Narrow a selection to one submission. A selection of another submission becomes empty."""
    if selection.submission not in (None, submission):
        return replace(selection, ids=[])
    return replace(selection, submission=submission)


def parameters_of(connection: Connection, jobs: Sequence[int]) -> dict[int, list[Any]]:
    """The parameter values of each job, in the order of the names of its submission."""
    condition, values = in_list(connection, "j.id", jobs)
    sql = " UNION ALL ".join(
        f"SELECT j.id, j.parameters FROM {table} j WHERE {condition}" for table in ("jobs", "history")
    )
    return {row[0]: json.loads(row[1]) if row[1] else [] for row in connection.execute(sql, (values, values))}


def attempts(connection: Connection, job: int) -> list[AttemptRow]:
    """The confirmed attempts of a job, by epoch."""
    sql = (
        f"SELECT {_ATTEMPT} FROM attempts a LEFT JOIN pilots p ON p.id = a.pilot_id WHERE a.job_id = ?"
        " ORDER BY a.epoch"
    )
    return [AttemptRow(*row) for row in connection.execute(sql, (job,))]


def pilots(connection: Connection, after: int, limit: int) -> Iterator[PilotSummaryRow]:
    """Pilots with ids below `after`, newest first, one row at a time; 0 begins at the newest."""
    listed = columns(
        PilotSummaryRow,
        "p.",
        owner="coalesce(p.only_owner, '')",
        reason="CASE WHEN p.ended IS NULL AND substr(p.leave, 1, 6) = 'share:' THEN 'share' ELSE p.reason END",
        jobs=f"(SELECT count(*) FROM jobs WHERE pilot_id = p.id AND id IN ({json_numbers(connection, 'p.jobs')}))",
    )
    sql = f"SELECT {listed} FROM pilots p WHERE ? = 0 OR p.id < ? ORDER BY p.id DESC LIMIT ?"
    return (PilotSummaryRow(*row) for row in connection.execute(sql, (after, after, limit)))


def pilots_by_site(connection: Connection) -> dict[str, dict[str, int]]:
    """The number of live pilots by site and state."""
    counts_by_site: dict[str, dict[str, int]] = {}
    for site, state, count in connection.execute(
        "SELECT site, state, count(*) FROM pilots WHERE ended IS NULL GROUP BY site, state"
    ):
        counts_by_site.setdefault(site, {})[state] = count
    return counts_by_site


def running_by_site(connection: Connection) -> dict[str, int]:
    """The number of jobs that live pilots hold, by site."""
    sql = (
        f"SELECT p.site, sum((SELECT count(*) FROM jobs j WHERE j.pilot_id = p.id AND j.id IN"
        f" ({json_numbers(connection, 'p.jobs')}))) FROM pilots p"
        " WHERE p.ended IS NULL AND p.jobs <> '[]' GROUP BY p.site"
    )
    # A sum of PostgreSQL is a decimal number.
    return {site: int(count) for site, count in connection.execute(sql)}


def state_totals(connection: Connection) -> dict[str, int]:
    return counts(connection, JobSelection(), Viewer("", everything=True))
