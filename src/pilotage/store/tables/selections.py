"""Selections of jobs as SQL: one condition on the hot table, and for history branches that an index serves each.

A page of history is in the order of ids. An index on (owner, state, id) gives it so for one owner and one state:
a selection becomes one branch for each state, and the pages of the branches are merged. What a branch is not driven
by is hidden from the planner by `coalesce`, so that no other index tempts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pilotage.core.jobs.states import FINAL
from pilotage.store.engine.connection import Connection, in_list

_FINAL = sorted(map(str, FINAL))

OUTPUTS_INCOMPLETE = (
    "(coalesce(j.state, '') IN ('Done', 'Failed') AND EXISTS (SELECT 1 FROM results r WHERE r.job_id = j.id"
    " AND r.epoch = j.finished_epoch AND (r.missing <> '[]' OR r.refused <> '[]')))"
)
"""Of a row j of `jobs` or `history`: an output of its applied try is missing or was refused."""


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
class JobSelection:
    """All conditions together. None: no such condition. An empty list is one, and fits no job."""

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

    @property
    def uses_counted_columns(self) -> bool:
        """Whether owner, group and state are all that it asks for."""
        others = (self.ids, self.submission, self.job_group, self.site, self.name, self.outputs_incomplete)
        return all(given is None for given in (*others, self.ended_since, self.ended_before))


@dataclass(slots=True)
class WhereClause:
    """What stands after WHERE, with its values."""

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
    """A condition and its values; of an empty list one that nothing fits, whatever the type of the column."""
    return in_list(connection, expression, given) if given else ("FALSE",)


def jobs_where(connection: Connection, selection: JobSelection, viewer: Viewer) -> WhereClause:
    """On jobs j, submissions s, pilots p."""
    found = WhereClause()
    if not viewer.everything:
        if viewer.shared_group:
            found.add("(s.owner = ? OR s.grp = ?)", viewer.owner, viewer.shared_group)
        else:
            found.add("s.owner = ?", viewer.owner)
    if selection.ids is not None:
        found.add(*_in_list(connection, "j.id", selection.ids))
    if selection.states is not None:
        found.add(*_in_list(connection, "j.state", selection.states))
    for column, value in (
        ("j.submission_id", selection.submission),
        ("s.owner", selection.owner),
        ("s.grp", selection.group),
        ("s.job_group", selection.job_group),
        ("coalesce(j.name, s.job_name)", selection.name),
        ("p.site", selection.site),
    ):
        if value is not None:
            found.add(f"{column} = ?", value)
    if selection.ended_since is not None:
        found.add("j.ended >= ?", selection.ended_since)
    if selection.ended_before is not None:
        found.add("j.ended < ?", selection.ended_before)
    if selection.outputs_incomplete is not None:
        found.add(OUTPUTS_INCOMPLETE if selection.outputs_incomplete else f"NOT {OUTPUTS_INCOMPLETE}")
    return found


def history_where(connection: Connection, selection: JobSelection, viewer: Viewer) -> list[WhereClause]:
    """On history j: branches that have no job in common; none where no final job can fit."""
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
    """What an index is looked into by."""

    part: str
    values: list[Any]
    implies: str
    """The column that needs no condition besides; "viewer": whose jobs may be seen."""
    by_state: bool = False
    """The index goes on with the state."""
    most: int = len(_FINAL) + 1
    """So many states are no longer taken one by one."""
    besides: tuple[str, ...] = ()
    """Not jobs of this owner: another branch has them."""


def _index_conditions(
    connection: Connection, selection: JobSelection, viewer: Viewer
) -> list[_IndexCondition]:
    if selection.ids is not None:
        condition, *values = _in_list(connection, "j.id", selection.ids)
        return [_IndexCondition(condition, [*values], "id")]
    if selection.submission is not None:
        return [_IndexCondition("j.submission_id = ?", [selection.submission], "submission_id")]
    if selection.name:
        return [_IndexCondition("j.job_name = ? AND j.job_name <> ''", [selection.name], "job_name")]
    if selection.job_group:
        return [_IndexCondition("j.job_group = ? AND j.job_group <> ''", [selection.job_group], "job_group")]
    if selection.ended_since is not None:
        # What ended lately is little; it is brought into the order of ids.
        return [_IndexCondition("j.ended >= ?", [selection.ended_since], "ended")]
    if selection.owner is not None:
        return [_IndexCondition("j.owner = ?", [selection.owner], "owner", by_state=True)]
    if viewer.everything:
        if selection.group is not None:
            return [_IndexCondition("j.grp = ?", [selection.group], "grp", by_state=True)]
        # All states: in the order of ids as they are.
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
    found = WhereClause([drive.part], list(drive.values))
    if drive.by_state and len(states) == 1:
        found.add("j.state = ?", states[0])
    elif len(states) < len(_FINAL):
        found.add(*in_list(connection, "coalesce(j.state, '')", states))
    if drive.besides:
        found.add("coalesce(j.owner, '') <> ?", *drive.besides)
    if not viewer.everything and drive.implies != "viewer" and selection.owner != viewer.owner:
        condition = "coalesce(j.owner, '') = ?"
        if viewer.shared_group:
            found.add(f"({condition} OR coalesce(j.grp, '') = ?)", viewer.owner, viewer.shared_group)
        else:
            found.add(condition, viewer.owner)
    for column, value, nothing in (
        ("submission_id", selection.submission, "0"),
        ("owner", selection.owner, "''"),
        ("grp", selection.group, "''"),
        ("job_group", selection.job_group, "''"),
        ("job_name", selection.name, "''"),
        ("site", selection.site, "''"),
    ):
        if value is not None and column != drive.implies:
            found.add(f"coalesce(j.{column}, {nothing}) = ?", value)
    if selection.ended_since is not None and drive.implies != "ended":
        found.add("coalesce(j.ended, 0) >= ?", selection.ended_since)
    if selection.ended_before is not None:
        # By the same index, and months after it are not even looked at.
        column = "j.ended" if drive.implies == "ended" else "coalesce(j.ended, 0)"
        found.add(f"{column} < ?", selection.ended_before)
    if selection.outputs_incomplete is not None:
        found.add(OUTPUTS_INCOMPLETE if selection.outputs_incomplete else f"NOT {OUTPUTS_INCOMPLETE}")
    return found


def counts_where(connection: Connection, selection: JobSelection, viewer: Viewer) -> WhereClause:
    """On history_counts, of a selection by people and states."""
    found = WhereClause()
    if not viewer.everything:
        if viewer.shared_group:
            found.add("(owner = ? OR grp = ?)", viewer.owner, viewer.shared_group)
        else:
            found.add("owner = ?", viewer.owner)
    if selection.states is not None:
        found.add(*_in_list(connection, "state", selection.states))
    for column, value in (("owner", selection.owner), ("grp", selection.group)):
        if value is not None:
            found.add(f"{column} = ?", value)
    return found
