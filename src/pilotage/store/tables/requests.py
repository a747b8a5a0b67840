"""Requests, their steps, and their history. A change of a request and its event are one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pilotage.core.errors import Conflict
from pilotage.core.requests.states import REQUEST_STATES, RequestState
from pilotage.store.engine.connection import Connection, in_list, lock_clause
from pilotage.store.engine.decisions import decision, hint
from pilotage.store.engine.rows import columns, insertion, values

ALL_SITES: Final = ("*",)


@dataclass(frozen=True, slots=True)
class RequestRow:
    id: int
    name: str
    owner: str
    group: str
    priority: int
    team: str
    """Empty: no agent may take it."""
    campaign: str
    state: RequestState
    specification: str
    """JSON; `core/requests/json_format.py` reads it."""
    sites: tuple[str, ...]
    """`ALL_SITES`, or a list; empty: nowhere."""
    banned_sites: tuple[str, ...]
    trust_input: bool
    trust_pileup: bool
    open_until: float | None
    created: float
    changed: float
    version: int = 1
    reason: str = ""
    origin: int | None = None
    """The request that it resubmits, or is a clone of."""
    key: str | None = None
    propagating: bool = False
    root: int | None = None
    """The first request of its chain of resubmissions; None: it resubmits none."""
    paused: bool = False
    """Agents get none of its elements, and none of its made jobs are released."""


@dataclass(frozen=True, slots=True)
class StepRow:
    request: int
    position: int
    name: str
    type: str
    start_policy: str
    splitting: str
    """JSON: the algorithm and its parameters."""
    input_dataset: int | None
    """None: it generates events."""
    after: int | None
    """The position of the step that writes its input."""
    further_inputs: tuple[int, ...]
    pileup: tuple[int, ...]
    output_dataset: int | None
    taken: int = 0
    """How far intake has come: the number of the last closed block, or the number of events generated."""
    closed: bool = False
    """No more elements will come."""
    ended: bool = False
    """All of its elements have ended, and its output data set is closed."""
    log_dataset: int | None = None
    """The data set of the logs of its jobs; None: they are not stored."""

    @property
    def written(self) -> frozenset[int]:
        """The ids of the data sets that its jobs write."""
        return frozenset(id_ for id_ in (self.output_dataset, self.log_dataset) if id_ is not None)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The ids of all its input data sets."""
        return () if self.input_dataset is None else (self.input_dataset, *self.further_inputs)

    @property
    def read(self) -> frozenset[int]:
        """The ids of all data sets that its jobs read."""
        return frozenset((*self.inputs, *self.pileup))


@dataclass(frozen=True, slots=True)
class RequestEventRow:
    id: int
    request: int
    at: float
    actor: str
    kind: str
    old: str
    new: str
    detail: str


_COLUMNS: Final = columns(RequestRow, group="grp", origin="origin_id", key="idempotency_key", root="root_id")
_STEP_COLUMNS: Final = columns(StepRow, request="request_id")
_EVENT_COLUMNS: Final = columns(RequestEventRow, request="request_id")


def _to_request(row: Sequence[Any]) -> RequestRow:
    stored: Any = RequestRow(*row)
    request: RequestRow = replace(
        stored,
        state=RequestState(stored.state),
        sites=tuple(json.loads(stored.sites)),
        banned_sites=tuple(json.loads(stored.banned_sites)),
        trust_input=bool(stored.trust_input),
        trust_pileup=bool(stored.trust_pileup),
        propagating=bool(stored.propagating),
        paused=bool(stored.paused),
    )
    return request


def _to_step(row: Sequence[Any]) -> StepRow:
    stored: Any = StepRow(*row)
    step: StepRow = replace(
        stored,
        further_inputs=tuple(json.loads(stored.further_inputs)),
        pileup=tuple(json.loads(stored.pileup)),
        closed=bool(stored.closed),
        ended=bool(stored.ended),
    )
    return step


