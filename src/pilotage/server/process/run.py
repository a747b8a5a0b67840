"""Runs one server from start to end: creates its parts, and starts them in the required order."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING

import uvloop

from pilotage.core import policy as policies
from pilotage.core.errors import InvalidInput
from pilotage.outside.batch.script import pilot_program
from pilotage.outside.batch.ssh.connections import CONNECTIONS, SshConnections
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.server.context import Context, Disk, DutyState, PilotService, Tokens, WorkIntake
from pilotage.server.disk_space import DiskSpace, Reserve
from pilotage.server.duties.addresses import AddressDuty
from pilotage.server.duties.batch_clients import OwnBatchClients, outer_environment
from pilotage.server.duties.duty_leases import DutyLeases, FencedWriter
from pilotage.server.duties.leases import LeaseDuty
from pilotage.server.duties.loop import every
from pilotage.server.duties.own_state import AnnouncementDuty, CertificateDuty, DiskDuty, RenewalDuty
from pilotage.server.duties.peers import describe_server
from pilotage.server.duties.startup import finish_submissions, forget_unaccepted, load_index
from pilotage.server.home_token import HomeToken
from pilotage.server.http.app import Application
from pilotage.server.http.sockets import listen, listen_again
from pilotage.server.issuers import TrustedIssuers
from pilotage.server.process import gc_tuning
from pilotage.server.process.home import HomeLock, Listening
from pilotage.server.process.parts import make_duty_state, make_work_intake
from pilotage.server.process.policy_at_start import announce_policy, read_policy
from pilotage.server.process.rim import RealRim, Rim
from pilotage.server.process.schedule import DUTIES, DutySchedule
from pilotage.server.process.settings import Settings
from pilotage.server.process.telemetry import open_telemetry, span_duties
from pilotage.server.server_address import ServerAddress
from pilotage.server.session_file import SessionFile
from pilotage.server.tokens import Issuer, fingerprint, signing_key
from pilotage.server.web_sessions import WebSessions
from pilotage.services.peers.membership import join, leave
from pilotage.services.pilots.exchange import exchange_handler
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.peers import NoPeers, Peers
from pilotage.services.pool.state import Pool
from pilotage.services.pool.token_state import read_token_state
from pilotage.services.shares.corrections import read_corrections
from pilotage.store.engine.connection import WriterConnection
from pilotage.store.tables import instance
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from pilotage.wire.server_trust import CERTIFICATES_HEADER, SERVERS_HEADER

if TYPE_CHECKING:
    from fastapi import FastAPI

    from pilotage.server.duties.spans import SpanDuty

log = logging.getLogger(__name__)

LEAST_MEMORY = 2 * 2**30
"""Bytes of address space: an idle server takes half of them."""
LAST_SPANS = 2.0
"""Seconds for the spans that wait when the server stops."""
PILOTS_LOST = "pilots of the last server then do not find this one, and their jobs start again elsewhere"


def serve(settings: Settings) -> None:
    """Run until the server is stopped. Raises errors of `core.errors` for problems that a person must solve."""
    home = settings.home
    check_memory_limit()
    if settings.collector and settings.record is not None:
        raise InvalidInput(
            "a server that is recorded makes no spans: a replay could not draw their ids",
            hint="leave out --record or --otlp",
        )
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
            home.keep_listening(Listening(settings.host, settings.pilot_server))
            if settings.record is not None:
                # Imported here: few servers are recorded.
                from pilotage.server.process.recorded_run import serve_recorded

                serve_recorded(settings, connection, listener, settings.record)
                return
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(run_server(settings, connection, RealRim(settings, listener)))
        finally:
            connection.close()
    finally:
        if listener is not None:
            listener.close()
        lock.release()


def _build_with_pages(context: Context) -> FastAPI:
    from pilotage.server.web.site import build_with_pages

    return build_with_pages(context)


def check_memory_limit() -> None:
    """Refuse a limit of memory that a server of a large pool would meet in the middle of its work."""
    for limit, option in ((resource.RLIMIT_AS, "-v"), (resource.RLIMIT_DATA, "-d")):
        most, _ = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY and most < LEAST_MEMORY:
            raise InvalidInput(
                f"a process may have {most // 1024:,} KiB of memory here (`ulimit {option}`),"
                f" and the server reserves {LEAST_MEMORY // 1024:,}",
                hint=f"raise the limit: `ulimit {option} unlimited`, or start the server on another machine",
            )


def _listen(settings: Settings) -> socket.socket:
    """The listening socket. It keeps the last server's port if it can, since pilots look for a server there."""
    known, hint = settings.home.known_facts(), "choose another with --port"
    if settings.port or known is None:
        return listen(settings.host, settings.port, hint)
    last_port = int(known.url.rpartition(":")[2])
    listener = listen_again(settings.host, last_port, f"{hint}; {PILOTS_LOST}")
    port = listener.getsockname()[1]
    if port != last_port:
        log.warning("another program uses port %d of the last server, this one has %d", last_port, port)
        log.warning("%s", PILOTS_LOST)
    return listener


