"""HTTP transport: pooled connections, bounded retries, errors of core/errors.py."""

from __future__ import annotations

import random
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from pilotage.client.answers import error_of
from pilotage.core.errors import NotAuthenticated, Overloaded, PilotageError, Unreachable
from pilotage.wire.server_trust import CERTIFICATES_HEADER, CertificateMismatch, ServerTrust

if TYPE_CHECKING:
    import httpx

Query = Mapping[str, str | int | float | Sequence[str] | Sequence[int]]
QueryPairs = list[tuple[str, str | int | float | bool | None]]
REPORT_OUTAGE_AFTER = 3.0

Body = Callable[[], bytes | Iterator[bytes]]
"""Called for each attempt, so that a file is read from its beginning."""


def load_httpx() -> None:
    """Import httpx without its own command line, which would load rich and pygments: half of the time."""
    if "httpx" not in sys.modules:
        sys.modules["httpx._main"] = None  # type: ignore[assignment]  # httpx takes this as "not installed"
        try:
            import httpx  # noqa: F401
        finally:
            del sys.modules["httpx._main"]


class Transport:
    """One server, one identity; thread-safe.

    `token` is called before every request. `refused` is called after a token was refused; it raises if there is no
    other token.

    Retries last for `patience` seconds. A request that never reached the server is always retried; one that may have
    reached it only if it is `idempotent`. After 429 and 503 the request is repeated when the server says so. Until
    the first answer, refused connections are retried for `connect_patience` seconds only.

    `on_outage` is called once when a request has been retried for REPORT_OUTAGE_AFTER seconds. `on_notice` is called
    with the server's notice to all clients, such as "the disk is full".
    """

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        *,
        patience: float,
        connect_patience: float | None = None,
        timeout: float,
        trust: ServerTrust | None = None,
        refused: Callable[[str, NotAuthenticated], None],
        on_outage: Callable[[PilotageError], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        on_new_pins: Callable[[ServerTrust], None] | None = None,
    ) -> None:
        load_httpx()
        import httpx

        self.url = url.rstrip("/")
        self.patience = patience
        self._connect_patience = patience if connect_patience is None else connect_patience
        self._on_outage = on_outage
        self._on_notice = on_notice
        self._on_new_pins = on_new_pins
        self._trust = trust or ServerTrust()
        self._notice = ""
        self._timeout = timeout
        self._token = token
        self._refused = refused
        try:
            self._pool = httpx.Client(
                base_url=self.url,
                timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
                limits=httpx.Limits(max_connections=16, max_keepalive_connections=8),
                verify=self._trust.make_context() if self.url.startswith("https:") else False,
                trust_env=not _is_loopback(self.url),
                headers={"accept": "application/json"},
                event_hooks={"response": [self._report_notice, self._learn_certificates]},
            )
        except (httpx.InvalidURL, ValueError, OSError) as trouble:
            raise Unreachable(f"cannot use the address {url}: {trouble}") from trouble

    def _report_notice(self, response: httpx.Response) -> None:
        """Pass on the server's notice, once: its figures change."""
        notice = response.headers.get("pilotage-notice", "")
        if notice and not self._notice and self._on_notice:
            self._notice = notice
            self._on_notice(notice)

    def _learn_certificates(self, response: httpx.Response) -> None:
        announced = response.headers.get(CERTIFICATES_HEADER, "")
        if (
            announced
            and response.url.scheme == "https"
            and self._trust.learn(announced)
            and self._on_new_pins
        ):
            self._on_new_pins(self._trust)

    def close(self) -> None:
        self._pool.close()

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
    ) -> httpx.Response:
        """Send a request and return the complete 2xx answer; raise an error of core/errors.py otherwise.

        `token` replaces the token of the client; "" sends none. `patience` is a lower bound for this request;
        with `no_retry` and a `token` nothing is retried.
        """
        headers: dict[str, str] = {}
        content: Body | None = body
        if json is not None:
            encoded = msgspec.json.encode(json)
            headers["content-type"] = "application/json"
            content = lambda: encoded  # noqa: E731
        if size is not None:
            headers["content-length"] = str(size)
        again = method != "POST" if idempotent is None else idempotent
        params = _flatten_query(query)

        def once(bearer: str) -> httpx.Response:
            return self._send(method, path, params, content, headers, bearer, timeout or self._timeout)

        if token is not None:
            return once(token) if no_retry else self._with_retries(lambda: once(token), again, patience)
        return self._with_retries(lambda: self._authenticated(once), again, patience)

    def _send(
        self,
        method: str,
        path: str,
        params: QueryPairs,
        content: Body | None,
        headers: dict[str, str],
        bearer: str,
        timeout: float,
    ) -> httpx.Response:
        if bearer:
            headers["authorization"] = f"Bearer {bearer}"
        body = content() if content else None
        response = self._pool.request(
            method, path, params=params, content=body, headers=headers, timeout=timeout
        )
        if not response.is_success:
            raise error_of(response)
        return response

    @contextmanager
    def stream(self, path: str, *, json: object | None = None) -> Iterator[httpx.Response]:
        """Open a GET, or a POST of `json`, with the body unread. The request must change nothing, since it is retried.

        Errors while the body is read are raised without a retry.
        """
        import httpx

        sent = None if json is None else msgspec.json.encode(json)

        def once(bearer: str) -> httpx.Response:
            request = self._pool.build_request("GET" if sent is None else "POST", path, content=sent)
            if sent is not None:
                request.headers["content-type"] = "application/json"
            request.headers["authorization"] = f"Bearer {bearer}"
            response = self._pool.send(request, stream=True)
            if not response.is_success:
                response.read()
                raise error_of(response)
            return response

        response = self._with_retries(lambda: self._authenticated(once), True)
        try:
            yield response
        except (httpx.TransportError, httpx.StreamError) as trouble:
            raise self._unreachable(trouble) from trouble
        finally:
            response.close()

    def _authenticated(self, once: Callable[[str], httpx.Response]) -> httpx.Response:
        """Send a request; repeat it once if the token was refused and a newer token exists.

        The repetition is safe: a request with a refused token changes nothing.
        """
        token = self._token()
        try:
            return once(token)
        except NotAuthenticated as error:
            self._refused(token, error)
        return once(self._token())

    def _with_retries(
        self, once: Callable[[], httpx.Response], again: bool, patience: float = 0.0
    ) -> httpx.Response:
        import httpx

        start, pause, reported = time.monotonic(), 0.1, False
        while True:
            error: PilotageError
            try:
                limit = max(patience, self.patience)
                response = once()
                self._connect_patience = self.patience
                return response
            except (httpx.ConnectError, httpx.ConnectTimeout) as trouble:
                self._raise_untrusted(trouble)
                # The request never reached the server.
                error, wait, may_repeat = self._unreachable(trouble), pause, True
                limit = max(patience, self._connect_patience)
            except httpx.PoolTimeout as trouble:
                error, wait, may_repeat = self._unreachable(trouble), pause, True
            except (httpx.TransportError, httpx.InvalidURL) as trouble:
                error, wait, may_repeat = self._unreachable(trouble), pause, again
            except Overloaded as busy:
                error, wait, may_repeat = busy, busy.retry_after, True  # the server changed nothing
            except Unreachable as away:
                error, wait, may_repeat = away, pause, again
            gone = time.monotonic() - start
            if not may_repeat or gone + wait > limit:
                raise error
            if gone > REPORT_OUTAGE_AFTER and not reported and self._on_outage:
                reported = True
                self._on_outage(error)
            time.sleep(wait * random.uniform(1.0, 1.3))  # noqa: S311  # spreads the clients
            pause = min(pause * 2, 3.0)

    def _raise_untrusted(self, trouble: Exception) -> None:
        """Raise if the server's certificate was refused: trying again would change nothing."""
        cause: BaseException | None = trouble
        while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, CertificateMismatch):
            raise Unreachable(
                f"{self.url} is another server, or has a new certificate: {cause.args[0]}",
                hint="nothing was sent; ask its administrator for the fingerprint, and give it with --server"
                " URL#sha256=FINGERPRINT",
            ) from trouble
        if cause is not None:
            raise Unreachable(
                f"the certificate of {self.url} is not accepted: {cause.verify_message or cause}",
                hint="nothing was sent; pin it with --server URL#sha256=FINGERPRINT",
            ) from trouble

    def _unreachable(self, trouble: Exception) -> Unreachable:
        return Unreachable(
            f"the server at {self.url} does not answer: {str(trouble) or type(trouble).__name__}",
            hint="is it running? `pilotage up` starts one; --server or PILOTAGE_SERVER names another",
        )


def _is_loopback(url: str) -> bool:
    """Whether the host is this machine; it is then reached without an HTTP proxy."""
    host = url.partition("://")[2].partition("/")[0]
    return host.startswith(("127.", "localhost", "[::1]"))


def _flatten_query(query: Query | None) -> QueryPairs:
    """Repeat the key for each element of a list: ids=1&ids=2."""
    pairs: QueryPairs = []
    for key, value in (query or {}).items():
        values = [value] if isinstance(value, (str, int, float)) else value
        pairs.extend((key, str(element)) for element in values)
    return pairs
