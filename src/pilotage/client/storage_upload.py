"""Input files that go to the pool's S3 service, by addresses that the server signs. The client has no key.

An upload that was cut or refused begins again with a new address, since an address lives for some minutes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pilotage import wire
from pilotage.client.connections import ConnectionPool, HttpAnswer, HttpRequest, NoAnswer, NotConnected
from pilotage.client.inputs import read_chunks
from pilotage.core.errors import Conflict, InvalidInput, Overloaded, Unreachable

if TYPE_CHECKING:
    from pilotage.client.transport import Transport
    from pilotage.wire.uploads import SentInput, UploadedBytes

TIMEOUT = 60.0
"""Seconds without progress after which an upload begins again."""
_PASSING = frozenset(
    {"RequestTimeout", "BadDigest", "IncompleteBody", "InternalError", "SlowDown", "ServiceUnavailable"}
)
"""Codes of refusals after which the same upload may succeed."""
_FORBIDDEN = 2
"""Tries that may be forbidden: the first address may have expired on its way."""
_CODE = re.compile(rb"<Code>([A-Za-z]{1,80})</Code>")


class StorageUpload:
    """Sends files; thread-safe."""

    def __init__(self, transport: Transport) -> None:
        import ssl

        self._transport = transport
        self._pool = ConnectionPool(ssl.create_default_context())

    def close(self) -> None:
        self._pool.close()

    def send(self, path: Path, digest: str, size: int) -> None:
        """Store a file, and let the server compare it. Raises the reason, and OSError if it cannot be read."""
        with path.open("rb") as file:
            md5 = hashlib.file_digest(file, lambda: hashlib.new("md5", usedforsecurity=False)).digest()
        contents = wire.uploads.UploadedBytes(size, base64.b64encode(md5).decode())
        refused = 0

        def once() -> None:
            nonlocal refused
            try:
                self._record(digest, self._store(path, digest, contents))
            except _NotTaken as error:
                refused += error.is_forbidden
                if refused == _FORBIDDEN:
                    raise InvalidInput(error.message) from None
                raise

        try:
            self._transport.repeat(once)
        except _NotTaken as error:
            raise Unreachable(
                f"{path} cannot be sent: {error.message}",
                hint="large input files go there, so this machine needs a way to it; nothing was submitted",
            ) from error

    def _store(self, path: Path, digest: str, contents: UploadedBytes) -> SentInput:
        """Send the file once. Raises `_NotTaken` if another try may succeed."""
        signed = self._transport.call(wire.uploads.GIVE_UPLOAD_ADDRESS, contents, digest=digest)
        url = urlsplit(signed.address)
        request = HttpRequest("PUT", f"{url.path}?{url.query}", signed.headers, read_chunks(path), TIMEOUT)
        try:
            answer = self._pool.send(f"{url.scheme}://{url.netloc}", request).whole()
        except (NotConnected, NoAnswer) as trouble:
            if path.stat().st_size != contents.size:
                raise InvalidInput(f"{path} changed while it was sent", hint="submit again") from None
            # The text never has the address, which is signed.
            raise _NotTaken(f"the storage at {url.netloc} does not answer: {trouble}") from trouble
        if answer.status >= 300:
            raise _refusal(url.netloc, answer)
        return wire.uploads.SentInput(
            signed.url, contents.size, (answer.headers.get("etag") or "").strip('"')
        )

    def _record(self, digest: str, sent: SentInput) -> None:
        try:
            self._transport.send(wire.uploads.RECORD_UPLOAD, sent, digest=digest)
        except Conflict as error:
            raise _NotTaken(error.message) from error


class _NotTaken(Overloaded):
    """The storage has not taken a file. Another try may succeed."""

    def __init__(self, message: str, *, is_forbidden: bool = False) -> None:
        super().__init__(message, retry_after=0.0)
        self.is_forbidden = is_forbidden
        """The service forbids it: the address may have expired."""


def _refusal(host: str, answer: HttpAnswer) -> Exception:
    match = _CODE.search(answer.content[:10_000])
    code = match[1].decode() if match else ""
    text = f"the storage at {host} answers {answer.status} {code}".rstrip()
    is_forbidden = answer.status == 403
    if is_forbidden or answer.status in (408, 429) or answer.status >= 500 or code in _PASSING:
        return _NotTaken(text, is_forbidden=is_forbidden)
    return InvalidInput(text)
