"""One of two servers on a PostgreSQL database: its real routes, duties and writer, in a thread of its own.

Both have one clock, which a test moves. A server begins each case with a new memory, and keeps its sessions.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from random import Random
from threading import Thread
from typing import Any, NamedTuple, TypeVar

import msgspec

from pilotage.core import policy as policies
from pilotage.server.duties.duty_leases import FencedWriter
from pilotage.server.http import routes
from pilotage.server.http.pilot_endpoints import ENDPOINTS
from pilotage.server.process.home import Home
from pilotage.server.recording.redaction import SeededSecrets
from pilotage.server.tokens import Caller
from pilotage.services.pool.database_peers import DatabasePeers
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.services.pool.token_state import read_token_state
from pilotage.services.shares.corrections import read_corrections
from pilotage.store.cluster import changes
from pilotage.store.cluster.id_allocator import BlockIds, Counters
from pilotage.store.postgresql.connection import PostgresqlConnection
from pilotage.store.tables import instance
from pilotage.store.writer.transaction import Transaction
from pilotage.twin.chance import Streams
from pilotage.twin.server import OWNER, TwinServer, TwinServerSettings, caller
from pilotage.wire.call import ApiCall
from tests.deadlines import PATIENCE

Answer = TypeVar("Answer")
_encode = msgspec.json.Encoder().encode


NO_CLIENTS: Any = None
SERVERS = ("first", "second", "third")
IDS = 1_000_000
"""Ids of each kind that a server has."""


class VirtualClock:
    """The clock of both servers and of their database."""

    def __init__(self, now: float, moved: Callable[[float], None]) -> None:
        self.now, self._moved = now, moved

    def __call__(self) -> float:
        return self.now

    def set(self, now: float) -> None:
        self.now = now
        self._moved(now)


class PairServer(TwinServer):
    """A server that does only what it is told to."""

    connection: PostgresqlConnection

    def __init__(self, number: int, folder: Path, database: str, clock: VirtualClock) -> None:
        """`number`: its place in SERVERS."""
        self.name = name = SERVERS[number]
        self._settings = TwinServerSettings(folder, "", Streams(1), NO_CLIENTS, clock=clock)
        self._home = Home.at(folder, database)
        self._home.make()
        self._clock = self._monotonic = clock
        opened = self._home.database.open(folder / "backups", "pairs")
        assert isinstance(opened, PostgresqlConnection)
        self.connection = opened
        self._readers = self._home.database.readers()
        self._number = number
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(ThreadPoolExecutor(1))
        self._thread = Thread(target=self.loop.run_forever, name=f"server {name}", daemon=True)
        self._thread.start()
        self._writer = FencedWriter(self.connection, commits_inline=True)
        self._run(self._begin())
        self.connection.bind_to_server(name)

    async def _begin(self) -> None:
        self._writer.move_to_loop(self.loop)

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def forget_all(self, chance: str = "") -> None:
        """Begin with the memory of a server that has just started, and is registered already.

        `chance`: the name of its random numbers.
        """

        async def begin() -> None:
            self._chance = f"{self.name} {chance}"
            self._first_id = IDS * (1 + self._number + (len(SERVERS) if chance else 0))
            self.context = self._context()

        self._run(begin())

    def _load(self, tx: Transaction) -> tuple[str, Pool]:
        connection = tx.connection
        loaded = instance.load(connection)
        current = instance.current_policy(connection)
        assert loaded is not None
        assert current is not None
        pool = open_pool(
            tx,
            _parsed(current.text),
            version=current.version,
            incarnation=loaded.incarnation,
            rng=Random(self._chance),
            secrets=SeededSecrets(Random(self._chance)),
            home_owner=OWNER,
            peers=DatabasePeers(self.name, position=changes.oldest_open_transaction(connection)),
            counters=OwnIds(self._first_id),
        )
        pool.server.home_storage = str(self._home.storage)
        pool.server.token_state = read_token_state(connection, self._clock())
        read_corrections(pool, tx)
        return loaded.uuid, pool

    def begin(self, work: Work) -> Future[Any]:
        """Start what a server does."""
        return asyncio.run_coroutine_threadsafe(work.run(self), self.loop)

    def do(self, work: Work) -> Any:
        """What a server does, and its result."""
        return self.begin(work).result(PATIENCE)

    def write(self, request: Callable[[Transaction], Answer]) -> Answer:
        """One transaction."""
        return self._run(self.context.writer.acall(request))

    def caller(self, user: str, group: str) -> Caller:
        return caller(user, group, self.context.pool.policy.properties(user, group))

    def end(self) -> None:
        async def stop() -> None:
            self._writer.stop()
            await self.loop.shutdown_default_executor()

        self._run(stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()
        self._readers.close()
        self.connection.close()


class Work(NamedTuple):
    """One thing that a server does: a request of a person, an agent or a pilot, or a cycle of a duty."""

    serves: str
    """The key of the call, or the class of the duty."""
    run: Callable[[PairServer], Coroutine[Any, Any, Any]]


class OwnIds(Counters):
    """Each server has ids of its own, the same ones in each case: no order of two transactions changes them."""

    def __init__(self, first: int) -> None:
        self._first = first

    def raise_floor(self, name: str, floor: int) -> None:
        """No id that is used is given."""

    def numbers(self, name: str) -> BlockIds:
        return BlockIds(lambda count: self._first, IDS)


@cache
def _parsed(text: str) -> policies.Policy:
    return policies.parse(text)


@cache
def handlers() -> dict[str, Any]:
    """The functions of all routes, by the key of their call."""
    made = {}
    for module in iter_modules(routes.__path__):
        router = getattr(import_module(f"{routes.__name__}.{module.name}"), "router", None)
        for route in [] if router is None else router.routes:
            for method in route.methods:
                made[f"{method} {route.path}"] = route.endpoint
    return made


def call(
    api: ApiCall[Any, Any], body: object = None, /, *parts: object, user: str = "alice", group: str = "admin"
) -> Work:
    """A call of the HTTP API, by the function of its route."""

    async def run(server: PairServer) -> Any:
        given = [*parts, *([] if body is None else [body]), server.context, server.caller(user, group)]
        result = handlers()[api.key](*given)
        return await result if inspect.isawaitable(result) else result

    return Work(api.key, run)


def pilot_call(api: ApiCall[Any, Answer], body: object, token: str = "") -> Work:
    """A message of a pilot."""

    async def run(server: PairServer) -> Any:
        message = ENDPOINTS[api.path].decode(server.context, token, _encode(body))
        result = await message.run(server.context.writer)
        return msgspec.json.decode(message.encode(result), type=api.answer)

    return Work(api.key, run)
