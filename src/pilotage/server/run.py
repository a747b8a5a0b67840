"""One server from start to end: everything is put together here, in the order in which it must happen."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass

import uvicorn
import uvloop

from pilotage.core import policy as policies
from pilotage.core.errors import Conflict
from pilotage.outside.batch.local import LocalBatch
from pilotage.outside.batch.script import pilot_program
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.server.app import build
from pilotage.server.bulk import Bulk
from pilotage.server.context import Context
from pilotage.server.duties import (
    LEASE_PERIOD,
    PRIORITY_PERIOD,
    QUEUE_PERIOD,
    LeaseDuty,
    LocalCeDuty,
    LocalCesDuty,
    PriorityDuty,
    QueueDuty,
    ShareDuty,
    every,
    fill_index,
    finish_submissions,
    forget_unaccepted,
)
from pilotage.server.home import Home, HomeLock
from pilotage.server.retention import RetentionDuty
from pilotage.server.tokens import Issuer, signing_key, write_private
from pilotage.server.waiting import ReasonDuty
from pilotage.services.making import AIM, AIM_ELSEWHERE, Pace
from pilotage.services.offers import capacity
from pilotage.services.pool import Pool, open_pool
from pilotage.services.provisioning import LocalDirector
from pilotage.services.sharing import UseBook
from pilotage.store import instance
from pilotage.store.connection import WriterConnection
from pilotage.store.writer import Transaction, Writer
from pilotage.wire.pilot import Node

log = logging.getLogger(__name__)

DRAIN_POLL = 0.5

GARBAGE = 20_000
"""So many new objects are looked through at once for those that hold each other and nobody else holds."""
OURS = ("PILOTAGE_", "PG")
"""Variables that begin so are the server's and its database's: pilots do not get them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server is told at its start."""

    home: Home
    host: str
    port: int
    """0: the port of the last start, or any free one."""
    pilot_server: str
    """The address that pilots are told; empty: the server's own."""
    owner: str
    node: Node
    """What a pilot on this machine finds."""
    announce: Callable[[str], None]
    """Told one line when the server is ready."""


def serve(settings: Settings) -> None:
    """Run until told to stop. Raises errors of `core.errors` for what a person must put right."""
    home = settings.home
    home.make()
    home.check_disk()
    lock = HomeLock(home)
    lock.acquire()
    listener = None
    try:
        home.check_database()
        listener = _listen(settings)
        connection = home.database.open(home.folder / "backups", time.strftime("%Y%m%dT%H%M%S"))
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_Server(settings, connection, listener).run())
        finally:
            connection.close()
    finally:
        if listener is not None:
            listener.close()
        lock.release()


def _listen(settings: Settings) -> socket.socket:
    """The listening socket. Pilots of the last server look for it where it was."""
    known = settings.home.known_facts()
    port = settings.port
    if not port and known is not None:
        port = int(known.url.rpartition(":")[2])
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by its connections: head and body of an answer are two writes, and must not wait for each other.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((settings.host, port))
    except OSError as error:
        listener.close()
        hint = "choose another with --port"
        if not settings.port:
            hint += "; pilots of the last server then no longer find this one, and their jobs start again elsewhere"
        raise Conflict(
            f"port {port} of {settings.host} cannot be used: {error.strerror}", hint=hint
        ) from None
    listener.listen(1024)
    return listener


