"""Gates, the conditions that open them, and the changes of the jobs that these conditions name.

A gate stops one job, or all jobs of a submission. It is named by a pair: the submission, and the job or 0.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.dependencies import Outlook, RunAfter
from pilotage.store.engine.bulk_statements import RowWriter, delete, insert, update
from pilotage.store.engine.connection import Connection, array_literal, in_list, lock_clause, lock_in_order
from pilotage.store.engine.decisions import decision, hint
from pilotage.store.engine.rows import columns

WHOLE = JobId(0)
"""The job of a gate that stops all jobs of its submission."""


class GateRow(NamedTuple):
    submission: SubmissionId
    job: JobId
    outlook: str
    reason: str
    """Why its jobs are skipped."""
    settled: int
    """0: some of its jobs are not in the state that the outlook asks for."""
    cursor: int = 0
    """Jobs up to this id have been looked at."""

    @property
    def key(self) -> GateKey:
        return GateKey(self.submission, self.job)


class GateKey(NamedTuple):
    submission: SubmissionId
    job: JobId


class ConditionRow(NamedTuple):
    """A condition of a gate. One of the two parents is 0."""

    submission: SubmissionId
    job: JobId
    number: int
    condition: str
    parent_job: int
    parent_submission: int
    outlook: str
    reason: str = ""

    @property
    def gate(self) -> GateKey:
        return GateKey(self.submission, self.job)


_GATE = columns(GateRow, submission="submission_id", job="job_id")
_CONDITION = columns(ConditionRow, submission="submission_id", job="job_id")

insert_gates = RowWriter[GateRow](insert("gates", _GATE.split(", ")))
insert_conditions = RowWriter[ConditionRow](insert("conditions", _CONDITION.split(", ")))

_OF_GATE = "submission_id = {submission_id} AND job_id = {job_id}"


class GateState(NamedTuple):
    outlook: str
    reason: str
    settled: int
    cursor: int
    submission: SubmissionId
    job: JobId


save_gates = RowWriter[GateState](
    update(
        "gates",
        ("outlook", "reason", "settled", "cursor", "submission_id", "job_id"),
        "outlook = {outlook}, reason = {reason}, settled = {settled}, cursor = {cursor}",
        _OF_GATE,
    )
)


class ConditionState(NamedTuple):
    outlook: str
    reason: str
    submission: SubmissionId
    job: JobId
    number: int


save_conditions = RowWriter[ConditionState](
    update(
        "conditions",
        ("outlook", "reason", "submission_id", "job_id", "number"),
        "outlook = {outlook}, reason = {reason}",
        f"{_OF_GATE} AND number = {{number}}",
    )
)

_delete_gates = RowWriter[GateKey](delete("gates", ("submission_id", "job_id"), _OF_GATE))
_delete_conditions = RowWriter[GateKey](delete("conditions", ("submission_id", "job_id"), _OF_GATE))


def delete_gates(connection: Connection, keys: Sequence[GateKey]) -> None:
    """Delete gates that all of their jobs have passed."""
    _delete_conditions(connection, keys)
    _delete_gates(connection, keys)


@hint("a gate that opens meanwhile unsettles the limit again")
def gates(
    connection: Connection, keys: Collection[GateKey], *, lock: str = "UPDATE"
) -> dict[GateKey, GateRow]:
    """The existing gates among these, locked until the transaction ends. `lock`: "UPDATE", or "" for none."""
    if not keys:
        return {}
    condition, values = _in_keys(connection, keys)
    sql = f"SELECT {_GATE} FROM gates WHERE {condition} ORDER BY submission_id, job_id"
    sql += lock_clause(connection, lock) if lock else ""
    rows = (GateRow(*row) for row in connection.execute(sql, values))
    return {row.key: row for row in rows}


def _in_keys(connection: Connection, keys: Collection[GateKey]) -> tuple[str, tuple[str, ...]]:
    """The condition that a row belongs to one of these gates, and its values."""
    ordered = sorted(keys)
    if connection.dialect == "sqlite":
        pairs = "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)"
        return f"(submission_id, job_id) IN ({pairs})", (json.dumps(ordered),)
    arrays = tuple(array_literal(values, "bigint") for values in zip(*ordered, strict=True))
    return "(submission_id, job_id) IN (SELECT * FROM unnest(?::bigint[], ?::bigint[]))", arrays


def gate_of_job(
    connection: Connection, submission: SubmissionId, job: JobId, *, lock: str = "UPDATE"
) -> GateRow | None:
    """The gate that stops a job, or stopped it; None: there is none, or the job has passed it."""
    stopping = gates(connection, {GateKey(submission, job), GateKey(submission, WHOLE)}, lock=lock)
    return next(iter(stopping.values()), None)


def conditions_of(connection: Connection, keys: Collection[GateKey]) -> list[ConditionRow]:
    """All conditions of these gates, in their order."""
    condition, values = _in_keys(connection, keys)
    sql = f"SELECT {_CONDITION} FROM conditions WHERE {condition} ORDER BY submission_id, job_id, number"
    return [ConditionRow(*row) for row in connection.execute(sql, values)]


@hint("an output that is lost meanwhile is missed by the job that reads it")
def of_parent(
    connection: Connection, column: str, parent: int, outlooks: Mapping[RunAfter, Outlook], most: int
) -> list[ConditionRow]:
    """Conditions on a parent with another outlook than `outlooks`, at most `most`.

    A condition that was met stays met, unless a job that has not passed its gate reads an output of the parent: it
    waits for the output of the parent's next try. `column`: "parent_job" or "parent_submission".
    """
    wanted = [outlooks[condition] for condition in RunAfter]
    cases = " ".join(f"WHEN '{condition}' THEN ?" for condition in RunAfter)
    sql = (
        f"SELECT {_CONDITION} FROM conditions c WHERE {column} = ? AND {column} <> 0 AND (outlook <> 'met' OR ("
        " EXISTS (SELECT 1 FROM handed_outputs h WHERE h.submission_id = c.submission_id AND h.job_id = c.parent_job)"
        " AND EXISTS (SELECT 1 FROM gates g WHERE g.submission_id = c.submission_id AND g.job_id = c.job_id"
        " AND g.outlook <> 'met')))"
        f" AND outlook <> CASE condition {cases} END LIMIT ?"
    )
    return [ConditionRow(*row) for row in connection.execute(sql, (parent, *map(str, wanted), most))]


def has_conditions(connection: Connection, column: str, parent: int) -> bool:
    """Whether a condition on this parent is not met yet; `column` as in `of_parent`."""
    sql = f"SELECT 1 FROM conditions WHERE {column} = ? AND {column} <> 0 AND outlook <> 'met' LIMIT 1"
    return connection.execute(sql, (parent,)).fetchone() is not None


@hint("each gate is locked and looked at again")
def unsettled(connection: Connection, most: int) -> list[GateKey]:
    """Gates with jobs that must move, at most `most`."""
    sql = "SELECT submission_id, job_id FROM gates WHERE settled = 0 ORDER BY submission_id, job_id LIMIT ?"
    return [GateKey(*row) for row in connection.execute(sql, (most,))]


# --- parents


def mark_jobs(connection: Connection, jobs: Sequence[int]) -> None:
    """Let the ends of these jobs decide about conditions."""
    if jobs:
        condition, value = in_list(connection, "id", jobs)
        connection.execute(f"UPDATE jobs SET has_dependants = 1 WHERE {condition}", (value,))


def mark_returned(connection: Connection, jobs: Sequence[int]) -> None:
    """Mark each of these jobs that waits again after its end, if others depend on it."""
    condition, value = in_list(connection, "id", jobs)
    connection.execute(
        f"UPDATE jobs SET has_dependants = 1 WHERE {condition} AND has_dependants = 0 AND final_state = ''"
        " AND (EXISTS (SELECT 1 FROM conditions c WHERE c.parent_job = jobs.id AND c.parent_job <> 0)"
        " OR EXISTS (SELECT 1 FROM parent_submissions p WHERE p.submission_id = jobs.submission_id))",
        (value,),
    )


def mark_created(connection: Connection, first: int, count: int) -> None:
    """Mark each of `count` new jobs from id `first` on, if others depend on it already."""
    connection.execute_later(
        "UPDATE jobs SET has_dependants = 1 WHERE id IN (SELECT c.parent_job FROM conditions c"
        " WHERE c.parent_job <> 0 AND c.parent_job >= ? AND c.parent_job < ?)",
        (first, first + count),
    )


class ParentSubmission(NamedTuple):
    """A submission that jobs depend on."""

    submission: SubmissionId
    cursor: int
    """Jobs up to this id are marked, so that their ends decide about conditions."""
    marked: int
    """1: all of its jobs are."""


_PARENT = columns(ParentSubmission, submission="submission_id")
_add_parent = RowWriter[tuple[SubmissionId]](
    insert("parent_submissions", ("submission_id",), conflict=("submission_id",), otherwise="NOTHING")
)


def add_parent_submissions(connection: Connection, submissions: Iterable[SubmissionId]) -> None:
    """Request marks for the jobs of these submissions, unless the jobs are marked already."""
    _add_parent(connection, [(submission,) for submission in submissions])


def lock_parent_submission(connection: Connection, submission: int) -> ParentSubmission | None:
    """A submission that jobs depend on; no other server decides about it until the transaction ends."""
    sql = f"SELECT {_PARENT} FROM parent_submissions WHERE submission_id = ?" + lock_clause(
        connection, "UPDATE"
    )
    row = connection.execute(sql, (submission,)).fetchone()
    return None if row is None else ParentSubmission(*row)


# A job that is created after the last look would stay unmarked. The transaction that creates a job also counts it as
# made: after all jobs are counted, the next statement finds each. No chunk is added
# to a submission that others depend on.
_MAY_BE_MARKED = (
    "marked = 0 AND NOT EXISTS (SELECT 1 FROM submission_chunks c WHERE c.submission_id = p.submission_id"
    " AND c.made < c.count)"
)


@hint("each parent submission is locked and looked at again")
def unmarked(connection: Connection, most: int) -> list[int]:
    """Submissions whose jobs exist and need marks, at most `most`."""
    sql = f"SELECT submission_id FROM parent_submissions p WHERE {_MAY_BE_MARKED} ORDER BY submission_id LIMIT ?"
    return [row[0] for row in connection.execute(sql, (most,))]


def save_marked(connection: Connection, parent: ParentSubmission) -> None:
    sql = "UPDATE parent_submissions SET cursor = ?, marked = ? WHERE submission_id = ?"
    connection.execute(sql, (parent.cursor, parent.marked, parent.submission))


class ParentChange(NamedTuple):
    """A change of a job that others depend on, or the return of any job that had ended.

    Job 0: only conditions on the submission must be decided.
    """

    job: int
    submission: SubmissionId
    state: str


_CHANGE = columns(ParentChange, submission="submission_id", job="job_id")
add_changes = RowWriter[ParentChange](insert("parent_changes", _CHANGE.split(", ")))


@hint("each change is locked before it is carried out")
def next_changes(connection: Connection, most: int) -> list[int]:
    """The ids of changes, oldest first, at most `most`."""
    return [
        row[0] for row in connection.execute("SELECT id FROM parent_changes ORDER BY id LIMIT ?", (most,))
    ]


def lock_changes(connection: Connection, ids: Sequence[int]) -> dict[int, ParentChange]:
    """These changes by their ids, oldest first, locked. Changes that another server decides are left out."""
    condition, value = in_list(connection, "id", ids)
    sql = f"SELECT id, {_CHANGE} FROM parent_changes WHERE {condition} ORDER BY id"
    sql += lock_clause(connection, "UPDATE SKIP LOCKED")
    return {row[0]: ParentChange(*row[1:]) for row in connection.execute(sql, (value,))}


def delete_changes(connection: Connection, ids: Sequence[int]) -> None:
    condition, value = in_list(connection, "id", ids)
    connection.execute(f"DELETE FROM parent_changes WHERE {condition}", (value,))


def has_work(connection: Connection) -> bool:
    """Whether a change is undecided, a gate or limit unsettled, or a submission unmarked that may be marked."""
    sql = (
        "SELECT EXISTS (SELECT 1 FROM parent_changes) OR EXISTS (SELECT 1 FROM gates WHERE settled = 0)"
        f" OR EXISTS (SELECT 1 FROM parent_submissions p WHERE {_MAY_BE_MARKED})"
        " OR EXISTS (SELECT 1 FROM parallel_limits WHERE settled = 0)"
    )
    return bool(connection.execute(sql).fetchone()[0])


class ParentFacts(NamedTuple):
    """The parts of a job's row that decide about conditions."""

    owner: str
    submission: int
    state: str
    exit_code: int | None


