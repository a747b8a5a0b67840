"""The HTTP application, for all but the messages of pilots.

/live and calls that many clients repeat are answered in bare ASGI, everything else by FastAPI.
FastAPI and its routes take longer to import and to build than the rest of the server. Pilots do not wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, Response

from pilotage import __version__
from pilotage.core.errors import InvalidInput, PilotageError, TooLarge
from pilotage.server import errors
from pilotage.server.context import Context, identity_of
from pilotage.server.http.connection_limits import BODY_WITHOUT_TOKEN, LARGEST_FORM
from pilotage.server.http.direct_calls import direct_answer
from pilotage.server.http.identity import Scope, check_standing, identify
from pilotage.server.http.pilot_endpoints import ENDPOINTS, MAX_BODY, MAX_TAIL
from pilotage.server.tokens import Caller
from pilotage.server.web_sessions import cookie_name
from pilotage.wire.uploads import MAX_BUNDLE_BYTES

if TYPE_CHECKING:
    from fastapi import FastAPI

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

STREAMED_PREFIXES = ("/v1/uploads/", "/v1/pilot/jobs/")
"""Bodies for these addresses are streamed to disk, and need not declare their size."""

LIVE = {"status": "live", "version": __version__}
"""The answer of /live."""
MAX_SUBMISSION = 8_000_000
OUTPUT_FILE_HINT = "jobs.max_output_file in the policy"
TOKEN_HINT = "send a token: Authorization: Bearer TOKEN"
ROWS_HINT = "many rows of parameters are sent in chunks: /v1/submissions/open; files go to /v1/uploads"


class Application:
    """Sends each request to the handler for its address."""

    def __init__(self, context: Context, build: Callable[[Context], FastAPI] | None = None) -> None:
        """`build`: makes the routes; by default the routes of the API, without pages."""
        self.context = context
        self._build = build or _build
        self._api: FastAPI | None = None
        self._building = asyncio.Lock()

    async def routes(self) -> FastAPI:
        """The routes of FastAPI, built at the first call, in a thread: the event loop goes on meanwhile."""
        async with self._building:
            if self._api is None:
                self._api = await asyncio.to_thread(self._build, self.context)
        return self._api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/live" and scope["method"] == "GET":
            await JSONResponse(LIVE)(scope, receive, send)
        elif (telemetry := self.context.work.telemetry) is not None and scope["type"] == "http":
            from pilotage.server.http.spans import answer_traced

            await answer_traced(telemetry.tracer, self._answer, scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            try:
                if path in ENDPOINTS:
                    raise InvalidInput("this address accepts POST only")
                authenticated, has_session = await self._identify(scope), False
                if authenticated:
                    limit, hint = self._body_limit(path, scope["method"])
                elif has_session := not path.startswith("/v1/") and self._has_session(scope):
                    limit, hint = LARGEST_FORM, "the command line and the API take more"
                else:
                    limit, hint = BODY_WITHOUT_TOKEN, TOKEN_HINT
                size = _declared_size(scope)
                if size is None and not path.startswith(STREAMED_PREFIXES):
                    raise TooLarge("the size of the body is not declared", hint="send Content-Length")
                if size is not None and size > limit:
                    if not (authenticated or has_session):
                        identity_of(scope)
                    raise TooLarge(f"the body has {size} bytes: at most {limit} are accepted here", hint=hint)
            except PilotageError as error:
                await errors.response_for(error)(scope, receive, send)
                return
            if size != 0:
                check = partial(check_standing, self.context, scope)
                bounded = _BoundedBody(limit, hint, check, scope, receive, send)
                receive, send = bounded.receive, bounded.send
            if notice := self._notice(scope):
                send = _add_notice(notice, send)
            answer = None if size else await self._answer_directly(scope)
            if answer is not None:
                await answer(scope, receive, send)
                return
        api = self._api or await self.routes()
        await api(scope, receive, send)

    async def _identify(self, scope: Scope) -> bool:
        return await identify(self.context, scope)

    def _has_session(self, scope: Scope) -> bool:
        """Whether a browser that is signed in sends this. Pages read its rights later."""
        headers, context = dict(scope["headers"]), self.context
        cookies = cookie_parser(headers.get(b"cookie", b"").decode("latin-1"))
        key = cookies.get(cookie_name(context.address.instance), "")
        return context.tokens.sessions.knows(key, context.clock())

    async def _answer_directly(self, scope: Scope) -> Response | None:
        return await direct_answer(self.context, scope)

    def _notice(self, scope: Scope) -> str:
        """A notice for the caller: only administrators can replace a certificate."""
        context = self.context
        if context.disk.space.low or not context.address.certificate_warning:
            return context.disk.space.low
        caller = scope.get("state", {}).get("identity")
        return (
            context.address.certificate_warning if isinstance(caller, Caller) and caller.administrator else ""
        )

    def _body_limit(self, path: str, method: str) -> tuple[int, str]:
        """Maximum bytes of a body from an authenticated sender, and the hint for a body that is too large."""
        jobs = self.context.pool.policy.jobs
        if path.startswith("/v1/uploads/"):
            return jobs.max_input_file, "jobs.max_input_file in the policy"
        if path.startswith("/v1/pilot/jobs/"):
            return (MAX_TAIL, "") if method == "POST" else (jobs.max_output_file, OUTPUT_FILE_HINT)
        if path in ("/v1/submissions", "/v1/submissions/check", "/v1/submissions/graph"):
            return MAX_SUBMISSION, ROWS_HINT
        if path == "/v1/uploads":
            return MAX_BUNDLE_BYTES, "larger files go one at a time to /v1/uploads/SHA256"
        return MAX_BODY, "files go to /v1/uploads"


def _build(context: Context) -> FastAPI:
    from pilotage.server.http.routing import build_routes

    return build_routes(context)


class _BoundedBody:
    """The body of a request. If it exceeds the limit, or its sender's rights end before it, an error is the answer."""

    def __init__(
        self, limit: int, hint: str, check: Callable[[], None], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`check`: raises an error if the sender may not send it any more. It is called at the end of the body."""
        self._remaining = self._limit = limit
        self._hint = hint
        self._check = check
        self._scope = scope
        self._receive = receive
        self._send = send
        self._refused = self._answer_started = False

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self._remaining -= len(message.get("body", b""))
        if self._answer_started:
            return message
        try:
            if self._remaining < 0:
                raise TooLarge(f"the body has more than {self._limit} bytes", hint=self._hint)
            if message["type"] == "http.request" and not message.get("more_body", False):
                self._check()
            return message
        except PilotageError as refusal:
            error = refusal
        self._refused = True
        await errors.response_for(error)(self._scope, self._receive, self._send)
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Pass on the application's answer, unless the request was already refused."""
        self._answer_started = True
        if not self._refused:
            await self._send(message)


def _add_notice(text: str, send: Send) -> Send:
    """Add a notice about the server to the header of every answer."""
    notice = (b"pilotage-notice", text.encode("ascii", "replace"))

    async def send_with_notice(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), notice]
        await send(message)

    return send_with_notice


def _declared_size(scope: Scope) -> int | None:
    """The declared size of the body in bytes, 0 if there is no body; None if the size is not declared."""
    headers = dict(scope["headers"])
    text = headers.get(b"content-length")
    if text is None:
        return None if b"transfer-encoding" in headers else 0
    return int(text) if text.isdigit() else None
