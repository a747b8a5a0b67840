"""Pages and lists as JSON, piece by piece."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from pilotage.server.http.pages import page, streamed_list
from pilotage.wire.limits import MAX_PAGE_BYTES


def read(count: int, size: int, taken: list[int]) -> Iterator[tuple[int, object]]:
    for number in range(1, count + 1):
        taken.append(number)
        yield number, {"text": "x" * size}


@pytest.mark.parametrize(
    ("count", "size", "limit", "rows", "following"),
    [
        (0, 1, 10, 0, None),
        (9, 1, 10, 9, None),
        (10, 1, 10, 10, 10),
        (10, MAX_PAGE_BYTES // 4, 10, 3, 3),
        (10, MAX_PAGE_BYTES * 2, 10, 1, 1),
    ],
)
def test_a_page_ends_at_its_bytes_or_its_rows(
    count: int, size: int, limit: int, rows: int, following: int | None
) -> None:
    taken: list[int] = []
    answer = json.loads(page("jobs", read(count, size, taken), limit).body)  # type: ignore[arg-type]
    assert (len(answer["jobs"]), answer["next"]) == (rows, following)
    assert len(taken) <= rows + 1, "no more is read than is told"


@pytest.mark.parametrize("portions", [[], [[]], [[1, 2], [], [3]], [[], [{"a": "é"}]]])
def test_a_list_is_streamed_portion_by_portion(portions: list[list[Any]]) -> None:
    async def body() -> bytes:
        answer: Any = streamed_list(portions)
        return b"".join([part async for part in answer.body_iterator])

    assert json.loads(asyncio.run(body())) == [row for portion in portions for row in portion]
