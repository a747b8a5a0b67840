"""Selections of jobs as SQL conditions: one condition on `jobs`, and one or more branches on `history`.

Pages of history are ordered by id. The index on (owner, state, id) gives this order for one owner and one state. So
a selection becomes one branch for each state, and the pages of the branches are merged. Other conditions of a branch
than its index condition are wrapped in `coalesce`, so that the planner uses no other index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pilotage.core.jobs.states import FINAL
from pilotage.store.engine.connection import Connection, in_list

_OF_REQUEST = "IN (SELECT id FROM submissions WHERE request_id = ?)"
_FINAL = sorted(map(str, FINAL))

OUTPUTS_INCOMPLETE = (
    "(coalesce(j.state, '') IN ('Done', 'Failed') AND EXISTS (SELECT 1 FROM results r WHERE r.job_id = j.id"
    " AND r.epoch = j.finished_epoch AND (r.missing <> '[]' OR r.refused <> '[]')))"
)
"""For a row j of `jobs` or `history`: an output of its applied attempt is missing or was refused."""

FOR_REQUEST = "EXISTS (SELECT 1 FROM submissions o WHERE o.id = j.submission_id AND o.request_id IS NOT NULL)"
"""For a row j of `jobs` or `history`: it works for a request."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """A caller that may see all jobs, or jobs of `owner` and of `shared_group`."""

    owner: str
    shared_group: str = ""
    everything: bool = False

    def may_see(self, owner: str, group: str) -> bool:
        """Whether a job or queue of this owner and group is visible."""
        return self.everything or owner == self.owner or (bool(group) and group == self.shared_group)


@dataclass(frozen=True, slots=True)
class JobSelection:
    """Conditions that a job must all meet. None: no condition. An empty list fits no job."""

    ids: Sequence[int] | None = None
    submission: int | None = None
    states: Sequence[str] | None = None
    owner: str | None = None
    group: str | None = None
    job_group: str | None = None
    site: str | None = None
    name: str | None = None
    ended_since: float | None = None
    ended_before: float | None = None
    outputs_incomplete: bool | None = None
    request: int | None = None
    for_request: bool | None = None
    name_pattern: str | None = None
    """`*` stands for any text, `?` for any one character."""

    @property
    def uses_counted_columns(self) -> bool:
        """Whether counters can answer it: it has conditions on submissions, their owners and states only."""
        of_single_jobs = (self.ids, self.site, self.name, self.name_pattern)
        others = (self.outputs_incomplete, self.for_request, self.ended_since, self.ended_before)
        return all(given is None for given in (*of_single_jobs, *others))

    @property
    def names_submissions(self) -> bool:
        """Whether it has a condition on submissions that their owner and group do not decide."""
        return any(given is not None for given in (self.submission, self.request, self.job_group))


@dataclass(slots=True)
class WhereClause:
    """The conditions of a WHERE clause, and their values."""

    parts: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, part: str, *given: Any) -> None:
        self.parts.append(part)
        self.values.extend(given)

    @property
    def sql(self) -> str:
        return " AND ".join(self.parts) or "TRUE"


def _in_list(
    connection: Connection, expression: str, given: Sequence[int] | Sequence[str]
) -> tuple[str, ...]:
    """A condition and its values. The condition of an empty list is FALSE, for any type of the column."""
    return in_list(connection, expression, given) if given else ("FALSE",)


def _fits_pattern(connection: Connection, expression: str, pattern: str) -> tuple[str, str]:
    """A condition and its value, where case counts; only `*` and `?` are special."""
    if connection.dialect == "sqlite":
        return f"{expression} GLOB ?", pattern.replace("[", "[[]")
    plain = "".join(f"!{character}" if character in "!%_" else character for character in pattern)
    return f"{expression} LIKE ? ESCAPE '!'", plain.replace("*", "%").replace("?", "_")


def jobs_where(connection: Connection, selection: JobSelection, viewer: Viewer) -> WhereClause:
    """The condition on jobs j, submissions s and pilots p."""
    where = WhereClause()
    if not viewer.everything:
        if viewer.shared_group:
            where.add("(s.owner = ? OR s.grp = ?)", viewer.owner, viewer.shared_group)
        else:
            where.add("s.owner = ?", viewer.owner)
    if selection.ids is not None:
        where.add(*_in_list(connection, "j.id", selection.ids))
    if selection.states is not None:
        where.add(*_in_list(connection, "j.state", selection.states))
    for column, value in (
        ("j.submission_id", selection.submission),
        ("s.request_id", selection.request),
        ("s.owner", selection.owner),
        ("s.grp", selection.group),
        ("s.job_group", selection.job_group),
        ("coalesce(j.name, s.job_name)", selection.name),
        ("p.site", selection.site),
    ):
        if value is not None:
            where.add(f"{column} = ?", value)
    if selection.name_pattern is not None:
        where.add(*_fits_pattern(connection, "coalesce(j.name, s.job_name)", selection.name_pattern))
    if selection.ended_since is not None:
        where.add("j.ended >= ?", selection.ended_since)
    if selection.ended_before is not None:
        where.add("j.ended < ?", selection.ended_before)
    _add_yes_or_no(where, selection)
    return where


def _add_yes_or_no(where: WhereClause, selection: JobSelection) -> None:
    for condition, wanted in (
        (OUTPUTS_INCOMPLETE, selection.outputs_incomplete),
        (FOR_REQUEST, selection.for_request),
    ):
        if wanted is not None:
            where.add(condition if wanted else f"NOT {condition}")


def history_where(connection: Connection, selection: JobSelection, viewer: Viewer) -> list[WhereClause]:
    """Disjoint conditions on history j, one for each branch; empty if no final job can fit."""
    states = [state for state in _FINAL if selection.states is None or state in selection.states]
    if not states:
        return []
    drives = _index_conditions(connection, selection, viewer)
    return [
        _branch(connection, drive, selection, viewer, part)
        for drive in drives
        for part in (
            [[state] for state in states] if drive.by_state and len(states) < drive.most else [states]
        )
    ]


@dataclass(slots=True)
class _IndexCondition:
    """The condition of a branch that its index serves."""

    part: str
    values: list[Any]
    implies: str
    """The column that the condition covers; "viewer": the visibility."""
    by_state: bool = False
    """Whether the state is the next column of the index."""
    most: int = len(_FINAL) + 1
    """From this number of states on, one branch reads all states."""
    besides: tuple[str, ...] = ()
    """The owner whose jobs another branch reads."""


def _index_conditions(
    connection: Connection, selection: JobSelection, viewer: Viewer
) -> list[_IndexCondition]:
    if selection.ids is not None:
        condition, *values = _in_list(connection, "j.id", selection.ids)
        return [_IndexCondition(condition, [*values], "id")]
    if selection.request is not None:
        part = f"j.submission_id {_OF_REQUEST}"
        return [_IndexCondition(part, [selection.request], "request_id")]
    if selection.submission is not None:
        return [_IndexCondition("j.submission_id = ?", [selection.submission], "submission_id")]
    if selection.name:
        return [_IndexCondition("j.job_name = ? AND j.job_name <> ''", [selection.name], "job_name")]
    if selection.job_group:
        return [_IndexCondition("j.job_group = ? AND j.job_group <> ''", [selection.job_group], "job_group")]
    if selection.ended_since is not None:
        # Few jobs ended recently: they are sorted by id.
        return [_IndexCondition("j.ended >= ?", [selection.ended_since], "ended")]
    if selection.owner is not None:
        return [_IndexCondition("j.owner = ?", [selection.owner], "owner", by_state=True)]
    if viewer.everything:
        if selection.group is not None:
            return [_IndexCondition("j.grp = ?", [selection.group], "grp", by_state=True)]
        # All states: the primary key has the order of ids.
        return [_IndexCondition("TRUE", [], "viewer", by_state=True, most=len(_FINAL))]
    own = _IndexCondition("j.owner = ?", [viewer.owner], "viewer", by_state=True)
    if not viewer.shared_group:
        return [own]
    besides = (viewer.owner,)
    return [
        own,
        _IndexCondition("j.grp = ?", [viewer.shared_group], "viewer", by_state=True, besides=besides),
    ]


def _branch(
    connection: Connection,
    drive: _IndexCondition,
    selection: JobSelection,
    viewer: Viewer,
    states: Sequence[str],
) -> WhereClause:
    where = WhereClause([drive.part], list(drive.values))
    if drive.by_state and len(states) == 1:
        where.add("j.state = ?", states[0])
    elif len(states) < len(_FINAL):
        where.add(*in_list(connection, "coalesce(j.state, '')", states))
    if drive.besides:
        where.add("coalesce(j.owner, '') <> ?", *drive.besides)
    if not viewer.everything and drive.implies != "viewer" and selection.owner != viewer.owner:
        condition = "coalesce(j.owner, '') = ?"
        if viewer.shared_group:
            where.add(f"({condition} OR coalesce(j.grp, '') = ?)", viewer.owner, viewer.shared_group)
        else:
            where.add(condition, viewer.owner)
    for column, value, nothing in (
        ("submission_id", selection.submission, "0"),
        ("owner", selection.owner, "''"),
        ("grp", selection.group, "''"),
        ("job_group", selection.job_group, "''"),
        ("job_name", selection.name, "''"),
        ("site", selection.site, "''"),
    ):
        if value is not None and column != drive.implies:
            where.add(f"coalesce(j.{column}, {nothing}) = ?", value)
    if selection.request is not None and drive.implies != "request_id":
        where.add(f"coalesce(j.submission_id, 0) {_OF_REQUEST}", selection.request)
    if selection.name_pattern is not None:
        where.add(*_fits_pattern(connection, "coalesce(j.job_name, '')", selection.name_pattern))
    if selection.ended_since is not None and drive.implies != "ended":
        where.add("coalesce(j.ended, 0) >= ?", selection.ended_since)
    if selection.ended_before is not None:
        # Served by the same index; later partitions are skipped.
        column = "j.ended" if drive.implies == "ended" else "coalesce(j.ended, 0)"
        where.add(f"{column} < ?", selection.ended_before)
    _add_yes_or_no(where, selection)
    return where


def counts_where(connection: Connection, selection: JobSelection, viewer: Viewer, owner: str) -> WhereClause:
    """The condition on counters c and submissions s, for a selection with `uses_counted_columns`.

    `owner`: the one of both that has the owner and the group.
    """
    where = WhereClause()
    if not viewer.everything:
        if viewer.shared_group:
            where.add(f"({owner}.owner = ? OR {owner}.grp = ?)", viewer.owner, viewer.shared_group)
        else:
            where.add(f"{owner}.owner = ?", viewer.owner)
    if selection.states is not None:
        where.add(*_in_list(connection, "c.state", selection.states))
    for column, value in (
        (f"{owner}.owner", selection.owner),
        (f"{owner}.grp", selection.group),
        ("c.submission_id", selection.submission),
        ("s.request_id", selection.request),
        ("s.job_group", selection.job_group),
    ):
        if value is not None:
            where.add(f"{column} = ?", value)
    if selection.job_group:
        where.add("s.job_group <> ''")
    return where