async def run_server(settings: Settings, connection: WriterConnection, rim: Rim) -> None:
    """Run a server on an open store until it is stopped."""
    await _Server(settings, connection, rim).run()


class _Server:
    def __init__(self, settings: Settings, connection: WriterConnection, rim: Rim) -> None:
        self._settings = settings
        self._connection = connection
        self._rim = rim
        self._readers = settings.home.database.readers()
        self._counters = settings.home.database.counters()
        # A record has a single server.
        self._notifications = None if rim.inline else settings.home.database.notifications()
        kind = Writer if self._counters is None else FencedWriter
        self._writer = kind(connection, commits_inline=rim.inline)
        self._telemetry = open_telemetry(settings.collector, rim.clock, rim.secrets)
        self._clock = rim.clock if self._counters is None else rim.database_clock(self._readers)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        if self._rim.inline:
            self._writer.move_to_loop(loop)
        else:
            self._writer.start()
        self._rim.started(self._connection)
        try:
            context = self._context()
            gc_tuning.shorten_switch_interval()
            if self._connection.dialect == "sqlite" and not self._rim.inline:
                self._writer.move_to_loop(loop)
            await self._serve(context)
            if context.stop.error is None and context.pool.peers.shared:
                name = context.pool.peers.server
                await self._writer.acall(lambda tx: leave(tx, name))
        finally:
            self._writer.stop()
            if self._telemetry is not None:
                self._telemetry.collector.close(LAST_SPANS)
            self._readers.close()
            if self._counters is not None:
                self._counters.close()
        if context.stop.error is not None:
            raise context.stop.error

    def _context(self) -> Context:
        settings, home = self._settings, self._settings.home
        key = signing_key(home.folder / "secrets" / "signing.key")
        sandbox = DirectorySandbox(settings.sandboxes or home.folder / "sandboxes")
        url = self._rim.front.url
        instance_facts, pool = self._writer.call(
            lambda tx: self._load(tx, url, fingerprint(key), sandbox.mark)
        )
        if pool.peers.shared:
            self._connection.bind_to_server(pool.peers.server)
        home.bind(instance_facts.uuid)
        tokens = self._tokens(key, instance_facts.uuid, pool)
        tokens.home.write()
        for compiled in (False, True):
            pilot_program(compiled=compiled)  # made before the event loop serves anybody
        return Context(
            pool=pool,
            writer=self._writer,
            readers=self._readers,
            clock=self._clock,
            monotonic=self._rim.monotonic,
            disk=Disk(sandbox, self._space(sandbox)),
            address=ServerAddress(instance_facts.uuid, self._rim.hostname, url, settings.pilot_server or url),
            tokens=tokens,
            pilots=self._pilot_service(pool),
            work=self._work_intake(pool),
            duties=self._duty_state(pool),
        )

    def _tokens(self, key: str, instance: str, pool: Pool) -> Tokens:
        settings, home = self._settings, self._settings.home
        issuer = Issuer(key, instance, lambda: pool.server.token_state)
        session_file = SessionFile(home.folder / "secrets" / "sessions.json")
        return Tokens(
            issuer,
            HomeToken(home.token, issuer, settings.owner, lambda: pool.policy, self._clock),
            TrustedIssuers(self._rim.outside),
            WebSessions(session_file.read()),
            session_file,
        )

    def _work_intake(self, pool: Pool) -> WorkIntake:
        return make_work_intake(
            pool,
            self._writer,
            self._readers,
            on_file=self._connection.dialect == "sqlite",
            clock=self._clock,
            monotonic=self._rim.monotonic,
            outside=self._rim.outside,
            telemetry=self._telemetry,
        )

    def _duty_state(self, pool: Pool) -> DutyState:
        state = make_duty_state(pool, self._clock)
        if pool.peers.shared and self._rim.inline:
            # A replay has another database, whose transactions have other numbers.
            state.feed.closed = "a server on PostgreSQL whose decisions are recorded tells no changes"
        return state

    def _pilot_service(self, pool: Pool) -> PilotService:
        folder = self._settings.home.folder
        return PilotService(
            folder / "pilots",
            exchange_handler(pool, self._clock),
            SshConnections(folder / CONNECTIONS, outer_environment()),
            self._rim.outside,
        )

    def _space(self, sandbox: DirectorySandbox) -> DiskSpace:
        """The disks that this server writes to. A database elsewhere reports a full disk by its errors."""
        least, file, rim = self._settings.least_free, self._settings.home.database.file, self._rim
        if file is None:
            return DiskSpace({"sandboxes": sandbox.folder}, rim.monotonic, least=least, usage=rim.usage)
        reserve = Reserve(file.with_name(file.name + ".reserve"))
        folders = {"database": file.parent, "sandboxes": sandbox.folder}
        return DiskSpace(folders, rim.monotonic, reserve, least, rim.usage)

    def _load(self, tx: Transaction, url: str, key: str, sandboxes: str) -> tuple[instance.Instance, Pool]:
        """Open the instance in the store, or create it at the first start, and open its pool.

        `key` and `sandboxes` are the fingerprints that all servers of one database must share.
        """
        connection, now, owner = tx.connection, self._clock(), self._settings.owner
        loaded = instance.load(connection)
        if loaded is None:
            self._settings.home.check_new()
            loaded = instance.create(connection, self._rim.new_uuid(), now)
        if self._counters is not None:
            # Wait for a policy that is being applied: this server would miss it both here and later.
            instance.lock_row(connection)
        given, folder = self._settings.policy, self._settings.home.folder
        first = policies.initial(owner, self._rim.hostname.partition(".")[0] or "home")
        start = read_policy(connection, given, first, folder, by=owner, now=now)
        peers: Peers = NoPeers()
        if self._counters is not None:
            recorded = self._rim.inline
            server = describe_server(url, start.version, now, self._rim.secrets, recorded=recorded)
            peers = join(tx, server, in_common=(key, sandboxes), monotonic=self._rim.monotonic)
        pool = open_pool(
            tx,
            start.policy,
            version=start.version,
            incarnation=loaded.incarnation,
            rng=self._rim.rng(),
            secrets=self._rim.secrets,
            home_owner=owner,
            id_floor=loaded.id_floor,
            load=False,
            peers=peers,
            counters=self._counters,
        )
        announce_policy(pool, tx, start, by=owner, now=now)
        pool.server.instance = loaded.uuid
        pool.server.home_storage = self._rim.storage(self._settings.home.storage)
        pool.server.token_state = read_token_state(tx.connection, now)
        if peers.shared:
            read_corrections(pool, tx)
        return loaded, pool

    async def _serve(self, context: Context) -> None:
        # A record has no cookies, so a replay could not answer for pages.
        application = Application(context, None if self._rim.inline else _build_with_pages)
        front = self._rim.front
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, context.stop.set)
        spans = await span_duties(context)
        duty_leases = self._leases_of_duties(context, spans)
        # Leases are extended by an outage before the first pilot or duty can see an expired one.
        leases = LeaseDuty(context, duty_leases)
        await leases.cycle()
        if duty_leases is None:
            await forget_unaccepted(context)
        else:
            await duty_leases.begin()
        await front.start(context, application)

        def publish() -> None:
            self._publish_address(context)

        publish()
        self._settings.announce(context.address.login_url)
        # From now on pilots report and renew leases. Duties that need the waiting jobs start when these are counted.
        announcement = AnnouncementDuty(context, self._settings.home.facts, publish)
        running = [every(context, duty) for duty in (leases, DiskDuty(context), announcement)]
        if duty_leases is not None:
            running.append(every(context, RenewalDuty(context, duty_leases)))
            running.append(every(context, AddressDuty(context, publish)))
        running += self._tls_duties(context)
        clients = OwnBatchClients(context, front.open_files)
        schedule = DutySchedule(
            self._settings, context, duty_leases, self._notifications, clients, further=spans
        )
        await asyncio.gather(*running, self._load_and_run_duties(context, schedule, application))
        await schedule.stop_pilots()
        await schedule.close()
        context.pilots.ssh.close()
        await front.stop()

    def _leases_of_duties(self, context: Context, spans: Sequence[SpanDuty]) -> DutyLeases | None:
        """The leases of a server that shares its database; None: it is alone."""
        peers = context.pool.peers
        if not peers.shared:
            return None
        names = (*DUTIES, *(duty.lease for duty in spans))
        leases = DutyLeases(
            self._writer, peers.server, names, clock=context.clock, monotonic=context.monotonic
        )
        leases.on_acquired |= {duty.lease: duty.begin for duty in spans}
        return leases

    def _tls_duties(self, context: Context) -> list[Coroutine[None, None, None]]:
        tls = self._rim.front.tls
        if tls is None:
            return []

        def refresh() -> None:
            tls.refresh(lambda: self._publish_address(context), time.time())
            context.address.certificate_warning = tls.warning(time.time())

        return [every(context, CertificateDuty(context, refresh))]

    def _publish_address(self, context: Context) -> None:
        """Tell clients and pilots of this server's address and certificates."""
        if (tls := self._rim.front.tls) is not None:
            context.address.fingerprints, context.address.ca_file = tls.fingerprints, tls.ca_file
            context.address.certificate_expires = tls.certificate.expires
        fields = {
            CERTIFICATES_HEADER: context.address.pool_fingerprints,
            SERVERS_HEADER: context.address.pilot_urls if context.address.other_servers else (),
        }
        own = [
            (name.lower().encode(), ",".join(values).encode()) for name, values in fields.items() if values
        ]
        self._rim.front.publish(own)
        self._settings.home.write_facts(
            context.address.url, context.address.fingerprints, context.address.ca_file
        )

    async def _load_and_run_duties(
        self, context: Context, schedule: DutySchedule, application: Application
    ) -> None:
        await load_index(context)
        await application.routes()
        gc_tuning.freeze_gc()
        if not context.pool.peers.shared:
            await finish_submissions(context)
        await schedule.run()
