"""Errors as HTTP answers. Only this module maps errors to status codes."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pilotage.core import errors
from pilotage.wire.pilot import ErrorBody

log = logging.getLogger(__name__)

STATUS: dict[type[errors.PilotageError], int] = {
    errors.HeaderTooLarge: 431,
    errors.TooLarge: 413,
    errors.TooSlow: 408,
    errors.IncompatibleVersion: 426,
    errors.InvalidInput: 400,
    errors.NotAuthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.DiskFull: 507,
    errors.Overloaded: 429,
    errors.Unreachable: 503,
    errors.PilotageError: 500,
}


DECLARED: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "model": ErrorBody,
        "description": "The request is wrong or not allowed, or must be repeated later (429).",
    },
    "5XX": {
        "model": ErrorBody,
        "description": "A system behind the server does not answer (503), or the server has failed.",
    },
}
"""The errors of every address, for the OpenAPI document."""


def answer(error: BaseException) -> tuple[int, ErrorBody]:
    """Status and body for any error. An unexpected one is logged, and answered without its details."""
    if isinstance(error, errors.PilotageError):
        status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
        retry_after = error.retry_after if isinstance(error, errors.Overloaded) else 0.0
        message = error.message
        if isinstance(error, errors.InvalidInput) and error.line is not None:
            place = f"line {error.line}" + (f", column {error.column}" if error.column is not None else "")
            message = f"{place}: {message}"
        return status, ErrorBody(error.code, message, error.hint, retry_after)
    log.error("unexpected error", exc_info=error)
    return 500, ErrorBody("error", "the server met an error of its own", "its log has the details")


def response_for(error: BaseException) -> Response:
    status, body = answer(error)
    headers = {"Retry-After": str(max(1, round(body.retry_after)))} if body.retry_after else {}
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def install(app: FastAPI) -> None:
    """Install handlers in `app` that answer every error with an `ErrorBody`."""

    async def known(_request: Request, error: Exception) -> Response:
        return response_for(error)

    async def invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return response_for(errors.InvalidInput(f"{where}: {first['msg']}"))

    async def http(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
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
