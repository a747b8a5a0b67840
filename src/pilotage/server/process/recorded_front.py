"""The connections of a recorded server."""

from __future__ import annotations

import asyncio
import socket

from pilotage.server.context import Context
from pilotage.server.http.app import Application
from pilotage.server.process.front import HttpFront
from pilotage.server.process.settings import Settings
from pilotage.server.recording.front import MessageGate, ThreadOfConnections
from pilotage.server.recording.lines import ReceivedMessage
from pilotage.server.recording.messages import MessageService
from pilotage.server.recording.recorder import Recorder
from pilotage.server.recording.redaction import Redaction
from pilotage.server.recording.tape import WholeAnswer


class RecordedFront(HttpFront):
    """Connections in a thread of their own. Each request goes to the decisions as a whole, and into the record."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        recorder: Recorder,
        redaction: Redaction,
        replay_key: str,
    ) -> None:
        """`replay_key`: signs the tokens of people in the record."""
        super().__init__(settings, listener)
        self._recorder = recorder
        self._redaction = redaction
        self._replay_key = replay_key
        self._connections = ThreadOfConnections(recorder)

    async def start(self, context: Context, application: Application) -> None:
        recorder = self._recorder
        issuer, redaction, key = context.tokens.issuer, self._redaction, self._replay_key
        redaction.resign = lambda token: issuer.signed_with(key, token, redaction.shown)
        gate = MessageGate(context, recorder)

        def answered(message: ReceivedMessage, answer: WholeAnswer) -> None:
            recorder.answered(message, answer)
            gate.answered(message, answer)

        recorder.serve = MessageService(context, application, answered).serve
        self._server = self._http_server(context, gate, pilot_calls=False)
        self._connections.start(self._listen)
        self._server.has_started.wait()

    async def stop(self) -> None:
        ended = asyncio.get_running_loop().create_future()
        self._recorder.listening_ended = lambda: ended.set_result(None)
        self._server.should_exit = True
        await ended
