"""One server from start to end: everything is put together here, in the order in which it must happen."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
import uvloop

from pilotage.core import policy as policies
from pilotage.outside.batch.local import LocalBatch
from pilotage.outside.batch.script import pilot_program
from pilotage.outside.batch.slurm import adapter as slurm
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.server import disk_space
from pilotage.server.context import Context
from pilotage.server.disk_space import LEAST_FREE, DiskDuty, DiskSpace, Reserve
from pilotage.server.duties.batch_ces import BATCH_PERIOD, BatchCeDuty, BatchCesDuty
from pilotage.server.duties.batch_clients import slurm_client
from pilotage.server.duties.duty_leases import RENEWED, DutyLeases, FencedWriter
from pilotage.server.duties.leases import LEASE_PERIOD, LeaseDuty
from pilotage.server.duties.local_ces import LocalCeDuty, LocalCesDuty
from pilotage.server.duties.loop import every, until_stopped
from pilotage.server.duties.peers import (
    FOLLOWS,
    LIMITS,
    WATCHES,
    DatabaseClock,
    PeersDuty,
    describe_server,
)
from pilotage.server.duties.queues import QUEUE_PERIOD, QueueDuty
from pilotage.server.duties.retention import RetentionDuty
from pilotage.server.duties.shares import PRIORITY_PERIOD, LedgerDuty, PriorityDuty, ShareDuty
from pilotage.server.duties.startup import finish_submissions, forget_unaccepted, load_index
from pilotage.server.duties.wait_reasons import ReasonDuty
from pilotage.server.home_token import HomeToken
from pilotage.server.http.admission import Admission
from pilotage.server.http.app import build_application
from pilotage.server.http.connection_limits import (
    MAX_CONNECTIONS,
    MAX_PER_ADDRESS,
    Capacity,
    ConnectionLimits,
    raise_file_limit,
)
from pilotage.server.http.http_protocol import http_protocol_factory
from pilotage.server.http.sockets import accept_handles, listen
from pilotage.server.process import gc_tuning
from pilotage.server.process.home import Home, HomeLock
from pilotage.server.submission_gate import SubmissionGate
from pilotage.server.tokens import Issuer, fingerprint, signing_key
from pilotage.services.director.batch import BatchDirector
from pilotage.services.director.local import LocalDirector
from pilotage.services.peers.membership import evict_server, join
from pilotage.services.pool.database_peers import DatabasePeers
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.peers import NoPeers, Peers
from pilotage.services.pool.state import Pool
from pilotage.services.shares.corrections import UseBook, read_corrections
from pilotage.services.submission.job_creation import AIM, POSTGRESQL_TARGET, ChunkPace
from pilotage.store.engine.connection import WriterConnection
from pilotage.store.tables import instance
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from pilotage.wire.pilot import Node

log = logging.getLogger(__name__)

DRAIN_POLL = 0.5

LEFT_BEHIND = 30.0
LEDGER_PERIOD = 60.0
DUTIES = (
    *("leases", "shares", "queues", "reasons", "retention", "local pilots", "batch pilots"),
    *("servers", "limits", "submissions"),
)
"""Each is carried out by one of the servers."""
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
    sandboxes: Path | None = None
    """The folder of sandboxes, where it is not the home's own."""
    least_free: int = LEAST_FREE
    """MB of a disk below which nothing new is accepted."""
    connections: int = MAX_CONNECTIONS
    """How many may be open, as far as the limit of open files allows."""
    connections_per_address: int = MAX_PER_ADDRESS
    """How many of them from one address without a valid token."""


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
    hint = "choose another with --port"
    if not settings.port:
        hint += (
            "; pilots of the last server then no longer find this one, and their jobs start again elsewhere"
        )
    return listen(settings.host, port, hint)


