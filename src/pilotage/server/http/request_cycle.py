"""One request that the application answers, over one of our connections."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol, cast

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.protocols.utils import get_local_addr, get_remote_addr

from pilotage.server.http.request_reader import IncomingRequest


class CycleConnection(Protocol):
    """The part of a connection that a cycle uses. It takes the place of a transport, too."""

    flow: FlowControl

    @property
    def closes_after_answer(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def is_closing(self) -> bool: ...
    def responded(self) -> None: ...


class Cycle(RequestResponseCycle):
    """uvicorn's cycle; it closes the connection after the answer if the connection requires that."""

    starts_early = True

    def __init__(
        self,
        connection: CycleConnection,
        request: IncomingRequest,
        scope: dict[str, Any],
        default_headers: list[tuple[bytes, bytes]],
    ) -> None:
        logger = logging.getLogger("uvicorn.error")
        super().__init__(
            scope=scope,  # type: ignore[arg-type]
            transport=cast("asyncio.Transport", connection),
            flow=connection.flow,
            logger=logger,
            access_logger=logger,
            access_log=False,
            default_headers=default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=request.expects_continue,
            keep_alive=request.version == "1.1" and request.keep_alive,
            on_response=connection.responded,
        )
        self._connection = connection
        self.changes = request.method not in (b"GET", b"HEAD")

    @property
    def wants_body(self) -> bool:
        return len(self.body) <= HIGH_WATER_LIMIT

    def add_body(self, data: bytes | bytearray) -> None:
        self.body += data
        self.message_event.set()

    def complete(self) -> None:
        self.more_body = False
        self.message_event.set()

    def abandon(self) -> None:
        if not self.response_complete:
            self.disconnected = True
            self.message_event.set()

    async def send(self, message: Any) -> None:
        if not self.response_started and self._connection.closes_after_answer:
            self.keep_alive = False
        await super().send(message)


def scope_of(request: IncomingRequest, transport: asyncio.Transport, state: dict[str, Any]) -> dict[str, Any]:
    """The ASGI scope of a request. Raises `InvalidInput` if its URL has no path."""
    path, raw_path, query = request.target()
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.version,
        "server": get_local_addr(transport),
        "client": get_remote_addr(transport),
        "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
        "method": request.method.decode("ascii"),
        "root_path": "",
        "path": path,
        "raw_path": raw_path,
        "query_string": query,
        "headers": request.fields,
        "state": state,
    }
