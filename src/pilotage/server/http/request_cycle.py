"""One request that the application answers, over one of our connections."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState


class CycleConnection(Protocol):
    """The part of a connection that a cycle uses."""

    @property
    def closes_after_answer(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def is_closing(self) -> bool: ...
    def responded(self) -> None: ...


class Cycle(RequestResponseCycle):
    """uvicorn's cycle; it closes the connection after the answer if the connection requires that."""

    def __init__(
        self,
        connection: CycleConnection,
        scope: dict[str, Any],
        flow: FlowControl,
        state: ServerState,
        expects_continue: bool,
        keep_alive: bool,
    ) -> None:
        logger = logging.getLogger("uvicorn.error")
        super().__init__(
            scope=scope,  # type: ignore[arg-type]
            transport=cast("asyncio.Transport", _TransportAdapter(connection)),
            flow=flow,
            logger=logger,
            access_logger=logger,
            access_log=False,
            default_headers=state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=expects_continue,
            keep_alive=keep_alive,
            on_response=connection.responded,
        )
        self._connection = connection

    async def send(self, message: Any) -> None:
        if not self.response_started and self._connection.closes_after_answer:
            self.keep_alive = False
        await super().send(message)


class _TransportAdapter:
    """The part of a transport that a cycle uses."""

    def __init__(self, connection: CycleConnection) -> None:
        self.write = connection.write
        self.close = connection.end
        self.is_closing = connection.is_closing
