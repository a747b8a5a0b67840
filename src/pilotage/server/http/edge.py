"""The edge of the API: checks that apply to every request before its route runs.

All routes for people's programs are `CheckedRoute`s. Their bodies are decoded here, once: standard JSON, texts that
can be encoded, and numbers that fit a column. So no value that the database cannot store reaches it.
The limits of single fields are declared with them (wire/limits.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from pilotage.core.errors import InvalidInput
from pilotage.wire.limits import MAX_INT64


def binary_response(media_type: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI declaration of a binary answer; for routes with `response_class=Response`."""
    return {200: {"content": {media_type: {"schema": {"type": "string", "format": "binary"}}}}}


BINARY = binary_response("application/octet-stream")

_decode = msgspec.json.Decoder().decode
_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
"""2^63 has 19 digits: a body without 19 consecutive digits has no number that is too large."""


def decode_json(body: bytes) -> Any:
    """Decode a JSON body. Raises InvalidInput that names the field."""
    try:
        value = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _explain_error(body, error) from None
    if b"\\u0000" in body or _LONG_NUMBER in body.translate(_DIGITS_AS_ZERO):
        for path, item in _leaves(value):
            _check_value(path, item)
    return value


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
    """The error for an invalid body. The standard library's decoder is more lenient, so the field can be named."""

    def constant(name: str) -> NoReturn:
        raise InvalidInput(f"the body is not JSON: {name} is not a number")

    try:
        value = json.loads(body, parse_constant=constant)
        for path, item in _leaves(value):
            _check_value(path, item)
    except InvalidInput as invalid:
        return invalid
    except RecursionError:
        return InvalidInput("the body is nested too deeply")
    except ValueError:
        pass
    return InvalidInput(f"the body is not valid JSON: {error}")


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every scalar in a JSON value, and of every member name."""
    stack: list[tuple[str, Any]] = [("body", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict):
            for name, member in item.items():
                # The path is part of error messages, which could not be encoded with the original name.
                plain = name.encode("ascii", "backslashreplace").decode()[:80]
                yield f"{path}, a name", name
                stack.append((f"{path}.{plain}", member))
        elif isinstance(item, list):
            stack.extend((f"{path}.{number}", member) for number, member in enumerate(item))
        else:
            yield path, item


class CheckedRequest(Request):
    """A request whose JSON is decoded by `decode_json`."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = decode_json(await self.body())
        return self._json


class CheckedRoute(APIRoute):
    """A route that receives only requests that have passed the checks of this module."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        expects_json = self.body_field is not None

        async def handle_checked(request: Request) -> Response:
            if "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]:
                raise InvalidInput("the address contains a NUL character")
            request = CheckedRequest(request.scope, request.receive)
            if expects_json and await request.body():
                # Decode it here: FastAPI would replace the error by its own, without the reason.
                await request.json()
            return await handler(request)

        return handle_checked
