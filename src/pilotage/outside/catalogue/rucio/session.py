"""Calls of Rucio's REST interface: authentication, and answers as values or errors of ours."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec

from pilotage.core.errors import Conflict, Forbidden, NotAuthenticated, NotFound, PilotageError, Unreachable
from pilotage.core.policy.catalogue_types.rucio import RucioOptions
from pilotage.core.short_text import cut_middle
from pilotage.outside.call_deadlines import CallDeadlines, TookTooLong
from pilotage.outside.catalogue.rucio.credentials import find_token, read_password
from pilotage.outside.service_keys import with_keys

Row = TypeVar("Row")

TOKEN_HEADER = "X-Rucio-Auth-Token"
WHOLE = 10.0
"""Timeouts for a whole answer, which may be a long list."""
LONGEST_REASON = 300
"""Characters of a reason that Rucio gives."""


class RucioFault(Conflict):
    """Rucio refuses a call that is well formed. `exception`: the name that Rucio gives to the reason."""

    def __init__(self, message: str, exception: str) -> None:
        super().__init__(message)
        self.exception = exception


class RucioSession:
    """Logged-in calls to one server. Several threads may use it."""

    def __init__(self, options: RucioOptions, transport: httpx.BaseTransport | None = None) -> None:
        """`transport`: sends the requests; None: connections of this machine do."""
        self._options = options
        self._transport = transport
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._token = ""
        self._deadlines = CallDeadlines(WHOLE * options.timeout)

    # --- calls

    def row(self, kind: type[Row], path: str) -> Row:
        """The only object of an answer."""
        return _decoded(self._send("GET", path), kind, path)

    def rows(self, kind: type[Row], path: str, body: object = None) -> Iterator[Row]:
        """The objects of a streamed answer, one a line. It is complete, or an error is raised."""
        method = "GET" if body is None else "POST"
        for line in self._send(method, path, body).iter_lines():
            if line.strip():
                yield _read_json(line.encode(), kind, path)

    def do(self, method: str, path: str, body: object = None) -> None:
        """A call whose answer is its status. Raises `RucioFault` for a conflict."""
        self._send(method, path, body)

    def version(self) -> str:
        """The version of the server. Needs no authentication."""
        answer = self._raw("GET", f"{_base(self._options.url)}/ping", {}, None)
        if answer.status_code != httpx.codes.OK:
            raise self._error(answer, "/ping")
        return _decoded(answer, _Ping, "/ping").version

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    # --- the way

    def _send(self, method: str, path: str, body: object = None) -> httpx.Response:
        content = None if body is None else msgspec.json.encode(body)
        url = f"{_base(self._options.url)}{path}"
        token = self._token or self._new_token()
        answer = self._raw(method, url, self._headers(token), content)
        if _is_unknown(answer):
            # The token has expired, or a new one lies in its file.
            answer = self._raw(method, url, self._headers(self._new_token()), content)
        if answer.status_code >= httpx.codes.MULTIPLE_CHOICES:
            raise self._error(answer, path)
        return answer

    def _headers(self, token: str) -> dict[str, str]:
        headers = {TOKEN_HEADER: token, "Content-Type": "application/json"}
        if self._options.account:
            headers["X-Rucio-Account"] = self._options.account
        return headers

    def _new_token(self) -> str:
        options = self._options
        is_bearer = options.auth == "token"
        self._token = (
            find_token(options.token_file, with_keys(), os.getuid()) if is_bearer else self._log_in()
        )
        return self._token

    def _log_in(self) -> str:
        options = self._options
        headers = {
            "X-Rucio-Account": options.account,
            "X-Rucio-Username": options.username,
            "X-Rucio-Password": read_password(options.password_file),
        }
        url = f"{_base(options.auth_url or options.url)}/auth/userpass"
        answer = self._raw("GET", url, headers, None)
        token = answer.headers.get(TOKEN_HEADER, "")
        if answer.status_code != httpx.codes.OK:
            raise self._error(answer, "/auth/userpass")
        if not token:
            raise Unreachable(f"{url} gives no token: it is no Rucio server, or one of another version")
        return str(token)

    def _raw(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> httpx.Response:
        try:
            with self._deadlines.call():
                return self._http().request(method, url, headers=headers, content=content)
        except TookTooLong as error:
            raise Unreachable(f"{url}: {error}") from None
        except httpx.TimeoutException:
            raise Unreachable(f"{url} has not answered for {self._options.timeout:g} s") from None
        except (httpx.TransportError, httpx.DecodingError, httpx.InvalidURL) as error:
            raise Unreachable(f"{url} does not answer: {_cut(str(error) or type(error).__name__)}") from None
        except RuntimeError:
            raise Unreachable(f"{url}: the connection was closed") from None

    def _http(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(
                    timeout=self._options.timeout,
                    verify=self._certificates(),
                    transport=self._transport,
                    event_hooks={"request": [self._deadlines.on_request]},
                )
            return self._client

    def _certificates(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._options.ca_file or None)
        except OSError as error:
            reason = error.strerror or "it has no certificates"
            raise Unreachable(f"ca_file {self._options.ca_file} cannot be used: {reason}") from None

    def _error(self, answer: httpx.Response, path: str) -> PilotageError:
        exception, reason = _told(answer)
        where = f"Rucio refuses {path}"
        if _is_unknown(answer):
            self._token = ""
            return NotAuthenticated(
                f"Rucio does not accept the credentials: {reason}", hint=_HINTS[self._options.auth]
            )
        if answer.status_code == httpx.codes.FORBIDDEN and exception:
            return Forbidden(f"{where}: {reason}", hint="the Rucio account needs this right")
        if answer.status_code == httpx.codes.NOT_FOUND and exception:
            return NotFound(reason)
        if exception and exception not in _OUTAGES:
            return RucioFault(f"{where}: {exception}: {reason}", exception)
        return Unreachable(f"{answer.url} answers {answer.status_code}: {reason}")


class _Ping(msgspec.Struct):
    version: str


class _RucioErrorBody(msgspec.Struct):
    exception: str = msgspec.field(default="", name="ExceptionClass")
    message: str = msgspec.field(default="", name="ExceptionMessage")


_OUTAGES = ("DatabaseException", "RucioException", "ServiceUnavailable")
"""Names of reasons that say nothing about the call."""

_UNKNOWN = "CannotAuthenticate"
_NO_MESSAGE = "NoneType: None"
"""Rucio's words where there are none."""

