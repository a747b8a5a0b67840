"""JSON bodies, checked once: standard JSON, texts that can be encoded, and numbers that fit a column.

So no value that the database cannot store reaches it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.wire.limits import MAX_INT64, MAX_VALUES

_decode = msgspec.json.Decoder().decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
"""2^63 has 19 digits: a body without 19 consecutive digits has no number that is too large."""
_LARGEST = str(MAX_INT64).encode()
MOST_LONG_NUMBERS = 1000
"""Numbers of 19 digits that are compared with 2^63 one by one, before all values are checked in another thread."""
LARGE = 100_000
"""Bytes of a body whose values are checked in another thread."""


def check_values(body: bytes | bytearray) -> None:
    """Refuse a body with more than MAX_VALUES values: to decode and check them would hold the event loop."""
    if len(body) <= MAX_VALUES or _values(body) <= MAX_VALUES:
        return
    try:
        members = [bytes(member) for member in _members(body).values()]
    except msgspec.MsgspecError:
        members = [bytes(body)]
    if sum(_values(member) for member in members if not member.startswith(b'"')) > MAX_VALUES:
        raise TooLarge(
            f"the body has more than {MAX_VALUES:,} values",
            hint="send them in several requests; rows of parameters go in chunks",
        )


def _values(text: bytes | bytearray) -> int:
    """About how many values a text of JSON has; names of members count too."""
    return text.count(b",") + text.count(b":")


def decode_json(body: bytes) -> Any:
    """Decode a JSON body. Raises InvalidInput that names the field."""
    value = decode_unchecked(body)
    if is_doubtful(body):
        check_leaves(value)
    return value


def decode_unchecked(body: bytes) -> Any:
    """The values of a body, of which single ones may not be accepted: see `is_doubtful`."""
    check_values(body)
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _explain_error(body, error) from None


def is_doubtful(body: bytes) -> bool:
    """Whether a body may have a text with NUL, or a number with more than 64 bits."""
    if b"\\u0000" in body:
        return True
    zeros, place = body.translate(_DIGITS_AS_ZERO), -len(_LONG_NUMBER)
    for _ in range(MOST_LONG_NUMBERS):
        place = zeros.find(_LONG_NUMBER, place + len(_LONG_NUMBER))
        if place < 0:
            return False
        if body[place : place + 19] > _LARGEST or zeros[place + 19 : place + 20] == b"0":
            return True
    return True


def check_leaves(value: Any) -> None:
    """Raise InvalidInput for the first value that is not accepted."""
    for path, item in _leaves(value):
        _check_value(path, item)


def _check_value(path: str, item: object) -> None:
    if isinstance(item, int):
        if not -MAX_INT64 - 1 <= item <= MAX_INT64:
            raise InvalidInput(f"{path}: the number has more than 64 bits", field=path)
    elif isinstance(item, str) and "\0" in item:
        raise InvalidInput(f"{path}: the text contains a NUL character", field=path)
    elif isinstance(item, str):
        try:
            item.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                f"{path}: the text is not valid Unicode: half of a surrogate pair stands alone", field=path
            ) from None


def _explain_error(body: bytes, error: Exception) -> InvalidInput:
    """The error for an invalid body. The standard library's decoder is more lenient, so the field can be named.

    It is slow: of a large body no field is named.
    """

    def constant(name: str) -> NoReturn:
        raise InvalidInput(f"the body is not JSON: {name} is not a number")

    try:
        if len(body) <= LARGE:
            check_leaves(json.loads(body, parse_constant=constant))
    except InvalidInput as invalid:
        return invalid
    except RecursionError:
        return InvalidInput("the body is nested too deeply")
    except ValueError:
        pass
    return InvalidInput(f"the body is not valid JSON: {error}")


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every scalar in a JSON value, and of every member name."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        inside = f"{path}." if path else ""
        if isinstance(item, dict):
            for name, member in item.items():
                # The path is part of error messages, which could not be encoded with the original name.
                plain = name.encode("ascii", "backslashreplace").decode()[:80]
                yield f"{path or 'the body'}, a name", name
                stack.append((f"{inside}{plain}", member))
        elif isinstance(item, list):
            stack.extend((f"{inside}{number}", member) for number, member in enumerate(item))
        else:
            yield path or "the body", item
