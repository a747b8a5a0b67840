"""HTTP messages: checks that a request is unambiguous, and the bytes of a short answer."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

import httptools

from pilotage.core.errors import InvalidInput, PilotageError

UNIQUE_FIELDS = frozenset({b"host", b"authorization", b"content-length", b"transfer-encoding", b"expect"})
"""Header fields that may appear once only: with two of them, readers could disagree which one counts."""
_VERSIONS = ("1.1", "1.0")

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def check_framing(version: str, fields: dict[bytes, bytes]) -> None:
    """Raise `InvalidInput` if the meaning of the request or the end of its body is ambiguous."""
    if version not in _VERSIONS:
        raise InvalidInput(f"HTTP/{version} is not supported")
    if b"host" not in fields and version == "1.1":
        raise InvalidInput("the header of the request has no Host")
    encoding = fields.get(b"transfer-encoding")
    if encoding is not None and (version != "1.1" or encoding.lower() != b"chunked"):
        raise InvalidInput("the only supported transfer encoding is chunked, with HTTP/1.1")


def answer_bytes(
    status: int, payload: bytes, fields: Iterable[tuple[bytes, bytes]], retry_after: int, *, close: bool
) -> bytes:
    """An answer in JSON. `retry_after`: seconds, 0 for none. `close`: the connection closes after the answer."""
    headers = b"".join([b"%s: %s\r\n" % field for field in fields])
    if retry_after:
        headers += b"retry-after: %d\r\n" % retry_after
    if close:
        headers += b"connection: close\r\n"
    return b"%scontent-type: application/json\r\n%scontent-length: %d\r\n\r\n%s" % (
        _STATUS_LINES[status],
        headers,
        len(payload),
        payload,
    )


def parser_cause(error: httptools.HttpParserError) -> PilotageError:
    """The error that a callback of ours raised; if none did, an error that the data is not HTTP."""
    cause = error.__context__
    return (
        cause
        if isinstance(cause, PilotageError)
        else InvalidInput("this is not an HTTP request that the server can read")
    )
