"""Requests with patience: pooled connections, bounded retries, errors of the one tree."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from pilotage.client.answers import error_of
from pilotage.core.errors import NotAuthenticated, Overloaded, PilotageError, Unreachable

if TYPE_CHECKING:
    import httpx

Query = Mapping[str, str | int | float | Sequence[str] | Sequence[int]]
LONG_MOMENT = 3.0

Body = Callable[[], bytes | Iterator[bytes]]
"""Called anew for each try, so that a file is read from its beginning again."""


def load_httpx() -> None:
    """Import httpx without its own command line, which would load rich and pygments: half of the time."""
    if "httpx" not in sys.modules:
        sys.modules["httpx._main"] = None  # type: ignore[assignment]  # httpx takes this as "not installed"
        try:
            import httpx  # noqa: F401
        finally:
            del sys.modules["httpx._main"]


class Transport:
    """One server, one identity. Threads may share it.

    `token` is asked before every request, `refused` after one that was refused: it raises if there is no other.
    A request that never reached the server is tried again until `patience` seconds are over; one that may have
    reached it only if `idempotent`. "Come later" (429, 503) is obeyed for as long as patience lasts. Until the
    server has answered once, a connection that nobody takes is tried again for `at_first` seconds only. `on_away`
    is told when an absence lasts for longer than a moment, `on_notice` what the server has to say to everybody.
    """

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        *,
        patience: float,
        at_first: float | None = None,
        timeout: float,
        verify: str | bool,
        refused: Callable[[str, NotAuthenticated], None],
        on_away: Callable[[PilotageError], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        load_httpx()
        import httpx

        self.url = url.rstrip("/")
        self.patience = patience
        self._until_answered = patience if at_first is None else at_first
        self._on_away = on_away
        self._on_notice = on_notice
        self._notice = ""
        self._timeout = timeout
        self._token = token
        self._refused = refused
        try:
            self._pool = httpx.Client(
                base_url=self.url,
                timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
                limits=httpx.Limits(max_connections=16, max_keepalive_connections=8),
                verify=verify if self.url.startswith("https:") else False,
                trust_env=not _is_loopback(self.url),
                headers={"accept": "application/json"},
                event_hooks={"response": [self._heed]},
            )
        except (httpx.InvalidURL, ValueError, OSError) as trouble:
            raise Unreachable(f"cannot use the address {url}: {trouble}") from trouble

    def _heed(self, response: httpx.Response) -> None:
        """Pass on the server's notice, once: its figures change."""
        notice = response.headers.get("pilotage-notice", "")
        if notice and not self._notice and self._on_notice:
            self._notice = notice
            self._on_notice(notice)

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
        at_once: bool = False,
    ) -> httpx.Response:
        """The 2xx answer, read whole; every other outcome raises an error of core/errors.py.

        `token`: instead of our own; empty for none. `patience`: at least so much, for this request;
        `at_once`: none.
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

        def once(bearer: str) -> httpx.Response:
            sent = content() if content else None
            if bearer:
                headers["authorization"] = f"Bearer {bearer}"
            response = self._pool.request(
                method,
                path,
                params=_flat(query),
                content=sent,
                headers=headers,
                timeout=timeout or self._timeout,
            )
            if not response.is_success:
                raise error_of(response)
            return response

        if token is not None:
            return once(token) if at_once else self._patiently(lambda: once(token), again, patience)
        return self._patiently(lambda: self._authenticated(once), again, patience)

    @contextmanager
    def stream(self, path: str, *, json: object | None = None) -> Iterator[httpx.Response]:
        """GET, or POST of `json`, with the body unread. It must change nothing: opening is tried again like any
        request; reading on is not.
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

        response = self._patiently(lambda: self._authenticated(once), True)
        try:
            yield response
        except (httpx.TransportError, httpx.StreamError) as trouble:
            raise self._away(trouble) from trouble
        finally:
            response.close()

    def _authenticated(self, once: Callable[[str], httpx.Response]) -> httpx.Response:
        """Once more if the token was refused and another one is there; a refused request has changed nothing."""
        token = self._token()
        try:
            return once(token)
        except NotAuthenticated as error:
            self._refused(token, error)
        return once(self._token())

    def _patiently(
        self, once: Callable[[], httpx.Response], again: bool, patience: float = 0.0
    ) -> httpx.Response:
        import httpx

        start, pause, told = time.monotonic(), 0.1, False
        while True:
            error: PilotageError
            try:
                limit = max(patience, self.patience)
                response = once()
                self._until_answered = self.patience
                return response
            except (httpx.ConnectError, httpx.ConnectTimeout) as trouble:
                error, wait, may_repeat = self._away(trouble), pause, True  # it never reached the server
                limit = max(patience, self._until_answered)
            except httpx.PoolTimeout as trouble:
                error, wait, may_repeat = self._away(trouble), pause, True
            except (httpx.TransportError, httpx.InvalidURL) as trouble:
                error, wait, may_repeat = self._away(trouble), pause, again
            except Overloaded as busy:
                error, wait, may_repeat = busy, busy.retry_after, True  # nothing was changed there
            except Unreachable as away:
                error, wait, may_repeat = away, pause, again
            gone = time.monotonic() - start
            if not may_repeat or gone + wait > limit:
                raise error
            if gone > LONG_MOMENT and not told and self._on_away:
                told = True
                self._on_away(error)
            time.sleep(wait * random.uniform(1.0, 1.3))  # noqa: S311  # many clients must not come back at once
            pause = min(pause * 2, 3.0)

    def _away(self, trouble: Exception) -> Unreachable:
        return Unreachable(
            f"the server at {self.url} does not answer: {str(trouble) or type(trouble).__name__}",
            hint="is it running? `pilotage up` starts one; --server or PILOTAGE_SERVER names another",
        )


def _is_loopback(url: str) -> bool:
    """Such a server is reached directly: an HTTP proxy of the environment could not."""
    host = url.partition("://")[2].partition("/")[0]
    return host.startswith(("127.", "localhost", "[::1]"))


def _flat(query: Query | None) -> list[tuple[str, str | int | float | bool | None]]:
    """Lists become repeated keys: ids=1&ids=2."""
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for key, value in (query or {}).items():
        values = [value] if isinstance(value, (str, int, float)) else value
        pairs.extend((key, str(one)) for one in values)
    return pairs
