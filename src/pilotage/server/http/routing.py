"""The routes of FastAPI as one application, with their errors and their OpenAPI document."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pilotage import __version__
from pilotage.core import errors
from pilotage.server.context import Context
from pilotage.server.errors import response_for
from pilotage.server.http.routes import routers
from pilotage.wire.pilot import ErrorBody

DECLARED = {
    "4XX": "The request is wrong or not allowed, or must be repeated later (429).",
    "5XX": "A system behind the server does not answer (503), or the server has failed.",
}
"""The errors of every address, for the OpenAPI document: each answers with an `ErrorBody`."""


_WORDS = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"^[A-Z][a-z]* should "), "must "),
    (re.compile(r"greater than or equal to"), "at least"),
    (re.compile(r"less than or equal to"), "at most"),
    (re.compile(r"a valid integer.*"), "a whole number"),
    (re.compile(r"a valid number.*"), "a number"),
    (re.compile(r"^Field required$"), "is missing"),
    (re.compile(r"^(Extra inputs are|Unexpected keyword argument).*"), "is unknown"),
)
"""The library's words for a wrong value, and ours."""


def plain_words(message: str) -> str:
    """A validator's message in the words of our own ones."""
    for pattern, words in _WORDS:
        message = pattern.sub(words, message)
    return message


class Api(FastAPI):
    """All routes of one server."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, with the errors of every address."""
        if self.openapi_schema is None:
            document = super().openapi()
            schemas = document["components"]["schemas"]
            for of_fastapi in ("HTTPValidationError", "ValidationError"):
                schemas.pop(of_fastapi, None)
            schemas["ErrorBody"] = TypeAdapter(ErrorBody).json_schema()
            content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
            for methods in document["paths"].values():
                for operation in methods.values():
                    operation["responses"].pop("422", None)
                    for status, meaning in DECLARED.items():
                        operation["responses"][status] = {"description": meaning, "content": content}
        return self.openapi_schema or {}


def build_routes(context: Context) -> FastAPI:
    """All routes of one server."""
    api = Api(title="Pilotage", version=__version__, docs_url="/docs", redoc_url=None, redirect_slashes=False)
    api.state.context = context
    _install_errors(api)
    for router in routers():
        # `include_router` would build each route a second time, in the event loop, at the first request.
        api.router.routes.extend(router.routes)
    return api


def _install_errors(app: FastAPI) -> None:
    """Install handlers in `app` that answer every error with an `ErrorBody`."""

    async def known(_request: Request, error: Exception) -> Response:
        return response_for(error)

    async def invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        # A person knows the field, not the part of the message that carries it.
        where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        return response_for(errors.InvalidInput(f"{where}: {plain_words(first['msg'])}"))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, _, end = request.url.path.rpartition("/")
        if error.status_code == 404 and path and not end:
            # Relative, for proxies with a prefix: the library would name this host and no prefix.
            name, query = path.rpartition("/")[2], request.url.query
            return Response(status_code=307, headers={"Location": f"../{name}{'?' if query else ''}{query}"})
        code = {404: "not-found", 405: "invalid-input"}.get(error.status_code, "error")
        body = ErrorBody(code, str(error.detail))
        headers = dict(error.headers or {})  # Allow, of a method that an address does not take
        return Response(msgspec.json.encode(body), error.status_code, headers, media_type="application/json")

    async def gone(_request: Request, _error: Exception) -> Response:
        """Nobody reads this answer: the client has left in the middle of its request, or was cut off."""
        return response_for(errors.TooSlow("the request ended before its end"))

    app.add_exception_handler(errors.PilotageError, known)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, known)
