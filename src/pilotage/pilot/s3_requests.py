"""Requests to an S3 service by addresses that the server signs, each just before it is used.

The pilot has no key. An address lives for some minutes, so each try has a new one.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import urllib.parse
from dataclasses import replace
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from pilotage.wire.data import StoragePlace
from pilotage.wire.proxy import find_proxy
from pilotage.wire.storage import GIVE_ADDRESS, AddressRequest, SignedAddress

from .place import DataAttempt, PlaceFailed
from .thread_pool import retry_until_available
from .transport import RequestRefused, ServerUnavailable

TIMEOUT = 60.0
"""Seconds without a byte after which a request is tried again."""
_ANSWER = 1 << 22
"""Bytes of an answer that are read: a page of a list has less."""
_PASSING = frozenset(
    {"RequestTimeout", "BadDigest", "IncompleteBody", "InternalError", "SlowDown", "ServiceUnavailable"}
)
"""Codes of refusals after which the same request may succeed."""
_DOUBTED = 4
"""Answers of 403 or 404 until one is believed.

An address may have expired on its way, a key may just be replaced, and a new object may not be known everywhere yet.
"""
_DOUBTFUL = (403, 404)
_CODE = re.compile(rb"<Code>([A-Za-z]{1,80})</Code>")


class MissingObject(PlaceFailed):
    """The service does not have the object, or not the bucket."""


class S3Answer(NamedTuple):
    """The answer of a service. The body of a download is not read yet."""

    status: int
    headers: "http.client.HTTPMessage"
    body: bytes
    response: http.client.HTTPResponse
    connection: http.client.HTTPConnection


class S3Requests:
    """Sends requests about the files of one place."""

    def __init__(self, place: StoragePlace, attempt: DataAttempt) -> None:
        self._place = place
        self._attempt = attempt

    def send(
        self,
        asked: AddressRequest,
        body: Optional[bytes] = None,
        headers: Optional[Dict[str, str]] = None,
        is_whole: Callable[["S3Answer"], bool] = lambda answer: True,
    ) -> S3Answer:
        """The answer to a request, which may be sent several times. Raises PlaceFailed and DataCancelled.

        `is_whole`: whether all of the answer has come, by its size and its end. Another program may have given it.
        """
        begun, failures, doubts = self._attempt.clock(), 0, 0
        while True:
            self._attempt.check()
            try:
                answer = _exchange(self._address(asked), body, headers or {}, asked.operation == "get")
                if answer.status < 300 and is_whole(answer):
                    return answer
                doubts += answer.status in _DOUBTFUL
                # A removal may find no object.
                is_gone = asked.operation == "remove" and answer.status == 404
                reason = _reason_to_wait(answer, is_doubted=doubts < _DOUBTED and not is_gone)
            except PlaceFailed:
                raise
            except (OSError, http.client.HTTPException) as error:
                # The text of an error has no address, which is a secret.
                reason = f"the service does not answer: {_describe(error)}"
            failures += 1
            if self._attempt.clock() - begun >= self._place.patience:
                raise PlaceFailed(f"{reason}, for {self._place.patience:g} s")
            self._attempt.pause(failures)

    def clear_away(self, asked: AddressRequest) -> None:
        """Send a request once, also for a job that was killed. A failure leaves something behind, and is no error."""
        once = replace(self._attempt, is_cancelled=_only_once)
        with contextlib.suppress(OSError, http.client.HTTPException):
            _exchange(S3Requests(self._place, once)._address(asked), None, {}, False)

    def _address(self, asked: AddressRequest) -> SignedAddress:
        attempt = self._attempt
        path = GIVE_ADDRESS.address(job=attempt.key[0], epoch=attempt.key[1])
        try:
            return retry_until_available(
                lambda: attempt.connection.post(path, asked, SignedAddress), attempt.is_cancelled
            )
        except ServerUnavailable:
            raise PlaceFailed("the server does not answer") from None
        except RequestRefused as error:
            raise PlaceFailed(f"the server gives no address: {error.error.message}") from None


def _only_once() -> bool:
    return True


def _reason_to_wait(answer: S3Answer, *, is_doubted: bool) -> str:
    """Why the same request may succeed later. Raises PlaceFailed for a refusal that stays."""
    code = _code_of(answer)
    reason = f"the service answers {answer.status} {code}".rstrip()
    if answer.status < 300:
        return "the service gives an answer that is not whole"
    if answer.status in _DOUBTFUL and is_doubted:
        return reason
    if answer.status == 404:
        raise MissingObject(f"the service has no such {_missing(code)}")
    if answer.status not in (408, 429) and answer.status < 500 and code not in _PASSING:
        raise PlaceFailed(reason)
    return reason


def _exchange(
    signed: SignedAddress, body: Optional[bytes], headers: Dict[str, str], is_download: bool
) -> S3Answer:
    """Send a request once. The connection of a successful download stays open. Raises OSError and HTTPException."""
    connection, target = _connect(signed.address)
    try:
        if body is None and signed.method in ("PUT", "POST"):
            body = b""
        # The service may have answered before it read the whole body.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(signed.method, target, body, headers)
        response = connection.getresponse()
        if is_download and response.status < 300:
            return S3Answer(response.status, response.headers, b"", response, connection)
        content = response.read(_ANSWER)
        if response.length and len(content) < _ANSWER:
            raise http.client.IncompleteRead(content, response.length)
        answer = S3Answer(response.status, response.headers, content, response, connection)
    except BaseException:
        connection.close()
        raise
    connection.close()
    return answer


def _connect(address: str) -> Tuple[http.client.HTTPConnection, str]:
    """A connection for an address, and the target of its request."""
    url = urllib.parse.urlsplit(address)
    host, target = url.hostname or "", f"{url.path}?{url.query}"
    proxy = find_proxy(url.scheme, host)
    if url.scheme != "https":
        if proxy is None:
            return http.client.HTTPConnection(host, url.port, timeout=TIMEOUT), target
        return http.client.HTTPConnection(proxy.host, proxy.port, timeout=TIMEOUT), address
    if proxy is None:
        return http.client.HTTPSConnection(host, url.port, timeout=TIMEOUT), target
    tunnel = http.client.HTTPSConnection(proxy.host, proxy.port, timeout=TIMEOUT)
    tunnel.set_tunnel(host, url.port or 443, proxy.headers)
    return tunnel, target


def _code_of(answer: S3Answer) -> str:
    match = _CODE.search(answer.body)
    return match[1].decode() if match else ""


def _missing(code: str) -> str:
    return "bucket" if code == "NoSuchBucket" else "object"


def _describe(error: BaseException) -> str:
    return str(error) or type(error).__name__
