"""Runs a server whose decisions are recorded."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from pathlib import Path

import msgspec

from pilotage import __version__
from pilotage.core.errors import Conflict
from pilotage.server.context import Context
from pilotage.server.http.app import Application
from pilotage.server.process.front import HttpFront
from pilotage.server.process.recorded_rim import RecordedRim, stream
from pilotage.server.process.run import run_server
from pilotage.server.process.settings import Settings
from pilotage.server.recording.front import MessageGate, ThreadOfConnections
from pilotage.server.recording.lines import FORMAT, ReceivedMessage, RecordBegin, ServerAt
from pilotage.server.recording.loop import DecisionLoop
from pilotage.server.recording.messages import MessageService, plain_routes_inline
from pilotage.server.recording.recorder import Recorder, RecordFile
from pilotage.server.recording.redaction import RecordedSecrets, Redaction, SeededSecrets
from pilotage.server.recording.tape import WholeAnswer
from pilotage.store.engine.connection import WriterConnection
from pilotage.store.tables import instance
from pilotage.store.tables.digests import digest_of_tables


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


log = logging.getLogger(__name__)


def serve_recorded(
    settings: Settings, connection: WriterConnection, listener: socket.socket, path: Path
) -> None:
    """Run a server on an open store until it is stopped, and write the record of it."""
    begin, started = time.time(), time.monotonic()
    redaction = Redaction(secrets.token_bytes(32))
    copy = _copy_of_store(settings, connection, path)
    file = RecordFile(path, settings.record_limit)
    recorder = Recorder(file, redaction, lambda: begin + time.monotonic() - started)
    seed = secrets.token_hex(16)
    front = RecordedFront(settings, listener, recorder, redaction, replay_key(seed))
    header = RecordBegin(
        FORMAT,
        __version__,
        begin,
        seed,
        _server_at(settings, connection, front.url),
        copy,
    )
    file.write(header)
    own_secrets = RecordedSecrets(secrets, SeededSecrets(stream(seed, "secrets")), redaction)

    def make_loop() -> DecisionLoop:
        return DecisionLoop(begin, recorder)

    log.warning("the server records its messages in %s", path)
    with plain_routes_inline(), asyncio.Runner(loop_factory=make_loop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, DecisionLoop)
        rim = RecordedRim(header, recorder, loop, front, own_secrets)
        runner.run(run_server(settings, connection, rim))
        recorder.ended(lambda: digest_of_tables(connection))


def replay_key(seed: str) -> str:
    """The key that signs the tokens of people at a replay. The server itself never accepts it."""
    return stream(seed, "key").randbytes(36).hex()


def _server_at(settings: Settings, connection: WriterConnection, url: str) -> ServerAt:
    return ServerAt(
        url=url,
        hostname=socket.gethostname(),
        owner=settings.owner,
        storage=str(settings.home.storage),
        node=msgspec.to_builtins(settings.node),
        pilot_server=settings.pilot_server,
        policy=settings.policy,
        least_free=settings.least_free,
        dialect=connection.dialect,
    )


def _copy_of_store(settings: Settings, connection: WriterConnection, path: Path) -> str:
    """Copy a store that has a history beside the record. Returns the name of the copy; empty: it has none."""
    if instance.load(connection) is None:
        return ""
    if settings.home.database.file is None:
        raise Conflict(
            f"the database {settings.home.database.shown} has a history already",
            hint="a record of a server on PostgreSQL begins with an empty database",
        )
    copy = path.with_name(f"{path.name}.store")
    settings.home.database.backup(copy)
    return copy.name
