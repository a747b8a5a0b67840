"""The change feed of a real server: every change once, in order, over restarts; nobody sees the jobs of others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from pilotage.client import Client
from pilotage.core.errors import CursorExpired, InvalidInput, PilotageError, Unreachable
from pilotage.wire.changes import ChangesQuery, FeedChange
from tests.deadlines import PATIENCE
from tests.instance import Instance, running


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with running(tmp_path_factory.mktemp("feed")) as one:
        yield one


def read_until_final(client: Client, cursor: str, jobs: int) -> list[FeedChange]:
    """All changes until so many jobs are final."""
    found: list[FeedChange] = []
    end = time.monotonic() + PATIENCE
    while sum(change.kind == "job" and change.state in ("Done", "Failed") for change in found) < jobs:
        assert time.monotonic() < end, found
        page = client.read_changes(ChangesQuery(cursor, wait=10.0, limit=3))
        found += page.changes
        cursor = page.cursor
    return found


def test_every_change_comes_once_and_in_order(instance: Instance) -> None:
    client = instance.client()
    cursor = client.read_changes(ChangesQuery()).cursor
    made = client.submit({"executable": "/bin/sh", "arguments": ["-c", "exit %s"]}, values=[0, 3])
    found = read_until_final(client, cursor, 2)
    assert (found[0].kind, found[0].id, found[0].jobs, found[0].first) == (
        "submission",
        made.submission,
        2,
        made.first,
    )
    for job, code in ((made.first, 0), (made.last, 3)):
        states = [
            (change.state, change.epoch) for change in found if change.id == job and change.kind == "job"
        ]
        assert [state for state, _ in states] == ["Matched", "Running", "Done" if code == 0 else "Failed"]
        assert {epoch for _, epoch in states} == {1}
        assert [change.exit_code for change in found if change.id == job][-1] == code
    again = read_until_final(client, cursor, 2)
    assert [(change.id, change.state) for change in again] == [(change.id, change.state) for change in found]


def test_a_waiting_listener_is_told_at_once(instance: Instance) -> None:
    client = instance.client()
    cursor = client.read_changes(ChangesQuery()).cursor
    told: list[FeedChange] = []
    listener = threading.Thread(
        target=lambda: told.extend(client.read_changes(ChangesQuery(cursor, wait=60.0)).changes)
    )
    listener.start()
    made = client.submit({"executable": "/bin/true"})
    listener.join(timeout=PATIENCE)
    client.wait(made)
    assert not listener.is_alive()
    assert told[0].kind == "submission"


def test_a_cursor_outlives_a_restart(instance: Instance) -> None:
    client = instance.client()
    cursor = client.read_changes(ChangesQuery()).cursor
    made = client.submit({"executable": "/bin/true"})
    client.wait(made)
    instance.kill_server()
    instance.start()
    found = read_until_final(client, cursor, 1)
    assert [change.state for change in found if change.kind == "job"] == ["Matched", "Running", "Done"]


def test_a_server_that_ends_its_pilots_answers_its_listeners(instance: Instance) -> None:
    job = instance.client().submit({"executable": "sleep", "arguments": ["600"]}).first
    instance.reaches(job, "Running")
    trouble: list[PilotageError] = []
    with Client(instance.client().url, (instance.home / "token").read_text().strip(), patience=0) as client:

        def listen() -> None:
            try:
                for _ in client.changes():
                    pass
            except PilotageError as error:
                trouble.append(error)

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        assert instance.cli("down", "--cancel-pilots").returncode == 0
        listener.join(PATIENCE)
    assert [type(error) for error in trouble] == [Unreachable], trouble
    assert instance.process is not None
    assert instance.process.wait(PATIENCE) == 0
    assert "Exception in ASGI" not in instance.log()
    instance.start()


def test_nobody_sees_the_jobs_of_others(instance: Instance) -> None:
    mine, alices = instance.client(), instance.client("alice")
    cursor, theirs = (one.read_changes(ChangesQuery()).cursor for one in (mine, alices))
    made = mine.submit({"executable": "/bin/true"})
    mine.wait(made)
    assert alices.read_changes(ChangesQuery(theirs)).changes == []
    assert alices.read_changes(ChangesQuery(theirs, submission=made.submission)).changes == []
    assert read_until_final(mine, cursor, 1)


@pytest.mark.parametrize("cursor", ["x", "1.2.3", "1.0.5.1.0.0.99999999999999", "-1.0.5.1.0.0.0", "0" * 200])
def test_no_cursor(instance: Instance, cursor: str) -> None:
    with pytest.raises(InvalidInput):
        instance.client().read_changes(ChangesQuery(cursor))


def test_a_cursor_of_last_year_says_where_to_start(instance: Instance) -> None:
    client = instance.client()
    parts = client.read_changes(ChangesQuery()).cursor.split(".")
    with pytest.raises(CursorExpired, match="start again without a cursor"):
        client.read_changes(ChangesQuery(".".join([*parts[:-1], "1000000000"])))
    with pytest.raises(CursorExpired, match="before the database was restored"):
        client.read_changes(ChangesQuery(".".join(["77", *parts[1:]])))
