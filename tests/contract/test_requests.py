"""Requests in both stores: every row comes back, a change needs the row as it was read, and has its event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pilotage.core.errors import Conflict, IllegalMove
from pilotage.core.requests.states import RequestState
from pilotage.store.tables import requests
from pilotage.store.tables.requests import ALL_SITES, RequestFilter, RequestRow, StepRow

NEW = RequestRow(
    id=0,
    name="first",
    owner="ada",
    group="physics",
    priority=8000,
    team="home",
    campaign="autumn",
    state=RequestState.NEW,
    specification="{}",
    sites=ALL_SITES,
    banned_sites=("there",),
    trust_input=True,
    trust_pileup=False,
    open_until=7.5,
    created=5.0,
    changed=5.0,
    key="once",
)


def test_a_request_and_its_steps_come_back(connection: Any) -> None:
    stored = requests.insert(connection, NEW)
    assert requests.by_id(connection, stored.id) == stored == replace(NEW, id=stored.id)
    assert requests.by_key(connection, "ada", "once") == stored
    assert requests.by_key(connection, "bob", "once") is None
    steps = [
        StepRow(stored.id, 0, "process", "Processing", "Block", "{}", 7, None, (8,), (9,), 10),
        StepRow(stored.id, 1, "process.merge", "Merge", "Block", "{}", 10, 0, (), (), 11),
        StepRow(
            stored.id,
            2,
            "generate",
            "Processing",
            "MonteCarlo",
            "{}",
            None,
            None,
            (),
            (),
            None,
            5,
            True,
            True,
        ),
    ]
    requests.insert_steps(connection, steps)
    assert requests.steps_of(connection, stored.id) == steps
    assert steps[0].inputs == (7, 8)
    assert steps[2].inputs == ()


def test_a_move_is_stored_with_its_event_or_not_at_all(connection: Any) -> None:
    stored = requests.insert(connection, NEW)
    moved = requests.move(connection, stored, RequestState.ASSIGNMENT_APPROVED, actor="bob", now=6.0)
    assert requests.by_id(connection, stored.id) == moved
    with pytest.raises(IllegalMove):
        requests.move(connection, moved, RequestState.COMPLETED, actor="bob", now=7.0)
    with pytest.raises(Conflict, match="somebody else"):
        requests.move(connection, stored, RequestState.REJECTED, actor="bob", now=7.0)
    lists = replace(moved, priority=9, sites=("here",), banned_sites=(), propagating=True)
    changed = requests.change_facts(
        connection, moved, lists, kind="priority", actor="ada", now=8.0, detail="8000 → 9"
    )
    assert requests.for_change(connection, stored.id) == changed == replace(lists, changed=8.0, version=3)
    with pytest.raises(Conflict):
        requests.change_facts(connection, moved, lists, kind="sites", actor="ada", now=9.0, detail="")
    history = requests.events_of(connection, stored.id)
    assert [(event.kind, event.actor, event.old, event.new, event.detail) for event in history] == [
        ("submit", "user:ada", "", "new", ""),
        ("state", "bob", "new", "assignment-approved", ""),
        ("priority", "ada", "", "", "8000 → 9"),
    ]
    assert requests.events_of(connection, stored.id, after=history[0].id, most=1) == history[1:2]


def test_lists_are_filtered_and_paged(connection: Any) -> None:
    ids = [
        requests.insert(
            connection, replace(NEW, key=None, name=name, owner=owner, group=group, state=state)
        ).id
        for name, owner, group, state in [
            ("a", "ada", "physics", RequestState.NEW),
            ("b", "bob", "students", RequestState.ASSIGNED),
            ("c", "bob", "physics", RequestState.ASSIGNED),
            ("d", "eve", "students", RequestState.COMPLETED),
        ]
    ]

    def names(wanted: RequestFilter, before: int = 2**62, most: int = 10) -> str:
        return "".join(row.name for row in requests.page(connection, wanted, before=before, most=most))

    assert names(RequestFilter()) == "dcba"
    assert names(RequestFilter(), before=ids[3], most=2) == "cb"
    assert names(RequestFilter(states=("assigned", "new"))) == "cba"
    assert names(RequestFilter(owner="bob", campaign="autumn", team="home")) == "cb"
    assert names(RequestFilter(visible_to="ada")) == "a"
    assert names(RequestFilter(visible_to="ada", visible_groups=("physics",))) == "ca"
    assert names(RequestFilter(name="d", team="other")) == ""
    waiting = requests.in_states(connection, [RequestState.ASSIGNED])
    assert [row.id for row in waiting] == ids[1:3]
    assert requests.in_states(connection, [RequestState.ASSIGNED], after=ids[1], most=1) == waiting[1:]
    assert requests.count_unfinished(connection, "bob", [RequestState.ASSIGNED]) == 2
    requests.set_propagating(connection, ids[0], propagating=True)
    row = requests.by_id(connection, ids[0])
    assert row is not None
    assert row.propagating
