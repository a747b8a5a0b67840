"""One request and its answer by the application, over a connection of ours."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState


class Connection(Protocol):
    """What a cycle needs of its connection."""

    @property
    def ends_with_answer(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def is_closing(self) -> bool: ...
    def responded(self) -> None: ...


class Cycle(RequestResponseCycle):
    """uvicorn's cycle, whose answer ends the connection where ours says so."""

    def __init__(
        self,
        connection: Connection,
        scope: dict[str, Any],
        flow: FlowControl,
        state: ServerState,
        waits_to_send: bool,
        keep_alive: bool,
    ) -> None:
        logger = logging.getLogger("uvicorn.error")
        super().__init__(
            scope=scope,  # type: ignore[arg-type]
            transport=cast("asyncio.Transport", _Outlet(connection)),
            flow=flow,
            logger=logger,
            access_logger=logger,
            access_log=False,
            default_headers=state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=waits_to_send,
            keep_alive=keep_alive,
            on_response=connection.responded,
        )
        self._connection = connection

    async def send(self, message: Any) -> None:
        if not self.response_started and self._connection.ends_with_answer:
            self.keep_alive = False
        await super().send(message)


class _Outlet:
    """What a cycle uses of a transport."""

    def __init__(self, connection: Connection) -> None:
        self.write = connection.write
        self.close = connection.end
        self.is_closing = connection.is_closing