_HINTS = {
    "token": "renew the token: a new one is found with the next try",
    "userpass": "check account, username and password_file",
}


def did_path(scope: str, name: str) -> str:
    """The part of an address that names a DID."""
    return f"{quote(scope, safe='')}/{quote(name, safe='')}"


def _base(url: str) -> str:
    return url.rstrip("/")


def _told(answer: httpx.Response) -> tuple[str, str]:
    """The name and the words of an error, as far as Rucio has written it."""
    try:
        fault = msgspec.json.decode(answer.content, type=_RucioErrorBody)
    except msgspec.MsgspecError:
        return "", _cut(answer.reason_phrase or "without a reason")
    message = fault.message.strip().replace(_NO_MESSAGE, "")
    return fault.exception, _cut(message or fault.exception or answer.reason_phrase)


def _is_unknown(answer: httpx.Response) -> bool:
    """Whether the server does not know who asks. /auth/validate answers 500 where all other calls answer 401."""
    return answer.status_code == httpx.codes.UNAUTHORIZED or (
        answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and _told(answer)[0] == _UNKNOWN
    )


def _cut(text: str) -> str:
    return cut_middle(" ".join(text.split()), LONGEST_REASON)


def _decoded(answer: httpx.Response, kind: type[Row], path: str) -> Row:
    return _read_json(answer.content, kind, path)


def _read_json(text: bytes, kind: type[Row], path: str) -> Row:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreachable(
            f"the answer to {path} cannot be read: {_cut(str(error))}",
            hint="this is no Rucio server, or one of another version",
        ) from None
