"""The gate of submissions: few at a time, and never two large writes in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pilotage.core.errors import Overloaded
from pilotage.server.submission_gate import MAX_CONCURRENT, SubmissionGate
from pilotage.services.submission.job_creation import new_pace


class Slow:
    """A writer that carries out what it was asked together, as one transaction."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[Any], Any], asyncio.Future[Any]]] = []
        self.groups: list[int] = []

    async def acall(self, request: Callable[[Any], Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((request, future))
        if len(self.waiting) == 1:
            asyncio.get_running_loop().call_later(0, self._carry_out)
        return await future

    def _carry_out(self) -> None:
        group, self.waiting = self.waiting, []
        self.groups.append(len(group))
        for request, future in group:
            future.set_result(request(None))


def test_the_ninth_submission_is_told_to_come_again() -> None:
    bulk = SubmissionGate(Slow(), new_pace())  # type: ignore[arg-type]
    places = [bulk.place() for _ in range(MAX_CONCURRENT)]
    for place in places:
        place.__enter__()
    with pytest.raises(Overloaded) as caught, bulk.place():
        pass
    assert caught.value.retry_after < 1
    places[3].__exit__(None, None, None)
    with pytest.raises(RuntimeError), bulk.place():
        raise RuntimeError
    with bulk.place():
        pass


def test_large_writes_are_never_in_one_transaction_and_take_turns() -> None:
    writer, order = Slow(), list[str]()
    bulk = SubmissionGate(writer, new_pace())  # type: ignore[arg-type]

    async def submission(name: str) -> None:
        for _ in range(3):
            await bulk.write(lambda _: order.append(name))

    async def all_of_them() -> None:
        await asyncio.gather(*map(submission, "abc"))

    asyncio.run(all_of_them())
    assert writer.groups == [1] * 9
    assert order == ["a", "b", "c"] * 3
