"""Calls to the REST interface of an ARC CE: one time limit, and one error for every missing answer."""

from __future__ import annotations

import http.client
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from pilotage.core.errors import Unreachable
from pilotage.core.policy.batch_systems.arc import ArcOptions
from pilotage.outside.batch.arc import answers
from pilotage.outside.batch.arc.credentials import ArcCredential, find_credential, stamp_of_files, tls_context
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.https_connection import BatchConnection, HttpReply, NoConnection
from pilotage.outside.batch.submission import in_short

VERSIONS = ("1.0", "1.1")
"""The versions of the interface that the calls here are right for; the last that the CE has is used."""

MOST_IDS = 5000
"""Jobs of one request: the CE reads 1 MB of ids."""

_XML = {"accept": "application/xml", "content-type": "application/xml"}


class NotSent(Unreachable):
    """The CE cannot have taken in the call: no connection was made."""


class RefusedCall(Unreachable):
    """The CE answered with an error."""

    def __init__(self, reply: HttpReply, hint: str) -> None:
        self.status = reply.status
        self.reason = in_short(reply.reason)
        super().__init__(f"the CE answers {reply.status} {self.reason}".rstrip(), hint=hint)


@dataclass(frozen=True, slots=True)
class _Connected:
    """A connection, and the files that it was made of."""

    connection: BatchConnection
    made_of: tuple[object, ...]


