"""Decode the server's answers into dataclasses of pilotage.wire and errors of core/errors.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from pilotage import wire
from pilotage.core import errors

if TYPE_CHECKING:
    from pilotage.client.connections import HttpAnswer
    from pilotage.wire.pilot import ErrorBody

T = TypeVar("T")


def _tree(kind: type[errors.PilotageError]) -> Iterator[type[errors.PilotageError]]:
    """A class of errors and all below it."""
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


BY_CODE: dict[str, type[errors.PilotageError]] = {
    kind.code: kind for kind in _tree(errors.PilotageError) if "code" in vars(kind)
}

BY_STATUS: dict[int, type[errors.PilotageError]] = {
    400: errors.InvalidInput,
    401: errors.NotAuthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    408: errors.TooSlow,
    409: errors.Conflict,
    413: errors.TooLarge,
    422: errors.InvalidInput,
    429: errors.Overloaded,
    431: errors.HeaderTooLarge,
    502: errors.Unreachable,
    503: errors.Overloaded,
    504: errors.Unreachable,
    507: errors.DiskFull,
}
"""For answers without an ErrorBody: of a proxy between, or of something that is no Pilotage server at all."""


def decode(content: bytes, kind: type[T]) -> T:
    """The JSON of one answer as `kind`; fields that this version does not know are left out.

    An answer of another shape raises PilotageError: it is no server of ours, or of another version.
    """
    import msgspec

    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as trouble:
        raise errors.PilotageError(
            f"the server's answer is not understood: {trouble}",
            hint="is this the address of a Pilotage server, and of about this version?",
        ) from trouble


def error_of(answer: HttpAnswer) -> errors.PilotageError:
    """The error that an answer which is not 2xx stands for."""
    body = _error_body(answer.content)
    if body is None:
        kind = BY_STATUS.get(answer.status, errors.PilotageError)
        body = wire.pilot.ErrorBody(kind.code, f"the server answered {answer.status} {answer.reason}")
    else:
        kind = BY_CODE.get(body.code) or BY_STATUS.get(answer.status, errors.PilotageError)
    if issubclass(kind, errors.Overloaded):
        return kind(body.message, hint=body.hint, retry_after=_retry_after(answer, body))
    error = kind(body.message, hint=body.hint)
    error.code = body.code
    return error


def _error_body(content: bytes) -> ErrorBody | None:
    import msgspec

    try:
        return msgspec.json.decode(content, type=wire.pilot.ErrorBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _retry_after(answer: HttpAnswer, body: ErrorBody) -> float:
    header = answer.headers.get("retry-after", "")
    seconds = float(header) if header.isdigit() else 0.0  # the form with a date is not sent by ours
    return max(seconds, body.retry_after, 0.1)
