"""The executor against a server that answers as the test wants: requests for many calls, feeds that expire."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import pytest

from pilotage import Executor
from pilotage.client import Client, transport
from pilotage.client.executor import payload
from pilotage.client.executor.calls import PendingCall
from pilotage.client.executor.courier import Courier
from pilotage.client.executor.losses import CallLost
from pilotage.client.executor.node_program import HEADER, RETURNED
from pilotage.client.executor.outages import Outages
from pilotage.core.errors import InvalidInput, Overloaded, Unreachable
from tests.deadlines import PATIENCE
from tests.ports import free_port
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


class Counted:
    """Counts its living objects, also where they come from a pickle."""

    living: ClassVar[WeakSet[Counted]] = WeakSet()

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__dict__ |= state
        Counted.living.add(self)


def counted(number: int) -> Counted:
    one = Counted()
    one.number = number  # type: ignore[attr-defined]
    return one


def test_a_map_reads_one_result_at_a_time_and_keeps_none(client: Client, state: State) -> None:
    """Else the results of a large map would all be in memory, also those that the program has dropped."""
    state.outputs = {job: results(*map(counted, range(100))) for job in (1, 2, 3)}
    state.changes = [page("1"), page("2", 1, 2, 3)]
    with Executor(client=client, chunk=100) as executor:
        given = executor.map(abs, range(300))
    folders = set(Path(tempfile.gettempdir()).glob("pilotage-executor-*"))
    numbers = []
    for one in given:
        numbers.append(one.number)
        del one
        assert not Counted.living
    assert numbers == [*range(100)] * 3
    del given
    assert [folder for folder in folders if list(folder.glob("results/*"))] == []


def test_a_call_of_a_job_that_is_done_without_its_result_ended_its_process(
    client: Client, state: State
) -> None:
    state.outputs = {1: results(5)}
    state.changes = [page("1"), page("2", 1)]
    with Executor(client=client, chunk=3) as executor:
        futures = [executor.submit(abs, 5) for _ in range(3)]
        assert futures[0].result(PATIENCE) == 5
        errors = [str(future.exception(PATIENCE)) for future in futures[1:]]
    assert errors[0].startswith("the call ended its process without a result; job 1 is Done")
    assert errors[1] == "an earlier call of job 1 ended the process without a result"


@pytest.mark.parametrize("field", ["executable", "arguments", "input_sandbox", "output_sandbox"])
def test_a_field_that_the_executor_makes_is_refused(client: Client, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"the executor itself sets {field}"):
        Executor(client=client, description={field: []})


def test_an_outage_is_told_once_and_its_end(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    outages, failures = Outages(client), iter([Unreachable("no answer", hint="start it"), Overloaded("full")])

    def fail() -> int:
        for failure in failures:
            raise failure
        return 5

    assert outages.persist(fail) == 5
    assert capsys.readouterr().err == (
        "pilotage: no answer; trying again (start it). Ctrl-C ends the wait, and jobs that were sent go on.\n"
        "pilotage: the server answers again\n"
    )


def test_a_client_tells_an_outage_within_its_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(transport, "REPORT_OUTAGE_AFTER", 0.0)
    with Client(f"http://127.0.0.1:{free_port()}", "token", patience=0.5) as client:
        client.tell_outages(lambda error: told.append(str(error)))
        client.tell_outages(lambda error: told.append("the second"))
        with pytest.raises(Unreachable):
            client.whoami()
    assert len(told) == 1
    assert "does not answer" in told[0]


def test_an_error_while_calls_are_sent_ends_the_executor(
    client: Client, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ArithmeticError("of the disk")

    monkeypatch.setattr(payload, "write_payload", fail)
    with Executor(client=client, chunk=1) as executor:
        assert isinstance(executor.submit(abs, 5).exception(PATIENCE), ArithmeticError)