class ArcClient:
    """The REST interface of one CE. It may be used in one thread at a time, and closed from any."""

    def __init__(
        self,
        options: ArcOptions,
        environment: Mapping[str, str],
        uid: int,
        timeout: float,
        connect: Callable[[str, int, ssl.SSLContext, float], BatchConnection],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`timeout`: seconds for one call. `environment`: for the discovery of tokens and CAs."""
        self._options = options
        self._environment = environment
        self._uid = uid
        self._timeout = timeout
        self._connect = connect
        self._clock = clock
        address = urlsplit(options.url.rstrip("/"))
        self.host = address.hostname or ""
        self._port = address.port or 443
        self._path = address.path
        self._connected: _Connected | None = None
        self._version = ""
        self._is_closed = False

    def close(self) -> None:
        """End the call that is under way, and refuse further ones."""
        self._is_closed = True
        if (connected := self._connected) is not None:
            connected.connection.close()

    def require_credential(self) -> None:
        """`Unreachable` unless the credential is valid for as long as a submission asks for."""
        self._credential().require(self._clock(), self._options.credential_left)

    def _credential(self) -> ArcCredential:
        return find_credential(self._options, self._environment, self._uid)

    def get(self, path: str) -> str:
        """The text at `path`, below the version of the interface."""
        return self._succeeding(self._call("GET", path)).text

    def read_end(self, path: str, most: int) -> bytes:
        """The last bytes of a file; empty: there is none."""
        size = self._call("HEAD", path)
        if size.status == HTTPStatus.NOT_FOUND or not self._succeeding(size).length:
            return b""
        headers = {"range": f"bytes={size.length - most}-"} if size.length > most else {}
        return self._succeeding(self._call("GET", path, headers=headers)).body[-most:]

    def file_size(self, path: str) -> int | None:
        """The bytes of a file; 0: there is none; None: the CE does not tell."""
        reply = self._call("HEAD", path)
        if reply.status == HTTPStatus.NOT_FOUND:
            return 0
        return reply.length if reply.succeeded else None

    def put(self, path: str, content: bytes) -> None:
        self._succeeding(self._call("PUT", path, content))

    def post(self, action: str, body: str) -> str:
        """The answer to an action, such as new."""
        return self._succeeding(self._call("POST", f"jobs?action={action}", body.encode(), _XML)).text

    def post_ids(self, action: str, ids: Sequence[str]) -> Iterator[str]:
        """The answers to an action on these jobs, such as info, for a part of them each."""
        for first in range(0, len(ids), MOST_IDS):
            yield self.post(action, answers.write_ids(ids[first : first + MOST_IDS]))

    def act(self, action: str, ids: Sequence[str]) -> list[answers.JobAnswer]:
        """The answers about each of these jobs."""
        return [answer for text in self.post_ids(action, ids) for answer in answers.read_answers(text)]

    def _succeeding(self, reply: HttpReply) -> HttpReply:
        if reply.succeeded:
            return reply
        if reply.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            source = self._credential().source
            raise RefusedCall(
                reply, f"the site gives no access to {source}: its administrators map identities"
            )
        known = reply.status == HTTPStatus.NOT_FOUND
        raise RefusedCall(reply, f"is {self._options.url} the address of the CE?" if known else "")

    def _call(
        self, method: str, path: str, content: bytes = b"", headers: Mapping[str, str] = _XML
    ) -> HttpReply:
        if not self._version:
            try:
                self._version = self._find_version()
            except Unreachable as error:
                if isinstance(error, RefusedCall) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                # Only the question was asked, so the CE has not taken in the call itself.
                raise NotSent(error.message, hint=error.hint) from None
        reply = self._send(method, f"{self._path}/rest/{self._version}/{path}", content, headers)
        if reply.status == HTTPStatus.NOT_FOUND and not path.startswith("jobs/"):
            # The CE may have another version now. Files of jobs may be gone at any time.
            self._version = ""
        return reply

    def _find_version(self) -> str:
        text = self._succeeding(self._send("GET", f"{self._path}/rest", b"", _XML)).text
        try:
            known = answers.read_versions(text)
        except UnreadableOutput as error:
            reason = f"{self._options.url} is no REST interface of ARC: {error}"
            raise UnreadableOutput(reason) from None
        usable = [version for version in VERSIONS if version in known]
        if not usable:
            raise Unreachable(
                f"the CE has version {', '.join(known)} of the REST interface, and Pilotage knows"
                f" {', '.join(VERSIONS)}",
                hint="a later version of Pilotage may know it",
            )
        return usable[-1]

    def _send(self, method: str, target: str, content: bytes, headers: Mapping[str, str]) -> HttpReply:
        if self._is_closed:
            raise Unreachable("the server stops")
        credential = self._credential()
        credential.require(self._clock())
        connection = self._connection(credential)
        if credential.token:
            headers = {**headers, "authorization": f"Bearer {credential.token}"}
        try:
            return connection.send(method, target, content, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self._missing(error) from None

    def _missing(self, error: OSError | http.client.HTTPException) -> Unreachable:
        """The error for a call without an answer."""
        if self._is_closed:
            return Unreachable("the server stops")
        said = in_short(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        # Python puts the line of its own source before some errors of TLS.
        said = re.sub(r"^_ssl\.c:\d+: ", "", said)
        cause = error.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError):
            return NotSent(
                f"the certificate of {self.host} is not accepted: {cause.verify_message}",
                hint="`ca` names the file or folder with the CA certificates that sign the CE's",
            )
        if isinstance(error, NoConnection):
            return NotSent(
                f"no connection to {self.host} at port {self._port}: {said}",
                hint="`url` in the CE's section names its address; its administrators know whether it runs",
            )
        if isinstance(error, TimeoutError):
            return Unreachable(f"{self.host} did not answer within {self._timeout:.0f} s")
        if isinstance(error, ssl.SSLError):
            return Unreachable(f"{self.host} ended the connection: {error.reason or said}")
        return Unreachable(f"the answer of {self.host} was cut off: {said}")

    def _connection(self, credential: ArcCredential) -> BatchConnection:
        made_of = (credential.certificate, credential.key, stamp_of_files(self._options))
        if self._connected is None or self._connected.made_of != made_of:
            if self._connected is not None:
                self._connected.connection.close()
            context = tls_context(self._options, self._environment, credential)
            connection = self._connect(self.host, self._port, context, self._timeout)
            self._connected = _Connected(connection, made_of)
        return self._connected.connection
