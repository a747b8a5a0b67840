"""The jobs of the hot table that a selection chooses, found by ranges of indexes instead of looking at all jobs.

An index over states would cost each match a random page. So the index (owner, final state, id) has one range for the
unfinished jobs of an owner, and one for each final state. Jobs with a pilot are found by the lists of the pilots, and
rescheduled jobs by the index on their time of return. Jobs of submissions are found by the ids of their chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pilotage.core.jobs.states import CONFIRMED, FINAL, JobState
from pilotage.store.engine.connection import MAX_INTEGER, Connection, in_list
from pilotage.store.tables import job_counts
from pilotage.store.tables.selections import JobSelection, Viewer, WhereClause, jobs_where

JOINED = (
    "FROM jobs j JOIN submissions s ON s.id = j.submission_id"
    " LEFT JOIN attempts a ON a.job_id = j.id AND a.epoch = j.epoch"
    " LEFT JOIN pilots p ON p.id = coalesce(j.pilot_id,"
    " CASE WHEN j.state NOT IN ('Blocked', 'Held', 'Waiting', 'Rescheduled') THEN a.pilot_id END)"
)
"""Jobs j of the hot table, with their submissions, attempts and pilots."""

_WITH_PILOT = CONFIRMED | {JobState.MATCHED}


@dataclass(frozen=True, slots=True)
class Page:
    """`limit` jobs with ids above `after`, in ascending order. `newest`: below `after`, descending; 0: from the end."""

    after: int = 0
    limit: int = MAX_INTEGER
    newest: bool = False

    @property
    def beyond(self) -> str:
        """The condition on the ids of jobs j, with one value: `after` or the end."""
        return "j.id < ?" if self.newest else "j.id > ?"

    @property
    def order(self) -> str:
        return " DESC" if self.newest else ""

    @property
    def values(self) -> list[int]:
        """The values of `beyond` and of LIMIT."""
        return [MAX_INTEGER if self.newest and not self.after else self.after, self.limit]


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Rows x, of which each has ranges of the index: of an owner, and perhaps between two ids."""

    rows: str
    values: Sequence[Any]
    condition: str
    """On jobs j of row x."""


def ids(connection: Connection, selection: JobSelection, viewer: Viewer, page: Page) -> tuple[str, list[Any]]:
    """The query for the ids of a page of the selected jobs, and its values."""
    chosen = jobs_where(connection, selection, viewer)
    parts, values = list[str](), list[Any]()
    for condition, ranges in _parts(connection, selection, viewer):
        where = f"{chosen.sql} AND {condition.sql} AND {page.beyond} ORDER BY j.id{page.order} LIMIT ?"
        both = [*chosen.values, *condition.values, *page.values]
        if ranges is None:
            parts.append(f"SELECT id FROM (SELECT j.id {JOINED} WHERE {where}) AS part{len(parts)}")
            values += both
        else:
            inner = f"SELECT j.id {JOINED} WHERE {ranges.condition} AND {where}"
            each = f"CROSS JOIN LATERAL ({inner}) AS i"
            if connection.dialect == "sqlite":
                each = f"CROSS JOIN jobs i WHERE i.id IN ({inner})"
            parts.append(f"SELECT i.id FROM ({ranges.rows}) AS x {each}")
            values += [*ranges.values, *both]
    if not parts:
        return "SELECT id FROM jobs WHERE FALSE", []
    sql = f"SELECT id FROM ({' UNION ALL '.join(parts)}) AS chosen ORDER BY id{page.order} LIMIT ?"
    return sql, [*values, page.limit]


def _parts(
    connection: Connection, selection: JobSelection, viewer: Viewer
) -> Iterator[tuple[WhereClause, _Ranges | None]]:
    """Disjoint conditions that together choose all jobs of the selection, each with the ranges that serve it."""
    if selection.ids is not None:
        yield WhereClause(), None
        return
    chunks = _chunks(selection)
    everybody = viewer.everything and selection.owner is None and selection.group is None
    if selection.states is None and (chunks is not None or everybody):
        # The ids of a chunk, or of the whole table, are in the order of pages, with any states.
        yield WhereClause(), chunks
        return
    ranges = _owners(connection, selection, viewer)
    if chunks is not None:
        ranges = replace(chunks, condition=f"{ranges.condition} AND {chunks.condition}")
    states = frozenset[str](JobState) if selection.states is None else frozenset(selection.states)
    for state in sorted(states & FINAL):
        yield WhereClause(["j.final_state = ?"], [state]), ranges
    unfinished = states - FINAL
    if not unfinished <= _WITH_PILOT | {JobState.RESCHEDULED}:
        yield WhereClause(["j.final_state = ''"]), ranges
        return
    if unfinished & _WITH_PILOT:
        yield (
            _in_states(connection, f"j.id IN ({_listed_by_pilots(connection)})", unfinished & _WITH_PILOT),
            None,
        )
    if JobState.RESCHEDULED in unfinished:
        back = "j.id IN (SELECT id FROM jobs WHERE not_before IS NOT NULL)"
        yield _in_states(connection, back, [JobState.RESCHEDULED]), None


def _in_states(connection: Connection, condition: str, states: Iterable[str]) -> WhereClause:
    where = WhereClause([condition])
    where.add(*in_list(connection, "j.state", sorted(states)))
    return where


def _listed_by_pilots(connection: Connection) -> str:
    """The jobs in the lists of live pilots. A list may have jobs that its pilot has no more."""
    each, value = "json_array_elements_text(l.jobs::json) e (value)", "e.value::bigint"
    if connection.dialect == "sqlite":
        each, value = "json_each(l.jobs) e", "e.value"
    return f"SELECT {value} FROM pilots l CROSS JOIN {each} WHERE l.ended IS NULL AND l.jobs <> '[]'"


def _chunks(selection: JobSelection) -> _Ranges | None:
    """The chunks of the submissions that a selection names; None: it names none."""
    if not selection.names_submissions:
        return None
    where = WhereClause()
    for column, value in (
        ("s.id", selection.submission),
        ("s.request_id", selection.request),
        ("s.job_group", selection.job_group),
    ):
        if value is not None:
            where.add(f"{column} = ?", value)
    if selection.job_group:
        where.add("s.job_group <> ''")
    rows = (
        "SELECT s.owner, c.submission_id, c.first_job, c.first_job + c.made AS past FROM submissions s"
        f" JOIN submission_chunks c ON c.submission_id = s.id WHERE {where.sql}"
    )
    return _Ranges(rows, where.values, "j.id >= x.first_job AND j.id < x.past")


def _owners(connection: Connection, selection: JobSelection, viewer: Viewer) -> _Ranges:
    """The owners whose jobs may be among the selected ones."""
    values: list[Any]
    if selection.owner is not None:
        rows, values = "SELECT ? AS owner", [selection.owner]
    elif viewer.everything:
        rows, values = job_counts.owners_of_hot_jobs(connection, selection.group)
    elif viewer.shared_group:
        rows, values = job_counts.owners_of_hot_jobs(connection, viewer.shared_group)
        rows, values = f"{rows} UNION SELECT ?", [*values, viewer.owner]
    else:
        rows, values = "SELECT ? AS owner", [viewer.owner]
    return _Ranges(rows, values, "j.owner = x.owner")
