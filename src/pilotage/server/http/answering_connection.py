"""Answers over a connection, and the state of the request that is being read.

One request at a time: data that arrives before the answer closes the connection after that answer (RFC 9112, 9.3.2:
the client sends it again). Nothing is queued, and a request smuggled behind another is never carried out.
After a refused request the server keeps reading for a few seconds, so that the sender receives the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.server import ServerState

from pilotage.server.context import Context
from pilotage.server.http.admission import Admission
from pilotage.server.http.connection_limits import ConnectionLimits
from pilotage.server.http.http_messages import answer_bytes
from pilotage.server.http.pilot_endpoints import PilotEndpoint, error_answer
from pilotage.server.http.request_cycle import Cycle
from pilotage.server.http.timed_connection import Phase, TimedConnection


class AnsweringConnection(TimedConnection):
    """A connection that answers the request it has read, then waits for the next one or closes."""

    def __init__(
        self,
        context: Context,
        admission: Admission,
        limits: ConnectionLimits,
        state: ServerState,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(admission, limits, loop)
        self._context = context
        self._state = state
        self._close_after_answer = False
        """The connection closes after the answer to this request."""
        self._reset_request()

    def _reset_request(self) -> None:
        """Clear the state of the last request, before the next one is read."""
        self._fields: list[tuple[bytes, bytes]] = []
        self._unique_fields: dict[bytes, bytes] = {}
        """Header fields that must not be repeated, because they decide how the request is read."""
        self._url = b""
        self._header_bytes = 0
        """Bytes received since the request began, or since the last piece of its body: header or trailer."""
        self._header_complete = False
        self._request_over = False
        """The request was received completely, or refused."""
        self._has_unread_data = False
        """More data follows the request and is not read."""
        self._endpoint: PilotEndpoint | None = None
        """Set if the request is a pilot's call."""
        self._cycle: Cycle | None = None
        """Set if the application answers the request."""
        self._token = ""
        self._expects_continue = False
        """The client waits for "100 Continue" before it sends the body."""
        self._token_checked = False
        """The token was looked up, or is being looked up, before more of the body is read."""
        self._body: bytes | bytearray = b""
        self._size = self._window_size = 0

    @property
    def closes_after_answer(self) -> bool:
        return self._close_after_answer or not self._request_over

    def shutdown(self) -> None:
        """Accept no further request: the server is stopping (called by uvicorn)."""
        self._close_after_answer = True
        if not self._request_over and self._cycle is None:
            self._transport.close()

    # --- flow control, called by asyncio

    def pause_writing(self) -> None:
        """Stop reading as well while the peer does not read its answer."""
        self._flow.pause_writing()
        self._flow.pause_reading()

    def resume_writing(self) -> None:
        self._flow.resume_writing()
        if len(self._body) <= HIGH_WATER_LIMIT and not self._has_unread_data:
            self._flow.resume_reading()

    # --- answers

    def _refuse(self, error: BaseException) -> None:
        if not self._request_over:
            # The rest of the request is not read.
            self._request_over = self._close_after_answer = self._has_unread_data = True
            self._fields, self._unique_fields, self._body = [], {}, b""
        if self._cycle is not None:
            self._disconnect_cycle()
            if self._cycle.response_started:
                self._transport.abort()
                return
        self._send_answer(*error_answer(error))

    def _send_answer(self, status: int, payload: bytes, retry_after: int = 0) -> None:
        if self._transport.is_closing():
            return
        self._state.total_requests += 1
        fields = self._state.default_headers
        self.write(answer_bytes(status, payload, fields, retry_after, close=self._close_after_answer))
        if self._close_after_answer:
            self.end()
        else:
            self._wait_for_next_request()

    def responded(self) -> None:
        """Continue after the application has written the end of its answer."""
        self._state.total_requests += 1
        if self.is_closing():
            return
        if self._close_after_answer:
            self.end()
        else:
            self._wait_for_next_request()

    def _wait_for_next_request(self) -> None:
        self._reset_request()
        if not self._trusted:
            self._admission.mark_idle(self)
        self._enter(Phase.IDLE, self._limits.idle if self._trusted else self._limits.first_byte)
        if not self._flow.write_paused:
            self._flow.resume_reading()

    def _close_after_early_data(self) -> None:
        """Read no further, and close after the answer: data arrived before the answer was sent."""
        self._close_after_answer = self._has_unread_data = True
        if self._phase is not Phase.LINGER:
            self._flow.pause_reading()

    def end(self) -> None:
        """Close once everything is written.

        With unread data the connection lingers first: closing it then would send a reset in place of the answer.
        """
        if self.is_closing():
            return
        if not self._trusted:
            self._admission.mark_idle(self)
        if self._has_unread_data or not self._request_over:
            self._request_over = True
            self._enter(Phase.LINGER, self._limits.linger)
            if self._transport.can_write_eof():  # TLS cannot
                self._transport.write_eof()
            self._flow.resume_reading()
        else:
            self._close()

    # --- work in the background

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def _disconnect_cycle(self) -> None:
        """Tell the application that its answer is no longer needed."""
        cycle = self._cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self._flow.resume_writing()
