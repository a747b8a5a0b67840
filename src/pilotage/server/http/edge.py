"""The edge of the API: checks that apply to every request before its route runs.

All routes for people's programs are `CheckedRoute`s. Their bodies are decoded here, once: standard JSON, texts that
can be encoded, and numbers that fit a column. So no value that the database cannot store reaches it.
The limits of single fields are declared with them (wire/limits.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from pilotage.core.errors import InvalidInput
from pilotage.server.http.auditing import check_audit_rule
from pilotage.server.http.identity import check_sender
from pilotage.server.http.json_bodies import LARGE, check_leaves, decode_unchecked, is_doubtful
from pilotage.wire.call import all_calls


def binary_response(media_type: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI declaration of a binary answer; for routes with `response_class=Response`."""
    return {200: {"content": {media_type: {"schema": {"type": "string", "format": "binary"}}}}}


BINARY = binary_response("application/octet-stream")

_calls = cache(all_calls)


class CheckedRequest(Request):
    """A request whose JSON is decoded by `decode_json`."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body = await self.body()
            self._json = decode_unchecked(body)
            if is_doubtful(body):
                if len(body) > LARGE:
                    await asyncio.to_thread(check_leaves, self._json)
                else:
                    check_leaves(self._json)
        return self._json


def _refuse_empty_values(request: Request) -> None:
    """Each value of a query narrows the answer. An empty one, as of an unset variable, would widen it."""
    for name, value in request.query_params.multi_items():
        if not value.strip():
            raise InvalidInput(f"{name} is empty", hint="omit it, or give it a value", field=name)


class CheckedRoute(APIRoute):
    """A route that receives only requests that have passed the checks of this module.

    Its row in the table of calls says who may send them. They are checked before the body is read. A route without a
    row cannot be built.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        expects_json = self.body_field is not None
        key = f"{' '.join(self.methods or ())} {self.path}"
        call = _calls().get(key)
        if call is None:
            raise LookupError(f"{key} is not in the table of calls (wire/call.py)")
        check_audit_rule(call)

        async def handle_checked(request: Request) -> Response:
            if "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]:
                raise InvalidInput("the address contains a NUL character")
            if request.scope["query_string"]:
                _refuse_empty_values(request)
            check_sender(call.access, request.scope)
            request = CheckedRequest(request.scope, request.receive)
            if expects_json and await request.body():
                # Decode it here: FastAPI would replace the error by its own, without the reason.
                await request.json()
            return await handler(request)

        return handle_checked