def insert(connection: Connection, request: RequestRow) -> RequestRow:
    """Store a new request; its id is assigned here. The event of its submission is stored with it."""
    sql = f"{insertion('requests', _COLUMNS.removeprefix('id, '))} RETURNING id"
    _, *given = values(request)
    stored = replace(request, id=int(connection.execute(sql, given).fetchone()[0]))
    record(connection, stored, "submit", actor=f"user:{stored.owner}", now=stored.created, new=stored.state)
    return stored


def insert_steps(connection: Connection, steps: Iterable[StepRow]) -> None:
    connection.executemany(insertion("request_steps", _STEP_COLUMNS), list(map(values, steps)))


def save_specification(
    connection: Connection, request: int, specification: str, splittings: Sequence[str]
) -> None:
    """Store the changed text of a request that has no work yet, with the splitting of each step by position."""
    connection.execute("UPDATE requests SET specification = ? WHERE id = ?", (specification, request))
    rows = [(splitting, request, position) for position, splitting in enumerate(splittings)]
    connection.executemany(
        "UPDATE request_steps SET splitting = ? WHERE request_id = ? AND position = ?", rows
    )


@hint("a change of the request carries its version")
def by_id(connection: Connection, request: int) -> RequestRow | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM requests WHERE id = ?", (request,)).fetchone()
    return _to_request(row) if row else None


def for_change(connection: Connection, request: int) -> RequestRow | None:
    """The request; other servers cannot change it until the transaction ends."""
    sql = f"SELECT {_COLUMNS} FROM requests WHERE id = ?{lock_clause(connection, 'UPDATE')}"
    row = connection.execute(sql, (request,)).fetchone()
    return _to_request(row) if row else None


@decision("the key of an owner is unique: of two insertions one is repeated, and finds the other")
def by_key(connection: Connection, owner: str, key: str) -> RequestRow | None:
    sql = f"SELECT {_COLUMNS} FROM requests WHERE owner = ? AND idempotency_key = ?"
    row = connection.execute(sql, (owner, key)).fetchone()
    return _to_request(row) if row else None


def in_states(
    connection: Connection, states: Iterable[RequestState], *, after: int = 0, most: int = 1000
) -> list[RequestRow]:
    """The requests in these states, oldest first, from the one after the id `after` on."""
    condition, value = in_list(connection, "state", [str(state) for state in states])
    sql = f"SELECT {_COLUMNS} FROM requests WHERE {condition} AND id > ? ORDER BY id LIMIT ?"
    return [_to_request(row) for row in connection.execute(sql, (value, after, most))]


def has_unfinished(connection: Connection, team: str, states: Iterable[RequestState]) -> bool:
    """Whether a request of a team is in one of these states."""
    condition, value = in_list(connection, "state", [str(state) for state in states])
    sql = f"SELECT 1 FROM requests WHERE {condition} AND team = ? LIMIT 1"
    return connection.execute(sql, (value, team)).fetchone() is not None


@decision("the facts of a step that are used without the request's lock never change")
def steps_of(connection: Connection, request: int) -> list[StepRow]:
    """The steps of a request by position."""
    sql = f"SELECT {_STEP_COLUMNS} FROM request_steps WHERE request_id = ? ORDER BY position"
    return [_to_step(row) for row in connection.execute(sql, (request,))]


@decision("one statement, under the lock of the owner's requests")
def count_unfinished(connection: Connection, owner: str, states: Iterable[RequestState]) -> int:
    condition, value = in_list(connection, "state", [str(state) for state in states])
    sql = f"SELECT count(*) FROM requests WHERE owner = ? AND {condition}"
    return int(connection.execute(sql, (owner, value)).fetchone()[0])


def record(
    connection: Connection,
    request: RequestRow,
    kind: str,
    *,
    actor: str,
    now: float,
    old: str = "",
    new: str = "",
    detail: str = "",
) -> None:
    """Append an event to the history of a request."""
    connection.execute_later(
        "INSERT INTO request_events (request_id, at, actor, kind, old, new, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (request.id, now, actor, kind, old, new, detail),
    )


