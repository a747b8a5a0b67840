"""A server of several on one database of PostgreSQL, in virtual time.

Transactions of servers may overlap (`tests.simulation.interleaving`). The clock of the database is that of the loop:
functions of the schema `simulated` stand before PostgreSQL's own, and read a file that the loop writes. A table there
has the queues that were deleted: the checks need their identities.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import psycopg

from pilotage.server.duties.duty import Duty
from pilotage.server.duties.duty_leases import DutyLeases
from pilotage.server.duties.leases import LeaseDuty
from pilotage.server.duties.loop import every
from pilotage.server.duties.own_state import RenewalDuty
from pilotage.server.duties.peers import DatabaseClock, describe_server
from pilotage.server.duties.startup import load_index
from pilotage.server.process.home import Home
from pilotage.server.process.policy_at_start import announce_policy, read_policy
from pilotage.server.process.schedule import DUTIES, DutySchedule
from pilotage.server.recording.redaction import SeededSecrets
from pilotage.services.peers.membership import join, leave
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.services.pool.token_state import read_token_state
from pilotage.services.shares.corrections import read_corrections
from pilotage.store.postgresql.connection import PostgresqlConnection
from pilotage.store.tables import instance
from pilotage.store.writer.transaction import Transaction
from pilotage.twin.server import OWNER, URL, TwinServer, TwinServerSettings
from tests import postgres
from tests.simulation.interleaving import SETTINGS, InterleavedWriter, Interleaving
from tests.simulation.processes import SimulationLoop

OPTIONS = (
    "-c search_path=simulated,public,pg_catalog -c lock_timeout=1000 -c synchronous_commit=on " + SETTINGS
)
WORD = (0.05, 0.8)
"""Seconds until servers hear of a commit of another one."""
_CLOCK = """\
CREATE SCHEMA IF NOT EXISTS simulated;
CREATE FUNCTION simulated.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
AS $$ SELECT pg_catalog.to_timestamp(pg_catalog.pg_read_file('{path}')::float8) $$;
CREATE FUNCTION simulated.now() RETURNS timestamptz LANGUAGE sql VOLATILE
AS $$ SELECT simulated.clock_timestamp() $$;
CREATE TABLE simulated.gone_queues AS SELECT id, identity, 0::float8 AS at FROM public.queues WITH NO DATA;
CREATE FUNCTION simulated.note_gone_queue() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN
INSERT INTO simulated.gone_queues
VALUES (OLD.id, OLD.identity, extract(epoch FROM simulated.clock_timestamp())::float8);
RETURN OLD; END $$;
CREATE TRIGGER note_gone_queue BEFORE DELETE ON public.queues
FOR EACH ROW EXECUTE FUNCTION simulated.note_gone_queue();
"""


class SharedDatabase:
    """A database of one history."""

    def __init__(self, now: float) -> None:
        self._server = postgres.server()
        self.name = self._server.migrated()
        path = self._server.folder / f"clock-{self.name}"
        self._clock = path.open("wb", buffering=0)
        path.chmod(0o644)
        self.set_clock(now)
        plain = self._server.url(self.name)
        with psycopg.connect(plain, autocommit=True) as session:
            session.execute(_CLOCK.format(path=path).encode())
            # Its transactions would hide changes from servers, at any instant of a run.
            session.execute("ALTER SYSTEM SET autovacuum = off")
            session.execute("SELECT pg_reload_conf()")
        self.url = f"{plain}&options={OPTIONS.replace(' ', '%20').replace('=', '%3D')}"

    def set_clock(self, now: float) -> None:
        os.pwrite(self._clock.fileno(), b"%20.6f" % now, 0)

    def session(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)

    def close(self) -> None:
        self._clock.close()
        self._server.drop(self.name)


class LoopNotifications:
    """Implements `Notifications` between servers of one loop. Words get lost when a server dies.

    A word takes some time, and tells of all commits until it arrives.
    """

    def __init__(self, loop: SimulationLoop, rng: Random) -> None:
        self._loop, self._rng = loop, rng
        self._heard: list[Callable[[str], object]] = []
        self._under_way: set[str] = set()

    async def listen(self, heard: Callable[[str], object]) -> None:
        self._heard.append(heard)
        heard("")
        await asyncio.Event().wait()

    def committed(self, server: str) -> None:
        """A server has committed."""
        if server not in self._under_way:
            self._under_way.add(server)
            seconds = self._rng.uniform(*WORD)
            self._loop.call_later(seconds, self._tell, server, context=self._loop.outside)

    def _tell(self, server: str) -> None:
        self._under_way.remove(server)
        for heard in self._heard:
            heard(server)


class SharedServer(TwinServer):
    """One of several servers."""

    _writer: InterleavedWriter
    _duty_leases: DutyLeases | None = None

    def __init__(
        self,
        settings: TwinServerSettings,
        loop: asyncio.AbstractEventLoop,
        database: str,
        number: int,
        notifications: LoopNotifications,
        interleaving: Interleaving,
    ) -> None:
        """`number`: of the servers that share the database."""
        self._settings, self._number = settings, number
        self._home = Home.at(settings.folder, database)
        self._home.make()
        connection = self._home.database.open(settings.folder / "backups", "twin")
        assert isinstance(connection, PostgresqlConnection)
        self.connection = connection
        self._readers = self._home.database.readers()
        counters = self._home.database.counters()
        assert counters is not None
        self._counters = counters
        self._notifications = notifications
        self._monotonic = loop.time
        self._clock = DatabaseClock(self._readers, settings.clock or loop.time)
        self._writer = InterleavedWriter(connection, interleaving)
        self._writer.move_to_loop(loop)
        self.context = self._context()
        self.name = self.context.pool.peers.server
        self.connection.bind_to_server(self.name)

    async def run(self) -> None:
        context, least = self.context, self._settings.least_period
        duty_leases = DutyLeases(
            self._writer, self.name, DUTIES, clock=context.clock, monotonic=context.monotonic
        )
        self._duty_leases = duty_leases
        leases = LeaseDuty(context, duty_leases)
        await leases.cycle()
        await duty_leases.begin()
        await load_index(context)
        schedule = DutySchedule(
            self._server_settings(), context, duty_leases, self._notifications, self._settings.clients, least
        )
        running: list[Awaitable[None]] = [
            every(context, leases, least_period=least(leases)),
            every(context, RenewalDuty(context, duty_leases)),
            schedule.run(),
        ]
        await asyncio.gather(*running)
        await schedule.close()
        if context.stop.error is not None:
            raise context.stop.error
        await self._writer.acall(lambda tx: leave(tx, self.name))

    async def run_at_once(self, duty: Duty) -> None:
        """Run a cycle of a duty, if this server has its lease."""
        if self._duty_leases is not None:
            await self._duty_leases.run(duty.lease, duty.cycle)

    def abandon(self) -> None:
        self._writer.die()
        self.close_connections()

    def close(self) -> None:
        self._writer.stop()
        self.close_connections()

    def close_connections(self) -> None:
        self._readers.close()
        self._counters.close()
        self.connection.close()

    def _load(self, tx: Transaction) -> tuple[str, Pool]:
        connection, now, settings = tx.connection, self._clock(), self._settings
        loaded = instance.load(connection)
        if loaded is None:
            loaded = instance.create(connection, "twin", now)
        instance.lock_row(connection)
        start = read_policy(connection, settings.policy, "", settings.folder, by=OWNER, now=now)
        secrets = SeededSecrets(settings.streams.stream("secrets"))
        server = describe_server(f"{URL}:{self._number}", start.version, now, secrets)
        peers = join(tx, server, in_common=("key", "sandboxes"), monotonic=self._monotonic)
        pool = open_pool(
            tx,
            start.policy,
            version=start.version,
            incarnation=loaded.incarnation,
            rng=settings.streams.stream("decisions"),
            secrets=secrets,
            home_owner=OWNER,
            id_floor=loaded.id_floor,
            load=False,
            peers=peers,
            counters=self._counters,
        )
        announce_policy(pool, tx, start, by=OWNER, now=now)
        pool.server.home_storage = str(self._home.storage)
        pool.server.token_state = read_token_state(tx.connection, now)
        read_corrections(pool, tx)
        return loaded.uuid, pool
