"""HTTP messages: which requests can be read in one way only, and the bytes of a short answer."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

import httptools

from pilotage.core.errors import InvalidInput, PilotageError

ONCE = frozenset({b"host", b"authorization", b"content-length", b"transfer-encoding", b"expect"})
"""Fields whose repetition would leave open which one counts."""
_VERSIONS = ("1.1", "1.0")

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def check_framing(version: str, once: dict[bytes, bytes]) -> None:
    """Raise `InvalidInput` where it is in doubt what the request is, or where its body ends."""
    if version not in _VERSIONS:
        raise InvalidInput(f"HTTP/{version} is not spoken here")
    if b"host" not in once and version == "1.1":
        raise InvalidInput("the header of the request has no Host")
    encoding = once.get(b"transfer-encoding")
    if encoding is not None and (version != "1.1" or encoding.lower() != b"chunked"):
        raise InvalidInput("the only transfer encoding taken here is chunked, with HTTP/1.1")


def answer_bytes(
    status: int, payload: bytes, fields: Iterable[tuple[bytes, bytes]], retry_after: int, *, last: bool
) -> bytes:
    """An answer in JSON. `retry_after`: seconds, 0 for none. `last`: the connection ends with it."""
    headers = b"".join([b"%s: %s\r\n" % field for field in fields])
    if retry_after:
        headers += b"retry-after: %d\r\n" % retry_after
    if last:
        headers += b"connection: close\r\n"
    return b"%scontent-type: application/json\r\n%scontent-length: %d\r\n\r\n%s" % (
        _STATUS_LINES[status],
        headers,
        len(payload),
        payload,
    )


def reason(error: httptools.HttpParserError) -> PilotageError:
    """What a callback of ours has raised, else that it is no HTTP."""
    cause = error.__context__
    return (
        cause
        if isinstance(cause, PilotageError)
        else InvalidInput("this is no HTTP request that is taken here")
    )
