"""Values that a body or a query may not have are refused in plain words."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from pilotage.server.http.routing import plain_words


def refuse(value: str) -> str:
    raise ValueError(f"{value!r} is not one of a, b")


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (Annotated[int, Field(ge=1)], 0, "must be at least 1"),
        (Annotated[int, Field(le=9)], 10, "must be at most 9"),
        (int, "x", "must be a whole number"),
        (float, "x", "must be a number"),
        (Annotated[str, Field(max_length=2)], "abc", "must have at most 2 characters"),
        (Annotated[str, AfterValidator(refuse)], "foo", "'foo' is not one of a, b"),
    ],
)
def test_the_librarys_words_are_ours(kind: Any, value: Any, told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(kind).validate_python(value)
    assert plain_words(refused.value.errors()[0]["msg"]) == told
