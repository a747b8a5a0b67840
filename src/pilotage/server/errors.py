"""Errors as HTTP answers. Only this module maps errors to status codes."""

from __future__ import annotations

import logging

import msgspec
from starlette.responses import Response

from pilotage.core import errors
from pilotage.store.engine.damage import damage_of
from pilotage.wire.pilot import ErrorBody

log = logging.getLogger(__name__)

STATUS: dict[type[errors.PilotageError], int] = {
    errors.HeaderTooLarge: 431,
    errors.TooLarge: 413,
    errors.TooSlow: 408,
    errors.IncompatibleVersion: 426,
    errors.DatabaseDamaged: 500,
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


def error_answer(error: BaseException) -> tuple[bytes, int, int]:
    """The answer for any error: body, status, and the seconds of Retry-After (0: none).

    An unexpected error is logged, and answered without its details.
    """
    status, body = _status_and_body(error)
    return msgspec.json.encode(body), status, max(1, round(body.retry_after)) if body.retry_after else 0


def _status_and_body(error: BaseException) -> tuple[int, ErrorBody]:
    if (damage := damage_of(error)) is not None:
        log.error("the database is damaged", exc_info=error)
        error = damage
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
    payload, status, retry_after = error_answer(error)
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return Response(payload, status, headers, "application/json")