class _Server:
    def __init__(self, settings: Settings, connection: WriterConnection, listener: socket.socket) -> None:
        self._settings = settings
        self._connection = connection
        self._listener = listener
        self._writer = Writer(connection)
        self._readers = settings.home.database.readers()
        self._local: LocalCesDuty | None = None

    async def run(self) -> None:
        self._writer.start()
        try:
            context = self._context()
            if self._connection.dialect == "sqlite":
                self._writer.move_to(asyncio.get_running_loop())
            await self._serve(context)
        finally:
            self._writer.stop()
            self._readers.close()

    def _context(self) -> Context:
        settings, home = self._settings, self._settings.home
        found, pool = self._writer.call(self._load)
        home.bind(found.uuid)
        host, port = self._listener.getsockname()
        url = f"http://{host}:{port}"
        on_file = self._connection.dialect == "sqlite"
        issuer = Issuer(signing_key(home.folder / "secrets" / "signing.key"), found.uuid)
        context = Context(
            pool=pool,
            writer=self._writer,
            readers=self._readers,
            issuer=issuer,
            instance=found.uuid,
            sandbox=DirectorySandbox(home.folder / "sandboxes"),
            clock=time.time,
            program=pilot_program(),
            url=url,
            pilot_url=settings.pilot_server or url,
            book=UseBook(pool.policy.accounting.history),
            bulk=Bulk(self._writer, Pace(time.perf_counter, AIM if on_file else AIM_ELSEWHERE)),
            capacity=lambda name: capacity(pool.policy.ces[name], settings.node),
        )
        if settings.owner in pool.policy.users:
            user = pool.policy.users[settings.owner]
            token, _ = issuer.issue(settings.owner, user.groups[0], context.clock())
            write_private(home.token, token)
        return context

    def _load(self, tx: Transaction) -> tuple[instance.Instance, Pool]:
        """Everything that the pool keeps in memory, read from the store; made at the first start."""
        connection, now, owner = tx.connection, time.time(), self._settings.owner
        found = instance.load(connection)
        if found is None:
            self._settings.home.check_new()
            found = instance.create(connection, str(uuid.uuid4()), now)
        current = instance.current_policy(connection)
        if current is None:
            text = policies.initial(owner, socket.gethostname().partition(".")[0] or "home")
            instance.save_policy(connection, text=text, now=now, by=owner, reason="the first start")
            current = instance.current_policy(connection)
            assert current is not None
        policy = policies.parse(current.text)
        pool = open_pool(
            tx,
            policy,
            version=current.version,
            incarnation=found.incarnation,
            rng=random.Random(),  # noqa: S311
            home_owner=owner,
            id_floor=found.id_floor,
            filled=False,
        )
        return found, pool

    async def _serve(self, context: Context) -> None:
        config = uvicorn.Config(
            build(context),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
            limit_concurrency=None,
            timeout_keep_alive=75,
            h11_max_incomplete_event_size=65536,
        )
        server = _Uvicorn(config)
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, context.stop.set)
        # An outage is credited before the first pilot or duty can see an old lease.
        leases = LeaseDuty(context)
        await leases.cycle()
        await forget_unaccepted(context)
        serving = asyncio.create_task(server.serve(sockets=[self._listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        self._settings.home.write_facts(context.url)
        self._settings.announce(context.url)
        # Pilots report and are leased from now on; what is decided by the waiting jobs waits until they are counted.
        living = every(context, lambda: LEASE_PERIOD, leases.cycle)
        await asyncio.gather(living, self._with_all_counted(context))
        await self._part_from_pilots(context)
        server.should_exit = True
        await serving

    async def _with_all_counted(self, context: Context) -> None:
        await fill_index(context)
        # What was read stays: looking through it for cycles again and again took a twelfth of the time of a match.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GARBAGE, 20, 50)
        await finish_submissions(context)
        await asyncio.gather(*self._duties(context))

    def _duties(self, context: Context) -> list[Coroutine[None, None, None]]:
        queues, shares = QueueDuty(context), ShareDuty(context)
        reasons = ReasonDuty(context)
        retention = RetentionDuty(context, self._settings.home.folder / "pilots")
        running = [
            every(context, lambda: PRIORITY_PERIOD, PriorityDuty(context).cycle),
            every(context, shares.period, shares.cycle, context.wake_shares),
            every(context, lambda: QUEUE_PERIOD, queues.cycle),
            every(context, reasons.period, reasons.cycle),
            every(context, retention.period, retention.cycle),
        ]
        self._local = LocalCesDuty(context, lambda name: self._local_ce(context, name))
        running.append(every(context, self._local.period, self._local.cycle, context.wake_director))
        return running

    def _local_ce(self, context: Context, name: str) -> LocalCeDuty:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        director = LocalDirector(name, self._settings.node)
        logs = self._settings.home.folder / "pilots"
        return LocalCeDuty(context, director, LocalBatch(environment), logs, sys.executable)

    async def _part_from_pilots(self, context: Context) -> None:
        """As `down` has asked: wait for running jobs, end the pilots, or leave them alone."""
        if context.stopping not in ("drain", "cancel") or self._local is None:
            return
        context.pool.draining = True
        context.stop.clear()
        if context.stopping == "cancel":
            await self._local.cancel_all()
        while not context.stop.is_set() and await asyncio.to_thread(self._local.anybody):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(context.stop.wait(), DRAIN_POLL)


class _Uvicorn(uvicorn.Server):
    """Signals are ours: uvicorn's own handling would end the connections before the duties have ended."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
