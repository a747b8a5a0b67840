"""Pilots' calls over a connection: from the HTTP parser to the writer, and from the writer's answer to the socket.

No task and no ASGI event lies between them; for a call about a single job these would cost half of its match.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pilotage.core.errors import NotAuthenticated, TooLarge
from pilotage.server.http.answering_connection import AnsweringConnection
from pilotage.server.http.pilot_endpoints import PilotCall, PilotEndpoint, pilot_is_known
from pilotage.store.writer.replies import LoopReply


class PilotProtocol(AnsweringConnection):
    """A connection that answers pilots' calls without the application."""

    def _begin_call(self, endpoint: PilotEndpoint, size: int) -> None:
        """Accept the header of a call whose body has a declared size of `size` bytes (0: not declared)."""
        self._endpoint = endpoint
        if size > endpoint.max_body:
            raise TooLarge(f"the body has more than {endpoint.max_body} bytes")
        if size > self._limits.body_without_token:
            self._check_token(endpoint)
        if self._expects_continue and not self._flow.read_paused:
            self._send_continue()

    def _send_continue(self) -> None:
        self._expects_continue = False
        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _add_to_body(self, endpoint: PilotEndpoint, data: bytes) -> None:
        """Keep a piece of the body; `_size` already includes it."""
        if self._size > endpoint.max_body:
            raise TooLarge(f"the body has more than {endpoint.max_body} bytes")
        if self._size > self._limits.body_without_token:
            self._check_token(endpoint)
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data

    def _check_token(self, endpoint: PilotEndpoint) -> None:
        """Pause a large body until its token is known to belong to a pilot."""
        if self._token_checked or not endpoint.needs_token:
            return
        self._token_checked = True
        self._pause_body()
        self._start_task(self._look_up_token())

    async def _look_up_token(self) -> None:
        """Resume the body if the token is valid. No other request is read meanwhile, since reading is paused."""
        error: Exception | None = None
        try:
            if not await pilot_is_known(self._context, self._token):
                error = NotAuthenticated("this pilot's token is not known", hint="enrol first")
        except Exception as lookup_error:
            error = lookup_error
        if self._request_over or self._is_lost:
            return
        if error is not None:
            self._refuse(error)
            return
        self.trust()
        if self._expects_continue:
            self._send_continue()
        self._flow.resume_reading()

    def _submit_call(self, endpoint: PilotEndpoint) -> None:
        try:
            call = endpoint.handler(self._context, self._token, self._body)
            if call.earlier:
                self._start_task(self._carry_out(call))
                return
            self._context.writer.submit(
                call.request, LoopReply(self._loop, partial(self._on_call_done, call))
            )
        except Exception as error:
            # Not now: the parser has yet to read the data that arrived together with the request.
            self._loop.call_soon(self._refuse, error)

    async def _carry_out(self, call: PilotCall) -> None:
        """Answer a call of several parts."""
        try:
            result = await call.carry_out(self._context.writer)
        except Exception as error:
            self._on_call_done(call, None, error)
        else:
            self._on_call_done(call, result, None)

    def _on_call_done(self, call: PilotCall, result: Any, error: BaseException | None) -> None:
        try:
            if error is None:
                if not self._trusted and call.authenticates:
                    self.trust()
                self._send_answer(200, call.encode(result))
                return
        except Exception as unexpected:
            error = unexpected
        self._refuse(error)
