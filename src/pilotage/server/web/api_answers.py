"""The answers of API calls for pages: the same functions, rights and limits as for a client, without HTTP."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import msgspec
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from pilotage.core.errors import InvalidInput
from pilotage.server.context import Context, identity_of
from pilotage.server.http.callers import TheCaller
from pilotage.server.http.decoding import constrained_type
from pilotage.server.http.identity import check_sender
from pilotage.server.http.routes import routers
from pilotage.wire.call import ApiCall, NoRequest

Answer = TypeVar("Answer")


_LIMIT = re.compile(r"Expected `\w+`( of length)? ([<>]=) (\S+)(?: - at `\$\.?([\w.]*)`)?")


class ApiAnswers:
    """Makes calls of the API of one server."""

    def __init__(self, context: Context) -> None:
        self._context = context
        routes = [route for router in routers() for route in router.routes if isinstance(route, APIRoute)]
        self._handlers = {f"{' '.join(route.methods or ())} {route.path}": route.endpoint for route in routes}

    async def respond(
        self, visit: Request, call: ApiCall[Any, Any], asked: object = None, **parts: object
    ) -> Any:
        """The answer of the function behind a call. `asked`: the request, or the bytes of its body.

        `parts`: of the address. `visit`: the request of the browser, which says who asks.
        """
        check_sender(call.access, visit.scope)
        handler = self._handlers[call.key]
        given: dict[str, Any] = {
            **parts,
            "context": self._context,
            "response": Response(),
        }
        arguments = {}
        hints = _hints_of(handler)
        for name in inspect.signature(handler).parameters:
            if name in parts:
                arguments[name] = _checked(parts[name], hints[name], name)
            elif hints[name] is Request:
                arguments[name] = _with_body(visit, asked)
            elif hints[name] == TheCaller:  # calls for anybody have none
                arguments[name] = identity_of(visit.scope)
            elif name in given:
                arguments[name] = given[name]
            else:
                arguments[name] = _checked(asked, call.request)
        if inspect.iscoroutinefunction(handler):
            return await handler(**arguments)
        return await asyncio.to_thread(handler, **arguments)

    async def ask(
        self, visit: Request, call: ApiCall[Any, Answer], asked: object = None, **parts: object
    ) -> Answer:
        """The answer of a call, with its type."""
        answer = await self.respond(visit, call, asked, **parts)
        if not isinstance(answer, Response):
            return answer  # type: ignore[no-any-return]
        if call.answer is bytes:
            return answer.body  # type: ignore[return-value]
        return msgspec.json.decode(answer.body, type=call.answer)


def _with_body(visit: Request, body: object) -> Request:
    """The request of a browser with these bytes as its body, for calls that read it by themselves."""
    assert isinstance(body, bytes)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(visit.scope, receive)


def _hints_of(handler: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(handler, include_extras=True)


def _checked(value: object, hint: Any, name: str = "") -> Any:
    """The value, if it keeps the limits of its type. Raises InvalidInput. `name`: of a part of the address."""
    if hint is NoRequest:
        raise TypeError("the call takes no request")
    try:
        return msgspec.convert(value, constrained_type(hint), from_attributes=True)
    except msgspec.ValidationError as error:
        raise InvalidInput(_plain_words(str(error), name)) from error


def _plain_words(text: str, name: str) -> str:
    """The finding of msgspec about a value, in words for people."""
    limit = _LIMIT.fullmatch(text)
    if limit is None:
        return text
    length, bound, number, field = limit.groups()
    words = f"must {'have' if length else 'be'} at {'least' if bound == '>=' else 'most'} {number}"
    unit = "" if not length else " character" if number == "1" else " characters"
    return f"{field or name or 'a value of the address'} {words}{unit}"