def facts_of_jobs(connection: Connection, jobs: Sequence[int]) -> dict[int, ParentFacts]:
    """The facts of these jobs by id, also of archived ones. They stay true until the transaction ends."""
    facts: dict[int, ParentFacts] = {}
    # Another server may archive a job before the second look, or restore it before the third one.
    for table, lock in (("jobs", "UPDATE"), ("history", "SHARE"), ("jobs", "UPDATE")):
        missing = [job for job in jobs if job not in facts]
        if missing:
            condition, value = in_list(connection, "id", missing)
            sql = f"SELECT id, owner, submission_id, state, exit_code FROM {table} WHERE {condition} ORDER BY id"
            rows = connection.execute(sql + lock_clause(connection, lock), (value,))
            facts |= {row[0]: ParentFacts(*row[1:]) for row in rows}
    return facts


@decision("one statement; the row of the parent submission is locked, and new jobs are made under it")
def unfinished(connection: Connection, submission: int, after: int, most: int) -> list[int]:
    """Ids above `after` of existing jobs of the submission that have not ended, ascending, at most `most`."""
    sql = (
        "SELECT j.id FROM submission_chunks c JOIN submissions s ON s.id = c.submission_id JOIN jobs j"
        " ON j.owner = s.owner AND j.final_state = '' AND j.id >= c.first_job AND j.id < c.first_job + c.made"
        " AND j.submission_id = s.id WHERE c.submission_id = ? AND j.id > ? ORDER BY j.id LIMIT ?"
    )
    return [row[0] for row in connection.execute(sql, (submission, after, most))]


