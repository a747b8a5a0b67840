"""Files at S3 places are compared with the service before they are registered, and only for pilots that are known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from pilotage.core.errors import Overloaded
from pilotage.core.policy import parse
from pilotage.outside.storage.operations import StoredObject
from pilotage.server.context import Context
from pilotage.server.http import stored_objects
from pilotage.server.http.pilot_endpoints import ENDPOINTS
from pilotage.server.http.stored_objects import check_objects, has_objects
from pilotage.wire.data import StoredFile
from pilotage.wire.pilot import ExchangeRequest, Finish
from pilotage.wire.pilot_calls import EXCHANGE

POLICY = parse(
    """
[groups.users]
[users.ada]
groups = ["users"]
[storage.results]
type = "s3"
[storage.results.s3]
endpoint = "https://s3.example.org"
bucket = "data"
"""
)
PREFIX = "s3://s3.example.org/data/r-1/x"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_objects, "PAUSES", (0.0, 0.0))


def written(name: str = "1/2-1/a", **fields: Any) -> StoredFile:
    facts: dict[str, Any] = {
        "place": "results",
        "prefix": PREFIX,
        "size": 5,
        "checksum": "adler32:1",
        "etag": "e",
    } | fields
    return StoredFile(name, "*", **facts)


def context_with(there: Callable[[str], StoredObject], asked: list[str]) -> Context:
    def look_at(policy: object, place: str, urls: Sequence[str], now: float) -> list[StoredObject]:
        assert place == "results"
        asked.extend(urls)
        return [there(url) for url in urls]

    async def quick_read(query: object) -> None:
        return None

    return cast(
        Context,
        SimpleNamespace(
            pool=SimpleNamespace(policy=POLICY, pilots=SimpleNamespace(rows={})),
            work=SimpleNamespace(storage=SimpleNamespace(look_at=look_at), telemetry=None),
            pilots=SimpleNamespace(exchange=None),
            clock=lambda: 0.0,
            quick_read=quick_read,
        ),
    )


def checked(finish: Finish, there: StoredObject) -> list[str]:
    asked: list[str] = []
    asyncio.run(
        check_objects(context_with(lambda url: there, asked), [ExchangeRequest(1, finishes=[finish])])
    )
    return asked


def test_a_file_that_is_there_as_it_was_written_changes_nothing() -> None:
    finish = Finish(2, 1, exit_code=0, files=[written(), written("1/2-1/b")], logs=written("1/2-1/logs"))
    before = msgspec.json.encode(finish)
    assert checked(finish, StoredObject(5, "e")) == [f"{PREFIX}/1/2-1/{name}" for name in ("a", "b", "logs")]
    assert msgspec.json.encode(finish) == before


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (StoredObject(4, "e"), "the service has 4 bytes; the pilot has written 5"),
        (StoredObject(5, "other"), "the service has other contents than the pilot has written"),
        (StoredObject(problem="it does not answer"), "it does not answer"),
    ],
)
def test_another_file_makes_it_a_failure_that_is_tried_again(there: StoredObject, reason: str) -> None:
    finish = Finish(2, 1, exit_code=0, files=[written()])
    checked(finish, there)
    assert (finish.failure, finish.message, finish.files) == ("output", f"1/2-1/a at results: {reason}", [])


REFUSALS = [
    StoredObject(problem=f"answers {status}", is_unknown=status > 404) for status in (403, 404, 429, 503)
]


def answers(*told: StoredObject) -> Callable[[str], StoredObject]:
    left = list(told)
    return lambda url: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_one_refusal_throws_no_finish_away(refusal: StoredObject) -> None:
    finish = Finish(2, 1, exit_code=0, files=[written()])
    message, asked = ExchangeRequest(1, finishes=[finish]), list[str]()
    context = context_with(answers(refusal, StoredObject(5, "e")), asked)
    asyncio.run(check_objects(context, [message]))
    assert (len(asked), message.finishes, finish.failure, len(finish.files)) == (2, [finish], "", 1)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_service_that_does_not_answer_lets_the_finish_wait_and_one_without_the_file_ends_it(
    refusal: StoredObject,
) -> None:
    waiting, other = Finish(2, 1, files=[written()]), Finish(3, 1, exit_code=0)
    messages = [ExchangeRequest(1, finishes=[waiting, other]), ExchangeRequest(1)]
    context = context_with(answers(refusal), [])
    asyncio.run(check_objects(context, messages))
    if refusal.is_unknown:
        assert (messages[0].finishes, waiting.failure, len(waiting.files)) == ([other], "", 1)
        messages = [ExchangeRequest(1, finishes=[waiting], leaving="idle")]
        with pytest.raises(Overloaded):
            asyncio.run(check_objects(context, messages))
        assert messages[0].finishes == [waiting]
    else:
        assert (messages[0].finishes, waiting.failure) == ([waiting, other], "output")


def test_logs_that_are_not_there_leave_the_result() -> None:
    finish = Finish(2, 1, exit_code=3, logs=written("1/2-1/logs"))
    checked(finish, StoredObject(problem="gone"))
    assert (finish.logs, finish.failure, finish.exit_code) == (None, "", 3)
    assert finish.message == "its logs were not stored: 1/2-1/logs at results: gone"


def test_a_place_that_the_policy_does_not_have_is_not_asked() -> None:
    finish = Finish(2, 1, exit_code=0, files=[written(prefix="s3://elsewhere/data/x")])
    assert checked(finish, StoredObject(5, "e")) == []
    assert "is in no table" in finish.message


def test_files_in_folders_are_not_looked_at() -> None:
    assert not has_objects([Finish(2, 1), Finish(3, 1, files=[written(prefix="/data/x")])])
    assert has_objects([Finish(2, 1), Finish(3, 1, logs=written())])


def test_nobody_is_asked_for_a_pilot_that_is_not_known() -> None:
    asked: list[str] = []
    context = context_with(lambda url: StoredObject(5, "e"), asked)
    body = msgspec.json.encode(ExchangeRequest(1, finishes=[Finish(2, 1, files=[written()])]))
    call = ENDPOINTS[EXCHANGE.path].decode(context, "no token of ours", body)
    assert call.is_long
    assert call.prepare is not None
    asyncio.run(cast(Any, call.prepare()))
    assert asked == []