def move(
    connection: Connection,
    request: RequestRow,
    new: RequestState,
    *,
    actor: str,
    now: float,
    reason: str = "",
) -> RequestRow:
    """Change the state of a request and record it. Raises `IllegalMove`, or `Conflict` if the row has changed."""
    REQUEST_STATES.check(request.state, new)
    moved = replace(request, state=new, changed=now, version=request.version + 1, reason=reason)
    sql = "UPDATE requests SET state = ?, changed = ?, version = ?, reason = ? WHERE id = ? AND version = ?"
    values = (moved.state, moved.changed, moved.version, moved.reason, request.id, request.version)
    _changed_one(connection.execute(sql, values).rowcount, request)
    record(connection, request, "state", actor=actor, now=now, old=request.state, new=new, detail=reason)
    return moved


def change_facts(
    connection: Connection,
    before: RequestRow,
    after: RequestRow,
    *,
    kind: str,
    actor: str,
    now: float,
    detail: str,
) -> RequestRow:
    """Store priority, team, lists of sites, trust flags, `propagating` and `paused`, and record the change.

    Raises `Conflict` if the row has changed since it was read.
    """
    stored = replace(after, changed=now, version=before.version + 1)
    sql = (
        "UPDATE requests SET priority = ?, team = ?, sites = ?, banned_sites = ?, trust_input = ?, trust_pileup = ?,"
        " propagating = ?, paused = ?, changed = ?, version = ? WHERE id = ? AND version = ?"
    )
    values = (
        *(stored.priority, stored.team, json.dumps(stored.sites), json.dumps(stored.banned_sites)),
        *(int(stored.trust_input), int(stored.trust_pileup), int(stored.propagating), int(stored.paused)),
        *(now, stored.version, before.id, before.version),
    )
    _changed_one(connection.execute(sql, values).rowcount, before)
    record(connection, stored, kind, actor=actor, now=now, detail=detail)
    return stored


def _changed_one(count: int, request: RequestRow) -> None:
    if count != 1:
        raise Conflict(f"request {request.id} was changed by somebody else meanwhile", hint="try again")


def set_propagating(connection: Connection, request: int, *, propagating: bool) -> None:
    """Note that a change is, or is not, still to be carried out at elements and jobs."""
    connection.execute("UPDATE requests SET propagating = ? WHERE id = ?", (int(propagating), request))


def events_of(
    connection: Connection, request: int, *, after: int = 0, most: int = 1000
) -> list[RequestEventRow]:
    """The history of a request, oldest first."""
    sql = f"SELECT {_EVENT_COLUMNS} FROM request_events WHERE request_id = ? AND id > ? ORDER BY id LIMIT ?"
    return [RequestEventRow(*row) for row in connection.execute(sql, (request, after, most))]


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Conditions of a list; an empty one does not restrict it."""

    states: tuple[str, ...] = ()
    owner: str = ""
    team: str = ""
    campaign: str = ""
    name: str = ""
    visible_to: str = ""
    """Only requests of this owner, or of `visible_groups`."""
    visible_groups: tuple[str, ...] = ()


def page(connection: Connection, wanted: RequestFilter, *, before: int, most: int) -> list[RequestRow]:
    """The newest requests with an id below `before`, newest first."""
    conditions: list[str] = ["id < ?"]
    values: list[Any] = [before]
    for column, text in (
        ("owner", wanted.owner),
        ("team", wanted.team),
        ("campaign", wanted.campaign),
        ("name", wanted.name),
    ):
        if text:
            conditions.append(f"{column} = ?")
            values.append(text)
    if wanted.states:
        condition, value = in_list(connection, "state", wanted.states)
        conditions.append(condition)
        values.append(value)
    if wanted.visible_to:
        condition, value = in_list(connection, "grp", wanted.visible_groups or ("",))
        conditions.append(f"(owner = ? OR {condition})")
        values += [wanted.visible_to, value]
    sql = f"SELECT {_COLUMNS} FROM requests WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"
    return [_to_request(row) for row in connection.execute(sql, (*values, most))]
