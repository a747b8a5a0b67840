"""HTTP transport: bounded retries, several servers, errors of core/errors.py."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from pilotage import wire
from pilotage.client.answers import decode, error_of
from pilotage.client.connections import (
    ConnectionPool,
    HttpAnswer,
    HttpRequest,
    NoAnswer,
    NotConnected,
    StreamedAnswer,
    check_url,
)
from pilotage.core.errors import NotAuthenticated, Overloaded, PilotageError, Unreachable
from pilotage.telemetry.tracer import outgoing_headers
from pilotage.wire.call import ApiCall, NoRequest
from pilotage.wire.server_trust import CERTIFICATES_HEADER, ServerTrust

Query = Mapping[str, str | int | float | Sequence[str] | Sequence[int]]
R = TypeVar("R")
A = TypeVar("A")
T = TypeVar("T")
REPORT_OUTAGE_AFTER = 3.0
REPORT_AGAIN_AFTER = 60.0

Body = Callable[[], bytes | Iterator[bytes]]
"""Called for each attempt, so that a file is read from its beginning."""


class _FailedRequest(NamedTuple):
    """A request that got no answer, or one that asks to come again."""

    error: PilotageError
    may_repeat: bool
    wait: float = 0.0
    """Seconds until the next attempt; 0: as usual."""
    reached: bool = True
    """Whether the request may have reached the server."""
    other_server: bool = True
    """Whether another server may answer."""


class Transport:
    """One server or several of one pool, one identity; thread-safe.

    `urls`: the addresses of the servers. Requests go to one of them; when it is not reached, to the next.

    `group`: the group to work in, for tokens of a trusted issuer.

    `token` is called before every request. `refused` is called after a token was refused; it raises if there is no
    other token.

    Retries last for `patience` seconds. A request that never reached the server is always retried; one that may have
    reached it only if it is `idempotent`. After 429 and 503 the request is repeated when the server says so. Until
    the first answer, refused connections are retried for `connect_patience` seconds only.

    `on_outage` is called when retries take more than REPORT_OUTAGE_AFTER seconds, and then each minute. `on_notice`
    is called with the server's notice to all clients, such as "the disk is full".
    """

    def __init__(
        self,
        urls: Sequence[str],
        token: Callable[[], str],
        *,
        group: str = "",
        patience: float,
        connect_patience: float | None = None,
        timeout: float,
        trust: ServerTrust | None = None,
        refused: Callable[[str, NotAuthenticated], None],
        on_outage: Callable[[PilotageError], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        on_new_pins: Callable[[ServerTrust], None] | None = None,
    ) -> None:
        self._urls = tuple(url.rstrip("/") for url in urls)
        self.url = self._urls[0]
        """The address that requests go to now."""
        self._lock = threading.Lock()
        self.patience = patience
        self._connect_patience = patience if connect_patience is None else connect_patience
        self.on_outage = on_outage
        self._on_notice = on_notice
        self._on_new_pins = on_new_pins
        self._trust = trust or ServerTrust()
        self._notice = ""
        self._timeout = timeout
        self._token = token
        # Names are sent in UTF-8; http.client writes texts in Latin-1.
        name = group.encode().decode("latin-1")
        self._group_header = {wire.identity.GROUP_HEADER: name} if group else {}
        self._refused = refused
        try:
            for url in self._urls:
                check_url(url)
            has_tls = any(url.startswith("https:") for url in self._urls)
            self._context = self._trust.make_context() if has_tls else None
        except (ValueError, OSError) as trouble:
            raise Unreachable(f"cannot use the address {self.url}: {trouble}") from trouble
        self._pool = ConnectionPool(self._context)

    def _report_notice(self, answer: StreamedAnswer) -> None:
        """Pass on the server's notice, once: its figures change."""
        notice = answer.headers.get("pilotage-notice", "")
        if notice and not self._notice and self._on_notice:
            self._notice = notice
            self._on_notice(notice)

    def _learn_certificates(self, answer: StreamedAnswer, url: str) -> None:
        announced = answer.headers.get(CERTIFICATES_HEADER, "")
        if announced and url.startswith("https:") and self._trust.learn(announced):
            self._ask_for("")
            if self._on_new_pins:
                self._on_new_pins(self._trust)

    def close(self) -> None:
        self._pool.close()

    def call(
        self,
        call: ApiCall[Callable[..., R], A],
        request: R | Mapping[str, object] | None = None,
        /,
        *,
        timeout: float | None = None,
        patience: float = 0.0,
        **parts: Any,
    ) -> A:
        """Send a call, and return its decoded answer. Parameters: see `send` and `request`."""
        answer = self.send(call, request, timeout=timeout, patience=patience, **parts)
        return decode(answer.content, call.answer)

    def send(
        self,
        call: ApiCall[Callable[..., R], A],
        request: R | Mapping[str, object] | None = None,
        /,
        *,
        body: Body | None = None,
        size: int | None = None,
        token: str | None = None,
        timeout: float | None = None,
        patience: float = 0.0,
        no_retry: bool = False,
        **parts: Any,
    ) -> HttpAnswer:
        """Send a call, and return its complete 2xx answer. `parts`: of its address. Others: see `request`.

        `request` may be a table instead: fields that are absent in it are not sent.
        """
        described = None if isinstance(request, NoRequest) else request
        return self.request(
            call.method,
            call.address(**parts),
            query=_query_of(described) if call.has_query else None,
            json=None if call.has_query else described,
            body=body,
            size=size,
            idempotent=call.repeatable,
            token=token,
            timeout=timeout,
            patience=patience,
            no_retry=no_retry,
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        json: object | None = None,
        body: Body | None = None,
        size: int | None = None,
        idempotent: bool | None = None,
        token: str | None = None,
        timeout: float | None = None,
        patience: float = 0.0,
        no_retry: bool = False,
    ) -> HttpAnswer:
        """Send a request and return the complete 2xx answer; raise an error of core/errors.py otherwise.

        `token` replaces the token of the client; "" sends none. `patience` is a lower bound for this request;
        with `no_retry` and a `token` nothing is retried.
        """
        content = body
        if json is not None:
            encoded = _encode(json)
            content, size = (lambda: encoded), len(encoded)
        headers = _headers(method, size, is_json=json is not None)
        target = path + ("?" + urlencode(_flatten_query(query)) if query else "")
        again = method != "POST" if idempotent is None else idempotent

        def once(bearer: str) -> HttpAnswer:
            return self._send(method, target, headers, content, bearer, timeout or self._timeout).whole()

        if token is not None:
            return once(token) if no_retry else self._with_retries(lambda: once(token), again, patience)
        return self._with_retries(lambda: self._authenticated(once), again, patience)

    def _send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: Body | None,
        bearer: str,
        timeout: float,
    ) -> StreamedAnswer:
        """Send a request once, and return its 2xx answer; raise another one as an error."""
        if bearer:
            if not (bearer.isascii() and bearer.isprintable()):
                raise NotAuthenticated("the token has characters that no token has")
            headers = {**headers, "authorization": f"Bearer {bearer}", **self._group_header}
        if traced := outgoing_headers(os.environ):
            headers = {**headers, **traced}
        url, body = self.url, content() if content else None
        answer = self._pool.send(url, HttpRequest(method, target, headers, body, timeout))
        try:
            self._report_notice(answer)
            self._learn_certificates(answer, url)
            if not 200 <= answer.status < 300:
                raise error_of(answer.whole())
        except BaseException:
            answer.close()
            raise
        return answer

    @contextmanager
    def stream(
        self, call: ApiCall[Any, bytes], request: Mapping[str, object] | None = None, /, **parts: Any
    ) -> Iterator[StreamedAnswer]:
        """Send a call whose answer is bytes, with the body unread. It must change nothing, since it is retried.

        Errors while the body is read are raised without a retry.
        """
        sent = None if request is None else _encode(request)
        headers = _headers(call.method, None if sent is None else len(sent), is_json=sent is not None)
        body = None if sent is None else lambda: sent
        path = call.address(**parts)

        def once(bearer: str) -> StreamedAnswer:
            return self._send(call.method, path, headers, body, bearer, self._timeout)

        answer = self._with_retries(lambda: self._authenticated(once), True)
        try:
            yield answer
        except NoAnswer as trouble:
            raise self._unreachable(trouble) from trouble
        finally:
            answer.close()

    def repeat(self, once: Callable[[], T]) -> T:
        """Call until it raises no `Overloaded`, with the pauses and the patience of requests to the server."""
        return self._with_retries(once, True)

    def _authenticated(self, once: Callable[[str], T]) -> T:
        """Send a request; repeat it once if the token was refused and a newer token exists.

        The repetition is safe: a request with a refused token changes nothing.
        """
        token = self._token()
        try:
            return once(token)
        except NotAuthenticated as error:
            self._refused(token, error)
        return once(self._token())

    def _with_retries(self, once: Callable[[], T], again: bool, patience: float = 0.0) -> T:
        start, pause, report_at = time.monotonic(), 0.1, REPORT_OUTAGE_AFTER
        names, others = list(self._trust.fingerprints), len(self._urls) - 1
        while True:
            url = self.url
            try:
                answer = once()
                self._connect_patience = self.patience
                return answer
            except (NotConnected, NoAnswer, Overloaded, Unreachable) as trouble:
                if self._is_another_certificate(trouble) and names:
                    self._ask_for(names.pop(0))
                    continue
                failure = self._judge(trouble, again)
            if failure.other_server and (failure.may_repeat or not failure.reached):
                self._leave(url)
                if others:
                    # Each address is tried once before the first pause.
                    names, others = list(self._trust.fingerprints), others - 1
                    continue
            gone, wait = time.monotonic() - start, failure.wait or pause
            limit = max(patience, self.patience if failure.reached else self._connect_patience)
            if not failure.may_repeat or gone + wait > limit:
                raise failure.error
            if max(gone, wait) > report_at and self.on_outage:
                report_at = gone + REPORT_AGAIN_AFTER
                self.on_outage(failure.error)
            time.sleep(wait * _spread())
            pause = min(pause * 2, 3.0)

    def _judge(self, trouble: Exception, again: bool) -> _FailedRequest:
        """Classify a failed request. `again`: whether it may be repeated after it has reached the server."""
        if isinstance(trouble, Overloaded):
            return _FailedRequest(trouble, may_repeat=True, wait=trouble.retry_after, other_server=False)
        if isinstance(trouble, Unreachable):
            return _FailedRequest(trouble, may_repeat=again)
        if isinstance(trouble, NotConnected):
            refused = self._untrusted(trouble)
            if refused is not None:
                # Trying again would change nothing, but another server may do.
                return _FailedRequest(refused, may_repeat=False, reached=False)
            return _FailedRequest(self._unreachable(trouble), may_repeat=True, reached=False)
        return _FailedRequest(self._unreachable(trouble), may_repeat=again)

    def _leave(self, url: str) -> None:
        """Send requests to the next address, if they still go to `url`."""
        with self._lock:
            if self.url == url and len(self._urls) > 1:
                self.url = self._urls[(self._urls.index(url) + 1) % len(self._urls)]

    def _ask_for(self, fingerprint: str) -> None:
        """Ask new connections for the certificate of a pin; "" for the certificate in use."""
        if self._context is not None and isinstance(self._context, wire.tls.PinnedContext):
            self._context.asked = fingerprint

    def _is_another_certificate(self, trouble: Exception) -> bool:
        if self._context is None:
            return False
        return isinstance(wire.tls.refused_certificate(trouble), wire.tls.CertificateMismatch)

    def _untrusted(self, trouble: Exception) -> Unreachable | None:
        """The error about the server's certificate, if that was refused."""
        refused = None if self._context is None else wire.tls.refused_certificate(trouble)
        if refused is None:
            return None
        self._ask_for("")
        now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        error = Unreachable(
            f"{self.url} is not accepted: {wire.tls.describe_refusal(refused, now)}",
            hint="`pilotage login URL#sha256=FINGERPRINT` pins the fingerprint that its administrator gives you",
        )
        error.__cause__ = trouble
        return error

    def _unreachable(self, trouble: Exception) -> Unreachable:
        return Unreachable(
            f"the server at {self.url} does not answer: {str(trouble) or type(trouble).__name__}",
            hint="is it running? `pilotage up` starts one; --server or PILOTAGE_SERVER names another",
        )


def _spread() -> float:
    """A factor that spreads the attempts of many clients."""
    import random

    return random.uniform(1.0, 1.3)  # noqa: S311


def _query_of(asked: object) -> Query:
    """The fields of the class of a query that have other values than their defaults."""
    if isinstance(asked, Mapping):
        return asked
    given = {name: value for name, value in vars(asked).items() if value != getattr(type(asked), name, None)}
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}


def _flatten_query(query: Query) -> list[tuple[str, str]]:
    """Repeat the key for each element of a list: ids=1&ids=2."""
    pairs: list[tuple[str, str]] = []
    for key, value in query.items():
        values = [value] if isinstance(value, (str, int, float)) else value
        pairs.extend((key, str(element)) for element in values)
    return pairs


def _headers(method: str, size: int | None, *, is_json: bool) -> dict[str, str]:
    """The headers of a request with a body of `size` bytes; None: without one."""
    headers = {"accept": "application/json"}
    if is_json:
        headers["content-type"] = "application/json"
    if size is not None or method != "GET":
        headers["content-length"] = str(size or 0)
    return headers


def _encode(value: object) -> bytes:
    import msgspec

    return msgspec.json.encode(value)
