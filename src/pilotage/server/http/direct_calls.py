"""Calls that many clients repeat, answered without FastAPI, which takes ten times as long as their own work.

Each of them is a route of FastAPI too. Requests that are not plainly right go there, so that errors have one source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import fields
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response

from pilotage.server import errors
from pilotage.server.context import Context, identity_of
from pilotage.server.http.change_listener import listen
from pilotage.server.http.decoding import with_limits
from pilotage.server.http.identity import Scope, check_sender
from pilotage.server.http.patient_answers import patient_answer
from pilotage.server.tokens import Caller
from pilotage.wire.call import ApiCall
from pilotage.wire.changes import READ_CHANGES

_NUMBER = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,9})?")
"""Numbers that every decoder reads alike."""


class _DirectCall(NamedTuple):
    call: ApiCall[Any, Any]
    answer: Callable[[Any, Context, Caller], Coroutine[Any, Any, Any]]


_CALLS = {(entry.call.method, entry.call.path): entry for entry in (_DirectCall(READ_CHANGES, listen),)}


async def direct_answer(context: Context, scope: Scope) -> Response | None:
    """The answer to a request; None: FastAPI has to answer it."""
    direct = _CALLS.get((scope["method"], scope["path"]))
    if direct is None:
        return None
    request = read_query(direct.call.request, scope["query_string"])
    if request is None:
        return None
    try:
        check_sender(direct.call.access, scope)
        caller = identity_of(scope)
        assert isinstance(caller, Caller)
        return await patient_answer(direct.answer(request, context, caller))
    except Exception as error:
        return errors.response_for(error)


def read_query(kind: type[Any], query: bytes) -> Any | None:
    """The request that a query describes; None if there is any doubt."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query))
        given = dict(pairs)
        request = msgspec.convert(given, with_limits(kind), strict=False)
    except (ValueError, msgspec.ValidationError):
        return None
    names = {field.name for field in fields(kind)}
    if len(given) < len(pairs) or not given.keys() <= names:
        return None
    return request if all(_is_plain(text, getattr(request, name)) for name, text in given.items()) else None


def _is_plain(text: str, value: object) -> bool:
    """Whether the text of a query stands for this value and no other."""
    if isinstance(value, str):
        return value == text and bool(text.strip()) and "\0" not in text
    if isinstance(value, float):
        return _NUMBER.fullmatch(text) is not None
    return str(value) == text and text.isdigit()
