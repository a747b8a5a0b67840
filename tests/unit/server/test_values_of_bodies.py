"""The edge of the API refuses what would hold the event loop, and finds numbers that no column takes."""

from __future__ import annotations

import json
import random

import pytest

from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.server.http.json_bodies import check_values, decode_json, is_doubtful
from pilotage.wire.limits import MAX_INT64, MAX_VALUES


@pytest.mark.parametrize(
    "body",
    [
        {"ids": list(range(MAX_VALUES + 2))},
        {"a": {f"k{n}": 1 for n in range(MAX_VALUES // 2 + 2)}},
        {"a": [[1, 2, 3]] * (MAX_VALUES // 3 + 2)},
        [1] * (MAX_VALUES + 2),
    ],
)
def test_a_body_of_very_many_values_is_refused(body: object) -> None:
    with pytest.raises(TooLarge, match="values"):
        decode_json(json.dumps(body).encode())


def test_values_up_to_the_bound_and_long_texts_are_taken() -> None:
    for body in ({"ids": list(range(MAX_VALUES - 2))}, {"yaml": "a, b: c, " * 300_000, "key": "x"}):
        check_values(json.dumps(body).encode())
    with pytest.raises(TooLarge):
        check_values(json.dumps({"description": {"a": "b, " * MAX_VALUES}}).encode())


NUMBERS = [
    *(MAX_INT64 + step for step in range(-20, 20)),
    *(digit * 10**18 for digit in range(1, 10)),
    *(10**18 + 1, 10**19 - 1, 10**19, 10**30, 2**64),
    *(random.Random(1).randrange(10**18, 10**19) for _ in range(3000)),
]


def test_a_number_is_doubtful_exactly_if_no_column_takes_it() -> None:
    for number in NUMBERS:
        assert is_doubtful(b'{"a":[1,%d]}' % number) == (number > MAX_INT64), number


def test_a_large_body_with_such_a_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="64 bits"):
        decode_json(json.dumps({"a": [MAX_INT64] * 10_000 + [MAX_INT64 + 1]}).encode())
    assert decode_json(json.dumps({"a": -MAX_INT64 - 1}).encode()) == {"a": -MAX_INT64 - 1}
