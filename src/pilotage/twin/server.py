"""One server in virtual time: its real services, duties and store, without HTTP and without files of pilots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pilotage.core.policy import Policy
from pilotage.outside.batch.ssh.connections import CONNECTIONS, SshConnections
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.server.context import Context, Disk, PilotService, Tokens
from pilotage.server.disk_space import DiskSpace
from pilotage.server.duties.batch_clients import BatchClients
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.leases import LeaseDuty
from pilotage.server.duties.loop import every
from pilotage.server.duties.startup import finish_submissions, forget_unaccepted, load_index
from pilotage.server.home_token import HomeToken
from pilotage.server.issuers import TrustedIssuers
from pilotage.server.outside_calls import DirectCalls
from pilotage.server.process.home import Home
from pilotage.server.process.parts import make_duty_state, make_work_intake
from pilotage.server.process.policy_at_start import read_policy
from pilotage.server.process.schedule import DutySchedule, no_least_period
from pilotage.server.process.settings import Settings
from pilotage.server.recording.redaction import SeededSecrets
from pilotage.server.server_address import ServerAddress
from pilotage.server.tokens import Caller, Issuer
from pilotage.services.pilots.exchange import exchange_handler
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.peers import NoPeers
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Readers, WriterConnection
from pilotage.store.engine.sqlite import SqliteConnection
from pilotage.store.tables import instance
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from pilotage.twin.chance import Streams
from pilotage.wire.pilot import Node

URL = "http://server.twin"
OWNER = "operator"


@dataclass(frozen=True, slots=True)
class TwinServerSettings:
    """The settings of one server."""

    folder: Path
    """Its home: an empty folder, or that of the server which it follows."""
    policy: str
    """The text of the policy."""
    streams: Streams
    clients: BatchClients
    revise: Callable[[Policy], Policy] = lambda policy: policy
    """Changes the policy that the server works by."""
    least_period: Callable[[Duty], float] = no_least_period
    """Seconds between two cycles of a duty, at least."""
    longest_gap: float | None = None
    """Seconds between two cycles of its lease duty that are no outage; None: as in a real server."""
    clock: Callable[[], float] | None = None
    """The clock on its wall; None: that of the loop."""
    node: Node = field(default_factory=Node)
    """The machine of its local CEs."""


class TwinServer:
    """A server on a store without syncs: a file that no power cut will ever hit."""

    def __init__(self, settings: TwinServerSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._home = Home.at(settings.folder)
        self._home.make()
        connection = self._home.database.open(settings.folder / "backups", "twin")
        assert isinstance(connection, SqliteConnection)
        connection.execute("PRAGMA synchronous=OFF")
        self.connection: WriterConnection = connection
        self._readers: Readers = self._home.database.readers()
        self._monotonic = loop.time
        self._clock: Callable[[], float] = settings.clock or loop.time
        self._writer = Writer(connection, commits_inline=True)
        self._writer.move_to_loop(loop)
        self.context = self._context()

    async def run(self) -> None:
        """Run all duties until the server stops."""
        context = self.context
        leases = LeaseDuty(context, longest_gap=self._settings.longest_gap)
        await leases.cycle()
        await forget_unaccepted(context)
        await load_index(context)
        await finish_submissions(context)
        least, clients = self._settings.least_period, self._settings.clients
        schedule = DutySchedule(self._server_settings(), context, None, None, clients, least)
        await asyncio.gather(every(context, leases, least_period=least(leases)), schedule.run())
        await schedule.close()

    def abandon(self) -> None:
        """Close the store at once, as at the death of the process. An open transaction is lost."""
        self._readers.close()
        self.connection.close()

    def close(self) -> None:
        self._writer.stop()
        self._readers.close()
        self.connection.close()

    def _server_settings(self) -> Settings:
        return Settings(self._home, "", 0, "", OWNER, self._settings.node, lambda url: None)

    def _context(self) -> Context:
        settings, home, clock, monotonic = self._settings, self._home, self._clock, self._monotonic
        sandbox = DirectorySandbox(home.folder / "sandboxes")
        uuid, pool = self._writer.call(self._load)
        issuer = Issuer("twin", uuid, lambda: pool.server.token_state)
        return Context(
            pool=pool,
            writer=self._writer,
            readers=self._readers,
            clock=clock,
            monotonic=monotonic,
            disk=Disk(sandbox, DiskSpace({}, monotonic)),
            address=ServerAddress(uuid, "server", URL, URL),
            tokens=Tokens(
                issuer,
                HomeToken(home.token, issuer, OWNER, lambda: pool.policy, clock),
                TrustedIssuers(DirectCalls()),
            ),
            pilots=PilotService(
                settings.folder / "pilots",
                exchange_handler(pool, clock),
                SshConnections(settings.folder / CONNECTIONS, {}),
            ),
            work=make_work_intake(
                pool,
                self._writer,
                self._readers,
                on_file=self.connection.dialect == "sqlite",
                clock=clock,
                monotonic=monotonic,
                outside=DirectCalls(),
            ),
            duties=make_duty_state(pool, clock),
        )

    def _load(self, tx: Transaction) -> tuple[str, Pool]:
        connection, now, settings = tx.connection, self._clock(), self._settings
        loaded = instance.load(connection)
        if loaded is None:
            loaded = instance.create(connection, "twin", now)
        start = read_policy(connection, settings.policy, "", settings.folder, by=OWNER, now=now)
        pool = open_pool(
            tx,
            settings.revise(start.policy),
            version=start.version,
            incarnation=loaded.incarnation,
            rng=settings.streams.stream("decisions"),
            secrets=SeededSecrets(settings.streams.stream("secrets")),
            home_owner=OWNER,
            id_floor=loaded.id_floor,
            load=False,
            peers=NoPeers(),
            counters=None,
        )
        pool.server.instance = loaded.uuid
        pool.server.home_storage = str(self._home.storage)
        return loaded.uuid, pool


def caller(owner: str, group: str, properties: frozenset[str]) -> Caller:
    """A person who submits jobs."""
    return Caller(owner, group, properties, expires=float("inf"))