def lock_jobs(connection: Connection, jobs: Sequence[int]) -> None:
    """Let no other server end these jobs until the transaction ends."""
    condition, value = in_list(connection, "id", jobs)
    lock_in_order(connection, "jobs", condition, (value,))


class Dependant(NamedTuple):
    """A gate that never opens if its parent fails: the number of jobs behind it, and their ids if it has one job."""

    submission: int
    job: int
    jobs: int


def needing_success(connection: Connection, column: str, parents: Sequence[int]) -> list[Dependant]:
    """The gates that need one of these parents to be Done; `column` as in `of_parent`."""
    condition, value = in_list(connection, f"c.{column}", parents)
    sql = (
        "SELECT DISTINCT c.submission_id, c.job_id, CASE WHEN c.job_id = 0 THEN s.count ELSE 1 END"
        " FROM conditions c JOIN submissions s ON s.id = c.submission_id JOIN gates g"
        " ON g.submission_id = c.submission_id AND g.job_id = c.job_id"
        f" WHERE {condition} AND c.{column} <> 0 AND c.condition = 'after_ok' AND c.outlook = 'open'"
        " AND g.outlook = 'open'"
    )
    return [Dependant(*row) for row in connection.execute(sql, (value,))]


def submissions_of(connection: Connection, jobs: Sequence[int]) -> list[int]:
    """The submissions of these jobs that others depend on."""
    condition, value = in_list(connection, "j.id", jobs)
    sql = (
        "SELECT DISTINCT j.submission_id FROM jobs j JOIN parent_submissions p"
        f" ON p.submission_id = j.submission_id WHERE {condition}"
    )
    return [row[0] for row in connection.execute(sql, (value,))]


def jobs_of(connection: Connection, submission: int) -> list[int]:
    """The jobs of a submission that have not ended."""
    return unfinished(connection, submission, 0, 2**31)


def delete_of_submissions(connection: Connection, submissions: Sequence[int]) -> None:
    """Delete the gates of deleted submissions, and forget that others depended on them."""
    them, value = in_list(connection, "submission_id", submissions)
    for table in ("conditions", "gates", "parent_submissions"):
        connection.execute(f"DELETE FROM {table} WHERE {them}", (value,))