class _Server:
    def __init__(self, settings: Settings, connection: WriterConnection, listener: socket.socket) -> None:
        self._settings = settings
        self._connection = connection
        self._listener = listener
        self._readers = settings.home.database.readers()
        self._counters = settings.home.database.counters()
        self._hints = settings.home.database.notifications()
        self._writer = Writer(connection) if self._counters is None else FencedWriter(connection)
        self._clock = DatabaseClock(self._readers) if self._counters is not None else time.time
        self._local: LocalCesDuty | None = None
        self._batch: BatchCesDuty | None = None
        room, self._files_before = raise_file_limit(settings.connections)
        self._admission = Admission(Capacity(room, settings.connections_per_address))

    async def run(self) -> None:
        self._writer.start()
        try:
            context = self._context()
            gc_tuning.take_short_turns()
            if self._connection.dialect == "sqlite":
                self._writer.move_to_loop(asyncio.get_running_loop())
            await self._serve(context)
            if context.ended_by is None and context.pool.peers.shared:
                name = context.pool.peers.server
                await self._writer.acall(lambda tx: evict_server(tx, name, self._clock()))
        finally:
            self._writer.stop()
            self._readers.close()
            if self._counters is not None:
                self._counters.close()
        if context.ended_by is not None:
            raise context.ended_by

    def _context(self) -> Context:
        settings, home = self._settings, self._settings.home
        key = signing_key(home.folder / "secrets" / "signing.key")
        sandbox = DirectorySandbox(settings.sandboxes or home.folder / "sandboxes")
        host, port = self._listener.getsockname()
        url = f"http://{host}:{port}"
        found, pool = self._writer.call(lambda tx: self._load(tx, url, fingerprint(key), sandbox.mark()))
        if pool.peers.shared:
            self._connection.bind_to_server(pool.peers.server)
        home.bind(found.uuid)
        on_file = self._connection.dialect == "sqlite"
        issuer = Issuer(key, found.uuid)
        context = Context(
            pool=pool,
            writer=self._writer,
            readers=self._readers,
            issuer=issuer,
            instance=found.uuid,
            sandbox=sandbox,
            clock=self._clock,
            program=pilot_program(),
            url=url,
            pilot_url=settings.pilot_server or url,
            book=UseBook(pool.policy.accounting.history),
            space=self._space(sandbox),
            home_token=HomeToken(home.token, issuer, settings.owner, lambda: pool.policy, self._clock),
            in_loop=on_file,
            bulk=SubmissionGate(
                self._writer, ChunkPace(time.perf_counter, AIM if on_file else POSTGRESQL_TARGET)
            ),
        )
        context.home_token.write()
        return context

    def _space(self, sandbox: DirectorySandbox) -> DiskSpace:
        """The disks that this server writes to; that of a database elsewhere tells of itself by its errors."""
        least, file = self._settings.least_free, self._settings.home.database.file
        if file is None:
            return DiskSpace({"sandboxes": sandbox.folder}, least=least)
        reserve = Reserve(file.with_name(file.name + ".reserve"))
        return DiskSpace({"database": file.parent, "sandboxes": sandbox.folder}, reserve, least)

    def _load(self, tx: Transaction, url: str, key: str, sandboxes: str) -> tuple[instance.Instance, Pool]:
        """Everything that the pool keeps in memory, read from the store; made at the first start.

        `key` and `sandboxes` are what all servers of one database have in common.
        """
        connection, now, owner = tx.connection, self._clock(), self._settings.owner
        found = instance.load(connection)
        if found is None:
            self._settings.home.check_new()
            found = instance.create(connection, str(uuid.uuid4()), now)
        if self._counters is not None:
            # A policy that is just being applied is waited for: this server would hear of it neither here nor later.
            instance.lock_row(connection)
        current = instance.current_policy(connection)
        if current is None:
            text = policies.initial(owner, socket.gethostname().partition(".")[0] or "home")
            instance.save_policy(connection, text=text, now=now, by=owner, reason="the first start")
            current = instance.current_policy(connection)
            assert current is not None
        policy = policies.parse(current.text)
        peers: Peers = NoPeers()
        if self._counters is not None:
            server = describe_server(url, current.version, now)
            peers = join(tx, server, in_common=(key, sandboxes), monotonic=time.monotonic)
        pool = open_pool(
            tx,
            policy,
            version=current.version,
            incarnation=found.incarnation,
            rng=random.Random(),  # noqa: S311
            home_owner=owner,
            id_floor=found.id_floor,
            load=False,
            peers=peers,
            counters=self._counters,
        )
        if peers.shared:
            read_corrections(pool, tx)
        return found, pool

    async def _serve(self, context: Context) -> None:
        config = uvicorn.Config(
            build_application(context),
            http=http_protocol_factory(context, self._admission, ConnectionLimits()),
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=5,
            limit_concurrency=None,
        )
        server = _Uvicorn(config)
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, context.stop.set)
        peers, duty_leases = context.pool.peers, None
        if peers.shared:
            duty_leases = DutyLeases(self._writer, peers.server, DUTIES)
        # An outage is credited before the first pilot or duty can see an old lease.
        leases = LeaseDuty(context, duty_leases)
        await leases.cycle()
        if duty_leases is None:
            await forget_unaccepted(context)
        else:
            await duty_leases.begin()
        listening = asyncio.create_task(server.serve(sockets=accept_handles(self._listener)))
        while not server.started and not listening.done():
            await asyncio.sleep(0.01)
        self._settings.home.write_facts(context.url)
        self._settings.announce(context.url)
        # Pilots report and are leased from now on; what is decided by the waiting jobs waits until they are counted.
        space = DiskDuty(
            context.space, lambda: self._writer.acall(lambda tx: instance.write_unchanged(tx.connection))
        )
        living = [
            every(context, lambda: LEASE_PERIOD, leases.cycle),
            every(context, lambda: disk_space.PERIOD, space.cycle),
        ]
        if duty_leases is not None:
            living.append(every(context, lambda: RENEWED, duty_leases.renew))
        await asyncio.gather(*living, self._with_all_counted(context, duty_leases))
        await self._part_from_pilots(context)
        if self._batch is not None:
            await self._batch.close()
        server.should_exit = True
        await listening

    async def _with_all_counted(self, context: Context, duty_leases: DutyLeases | None) -> None:
        await load_index(context)
        gc_tuning.freeze_gc()
        if duty_leases is None:
            await finish_submissions(context)
        await asyncio.gather(*self._duties(context, duty_leases))

    def _duties(self, context: Context, duty_leases: DutyLeases | None) -> list[Coroutine[None, None, None]]:
        def post(name: str, cycle: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
            """A cycle that only one of several servers carries out."""
            return cycle if duty_leases is None else lambda: duty_leases.carry_out(name, cycle)

        queues, shares = QueueDuty(context), ShareDuty(context)
        reasons = ReasonDuty(context)
        home = self._settings.home
        retention = RetentionDuty(context, home.folder / "pilots", home.database.session)
        running = [
            every(context, lambda: PRIORITY_PERIOD, PriorityDuty(context).cycle),
            every(context, shares.period, post("shares", shares.cycle), context.wake_shares),
            every(context, lambda: QUEUE_PERIOD, post("queues", queues.cycle)),
            every(context, reasons.period, post("reasons", reasons.cycle)),
            every(context, retention.period, post("retention", retention.cycle)),
        ]
        self._local = LocalCesDuty(context, lambda name: self._local_ce(context, name))
        local = post("local pilots", self._local.cycle)
        running.append(every(context, self._local.period, local, context.wake_director))
        self._batch = BatchCesDuty(context, lambda name: self._batch_ce(context, name))
        running.append(every(context, lambda: BATCH_PERIOD, post("batch pilots", self._batch.cycle)))
        if duty_leases is not None:
            running += self._peer_duties(context, duty_leases)
        return running

    def _peer_duties(self, context: Context, duty_leases: DutyLeases) -> list[Coroutine[None, None, None]]:
        """What there is to do because of other servers."""
        pool, peers, clock = context.pool, context.pool.peers, self._clock
        assert isinstance(peers, DatabasePeers)
        assert isinstance(clock, DatabaseClock)

        async def forget_reasons() -> None:
            await self._writer.acall(lambda tx: tx.set(pool, "recorded_reasons", None))

        duty_leases.began["reasons"] = forget_reasons
        duty, ledger = PeersDuty(context, peers, duty_leases, clock), LedgerDuty(context, duty_leases)
        cycles: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (FOLLOWS, duty.rebalance_limits),
            (WATCHES, duty.set_clock),
            (WATCHES, duty.recount),
            (WATCHES, lambda: duty_leases.carry_out("servers", duty.watch)),
            (LIMITS, lambda: duty_leases.carry_out("limits", duty.keep_limits)),
            (LEFT_BEHIND, lambda: duty_leases.carry_out("submissions", duty.finish_submissions)),
            (LEDGER_PERIOD, ledger.cycle),
        ]
        running = [every(context, lambda period=period: period, cycle) for period, cycle in cycles]  # type: ignore[misc]
        running.append(every(context, duty.poll_delay, duty.follow, duty.wake))
        if self._hints is not None:
            running.append(until_stopped(context, self._hints.listen(duty.heard)))
        return running

    def _local_ce(self, context: Context, name: str) -> LocalCeDuty:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        director = LocalDirector(name, self._settings.node)
        logs = self._settings.home.folder / "pilots"
        host = socket.gethostname() if context.pool.peers.shared else ""
        return LocalCeDuty(
            context,
            director,
            LocalBatch(environment, logs, host=host, files=self._files_before),
            sys.executable,
        )

    def _batch_ce(self, context: Context, name: str) -> BatchCeDuty:
        ce = context.pool.policy.ces[name]
        batch = slurm_client(ce.slurm)
        director = BatchDirector(name, self._settings.node.platform)
        return BatchCeDuty(context, director, batch, slurm.INDEX_VARIABLE)

    async def _part_from_pilots(self, context: Context) -> None:
        """As `down` has asked: wait for running jobs, end the pilots, or leave them alone."""
        local, batch = self._local, self._batch
        if context.stopping not in ("drain", "cancel") or local is None or batch is None:
            return
        await self._writer.acall(lambda tx: tx.set(context.pool, "draining", True))
        context.stop.clear()
        if context.stopping == "cancel":
            await local.cancel_all()
        await batch.cancel_all(waiting_only=context.stopping == "drain")
        while not context.stop.is_set() and await asyncio.to_thread(
            lambda: local.has_running_pilots() or batch.has_running_pilots()
        ):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(context.stop.wait(), DRAIN_POLL)


class _Uvicorn(uvicorn.Server):
    """Signals are ours: uvicorn's own handling would end the connections before the duties have ended."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
