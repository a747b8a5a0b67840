"""The executor against a server that answers as the test wants: requests for many calls, feeds that expire."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pilotage import Executor
from pilotage.client import Client
from pilotage.client.executor.calls import PendingCall
from pilotage.client.executor.courier import Courier
from pilotage.client.executor.node_program import HEADER, RETURNED
from pilotage.client.executor.outcomes import CallLost
from tests.deadlines import PATIENCE
from tests.unit.client.fake_server import State


def page(cursor: str, *jobs: int, state: str = "Done") -> dict[str, Any]:
    changes = [{"kind": "job", "id": job, "state": state, "at": 1.0, "submission": 1} for job in jobs]
    return {"changes": changes, "cursor": cursor}


def results(*values: object) -> dict[str, bytes]:
    bodies = map(pickle.dumps, values)
    return {"results": b"".join(HEADER.pack(RETURNED, 0.01, len(body)) + body for body in bodies)}


def test_many_calls_are_few_requests(client: Client, state: State) -> None:
    jobs = range(1, 51)
    state.outputs = {job: results(*range(100)) for job in jobs}
    state.changes = [page("1"), page("2", *jobs)]
    with Executor(client=client, chunk=100) as executor:
        assert list(executor.map(abs, range(5000))) == list(range(100)) * 50
    assert len(state.submissions) == 1
    assert len(state.requests) <= 8  # who it is, a cursor, uploads, the submission, the changes, the results


def test_calls_submitted_one_by_one_share_the_pickle_of_their_function(
    client: Client, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a thousand calls of a function with ten megabytes of tables would take ten gigabytes."""
    table = bytes(1000)
    seen: list[PendingCall] = []
    monkeypatch.setattr(Courier, "add", lambda courier, calls: seen.extend(calls))
    executor = Executor(client=client)
    for number in range(3):
        executor.submit(lambda place: table[place], number)
    executor.submit(abs, 1)
    assert len({id(call.function) for call in seen}) == 2
    executor.shutdown()


def test_a_feed_that_has_expired_is_replaced_by_one_list(client: Client, state: State) -> None:
    state.outputs = {1: results(1), 2: results(2)}
    state.changes = [page("1"), (409, {"code": "cursor-expired", "message": "too old"}), page("9")]
    with Executor(client=client, chunk=1) as executor:
        assert list(executor.map(abs, [1, 2])) == [1, 2]
    assert len([path for path in state.paths("GET") if path.startswith("/v1/jobs")]) == 1


def test_the_state_of_its_job_is_that_of_a_call(client: Client, state: State) -> None:
    state.outputs = {1: results(5)}
    state.changes = [page("1"), page("2", 1, state="Running"), page("3", 7, 8), page("4", 1)]
    with Executor(client=client) as executor:
        future = executor.submit(abs, 5)
        assert future.result(PATIENCE) == 5
    assert future.job == 1
    assert future.started
    assert not future.running()
    assert future.why() == "it has ended"


def test_an_error_that_no_wait_heals_ends_the_calls(client: Client, state: State) -> None:
    state.changes = [page("1"), (403, {"code": "forbidden", "message": "no longer"})]
    with Executor(client=client) as executor:
        future = executor.submit(abs, 5)
        assert "no longer" in str(future.exception(PATIENCE))
        assert "no longer" in str(executor.submit(abs, 6).exception(PATIENCE))
    with pytest.raises(RuntimeError):
        executor.submit(abs, 5)


def test_a_result_that_cannot_be_written_here_is_told(client: Client, state: State) -> None:
    state.outputs, state.lost = {1: results(5)}, {1: ["results"]}
    state.changes = [page("1"), page("2", 1)]
    with Executor(client=client) as executor:
        error = executor.submit(abs, 5).exception(PATIENCE)
    assert isinstance(error, CallLost)
    assert "job 1 is Done; the server could not read it" in str(error)
