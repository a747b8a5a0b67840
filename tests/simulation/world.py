"""One history of the world from one seed: a server, two batch systems with pilots, people, and faults."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import inspect
import logging
import tempfile
from collections.abc import Container, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from pilotage.core.errors import PilotageError
from pilotage.server.process.home import Home
from pilotage.store.writer import writer
from pilotage.twin.chance import Streams
from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse
from tests.simulation import checks, request_checks
from tests.simulation.agents import Agents
from tests.simulation.broken import Broken
from tests.simulation.contention import Contention, short_lives_of_queues
from tests.simulation.extent import SHORT, WHOLE, Extent
from tests.simulation.faults import KINDS_OF_OVERLAPS, Fault, FaultQueue, draw_faults
from tests.simulation.looks import Looks, check_kept
from tests.simulation.network import Network
from tests.simulation.overlap_counts import OverlapCounts
from tests.simulation.payloads import PayloadBooks
from tests.simulation.people import People
from tests.simulation.policy import has_budget, policy_text
from tests.simulation.processes import Outside, SimulationLoop
from tests.simulation.productions import Productions
from tests.simulation.restores import Restore, Restores, facts_of
from tests.simulation.server_host import CommitFailed, ServerHost, ServerHosts
from tests.simulation.sites import Sites
from tests.simulation.stores import PostgresqlStore, SqliteStore, Store

BEGIN = 1_700_000_000.0
PATIENCE = 5000.0
"""Seconds after the faults until all must be at rest."""
MANY_RETRIES = 20
"""Retries of a transaction, if a higher level of isolation than the product's is tried."""
LOOK = 30.0
"""Seconds between two looks whether all is at rest."""
SOME = 4
"""Of so many answers to pilots, the jobs that the pilot may keep are looked at for one."""
RESTORED = 5.0
"""Seconds until the server starts on a restored store."""


@dataclass(slots=True)
class History:
    """What came of a seed."""

    seed: int
    options: str
    """Of the command that replays it."""
    extent: Extent
    faults: list[Fault]
    happened: list[tuple[float, Fault]] = field(default_factory=list)
    failure: str = ""
    error: Exception | None = None
    """The failure, if no check has found it."""
    digest: str = ""
    """Of the event log and the payloads: equal for equal histories."""
    seconds: float = 0.0
    """Virtual seconds until all was at rest."""
    jobs: int = 0
    states: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    messages: int = 0
    overlaps: OverlapCounts | None = None
    """How the transactions of two servers overlapped."""


def simulate(
    seed: int,
    only: Container[int] | None = None,
    *,
    faults: int | None = None,
    store: str = "sqlite",
    interleaved: bool = False,
    isolation: str = "",
) -> History:
    """Let a history happen. `only`: the numbers of the faults that happen; None: all.

    `store`: "sqlite", or "postgresql" for two servers on one database. `interleaved`: their transactions overlap.
    `isolation`: the level of transactions without messages of pilots; empty: that of the product.
    """
    _spare_the_collector()
    rng = Random(f"{seed} faults")
    extent = SHORT if interleaved else WHOLE
    drawn = draw_faults(rng, rng.randint(*extent.faults) if faults is None else faults, extent.storm)
    losses = rng.randint(*extent.losses_of_agents)
    drawn += draw_faults(rng, losses, extent.storm, KINDS_OF_OVERLAPS, first=len(drawn))
    options = f"{'--interleaved' if interleaved else f'--store {store}'} --seed {seed}"
    history = History(seed, options, extent, drawn)
    with (
        tempfile.TemporaryDirectory(prefix="pilotage-simulation-") as name,
        _alarms() as alarms,
        short_lives_of_queues() if interleaved else nullcontext(),
        patch.object(writer, "MAX_RETRIES", MANY_RETRIES) if isolation else nullcontext(),
    ):
        folder = Path(name)
        loop = SimulationLoop(BEGIN, Random(f"{seed} calls"))
        made = _make_store(store, folder, loop, seed, interleaved)
        if isinstance(made, PostgresqlStore):
            made.interleaving.isolation = isolation
        world = _World(history, only, loop, folder, alarms, made, interleaved=interleaved)
        try:
            loop.run_until_complete(world.go())
        except Broken as broken:
            history.failure = str(broken)
        except Exception as error:
            history.failure = f"the simulation failed: {error!r}"
            history.error = error
        finally:
            world.close()
            loop.close()
    return history


@cache
def _spare_the_collector() -> None:
    """Nothing of what is loaded by now will ever be freed, so let no collection look at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@cache
def _template() -> bytes:
    """The file of an empty store: to make one takes longer than most histories."""
    with tempfile.TemporaryDirectory(prefix="pilotage-simulation-template-") as name:
        folder = Path(name)
        connection: Any = Home.at(folder).database.open(folder / "backups", "template")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return (folder / "pilotage.db").read_bytes()


def _make_store(kind: str, folder: Path, loop: SimulationLoop, seed: int, interleaved: bool) -> Store:
    if kind == "sqlite":
        (folder / "pilotage.db").write_bytes(_template())
        return SqliteStore(folder)
    from tests.simulation.pauses import RATES
    from tests.simulation.shared_server import SharedDatabase

    database = SharedDatabase(BEGIN)
    loop.at_each_instant(database.set_clock)
    rng = Random(f"{seed} trips")
    return PostgresqlStore(database, loop, rng, rng.choice(RATES) if interleaved else 0.0)


class _World:
    def __init__(
        self,
        history: History,
        only: Container[int] | None,
        loop: SimulationLoop,
        folder: Path,
        alarms: list[str],
        store: Store,
        *,
        interleaved: bool,
    ) -> None:
        self._history, self._loop, self._store, self._alarms = history, loop, store, alarms
        extent, seed = history.extent, history.seed
        streams = Streams(seed)
        self._queue = FaultQueue(history.faults, only, lambda: loop.time() - BEGIN)
        self._payloads = PayloadBooks(seed, loop.time)
        self._sites = Sites(loop, streams, self._payloads)
        budget = has_budget(seed)
        machines = [
            ServerHost(
                loop,
                folder,
                policy_text(0, budget=budget),
                seed,
                self._sites.systems,
                self._queue,
                extent.least_period,
                store,
                number,
            )
            for number in range(store.servers)
        ]
        for host in machines:
            host.after_death = self._look_at_store
        self._hosts = ServerHosts(machines)
        self._network = Network(machines, loop, self._queue)
        self._network.on_answer = self._look_at_answer
        self._sites.network = self._network
        self._people = People(loop, self._hosts, streams.stream("people"), extent, budget=budget)
        sites = ["North"] if budget else []
        rng = Random(f"{seed} small requests")
        small = [rng.randrange(20, 50) for _ in range(rng.randint(*extent.small_requests))]
        self._productions = Productions(
            self._people, streams.stream("productions"), sites, extent.storm, small
        )
        self._contention: Contention | None = None
        if interleaved:
            rng = Random(f"{seed} contention")
            self._contention = Contention(loop, self._hosts, self._people, store, rng, extent.storm)
        self._agents = Agents(self._network, streams)
        if interleaved:
            self._agents.chance = store.chance
        self._looks = Looks(loop, self._hosts, self._sites, self._payloads, extent.late)
        self._restores = Restores()
        self._backup: tuple[float, Path] | None = None
        """When the backup was made that is about to be restored, and where it is."""
        self._errors: list[str] = []
        loop.set_exception_handler(self._on_error)

    def _on_error(self, loop: asyncio.AbstractEventLoop, found: dict[str, Any]) -> None:
        error = found.get("exception")
        if isinstance(error, Broken):
            self._errors.append(str(error))
        else:
            self._errors.append(f"{found.get('message')}: {error!r}")

    def _look(self) -> None:
        self._need_no_errors()
        with self._store.reading() as connection:
            self._looks.look(connection)
            server = self._hosts.all[0].server
            # Servers of one database hear of each other's changes a little later.
            alone = self._store.servers == 1
            if alone and server is not None and server.context.pool.queues.loading is None:
                checks.check_memory(server, connection)

    def _need_no_errors(self) -> None:
        for host in self._hosts.all:
            if host.failure is not None:
                raise Broken(f"the server ended: {host.failure!r}")
        if self._errors:
            raise Broken(self._errors[0])
        if self._agents.failures:
            raise Broken(f"an agent ended: {self._agents.failures[0]!r}")
        if self._alarms:
            raise Broken(f"the server logged: {self._alarms[0]}")

    def _look_at_store(self) -> None:
        try:
            checks.check_ledger(self._store)
            checks.check_damage(self._store)
        except Broken as broken:
            self._errors.append(str(broken))

    def _look_at_answer(self, request: ExchangeRequest, answer: ExchangeResponse) -> None:
        refused = [one for one in answer.finishes if one.verdict != "accepted"]
        kept = request.holding if self._network.messages % SOME == 0 else []
        if not refused and not kept:
            return
        with self._store.reading() as connection:
            try:
                for one in refused:
                    checks.check_refusal(connection, one.job, one.epoch)
                if kept:
                    check_kept(connection, request, answer, self._loop.time() + self._hosts.clock_offset)
            except Broken as broken:
                self._errors.append(str(broken))

    async def go(self) -> None:
        for host in self._hosts.all:
            host.start()
        outside = Outside(self._loop)
        for fault in self._queue.timed():
            outside.call_at(BEGIN + fault.at, self._happen, fault)
        self._agents.start_all()
        lives = [self._people.live(), self._productions.live()]
        if self._contention is not None:
            lives.append(self._contention.live())
        people = asyncio.gather(*lives)
        while self._loop.time() < BEGIN + self._history.extent.storm:
            await asyncio.sleep(LOOK)
            self._look()
        self._calm()
        await self._rest(people)
        await self._check_end()

    def _happen(self, fault: Fault) -> None:
        self._queue.note(fault)
        host = self._hosts.picked(fault.pick)
        if fault.kind == "server dies":
            host.die(fault.seconds)
        elif fault.kind == "server stops":
            self._loop.create_task(self._stop(host, fault.seconds))
        elif fault.kind == "server cut off":
            host.cut_until = self._loop.time() + fault.seconds
        elif fault.kind == "server freezes":
            host.freeze(fault.seconds)
        elif fault.kind == "clock jumps":
            host.jump(fault.seconds)
        elif fault.kind == "server restored":
            self._back_up(fault.seconds)
        elif fault.kind.startswith("agent "):
            self._agents.happen(fault)
        else:
            self._sites.happen(fault)

    async def _stop(self, host: ServerHost, downtime: float) -> None:
        await host.stop()
        await asyncio.sleep(downtime)
        host.start()

    def _back_up(self, until_restore: float) -> None:
        """Make a backup, and restore it later. One at a time: so a restore forgets no other one."""
        if self._backup is None and (made := self._store.back_up()) is not None:
            self._backup = self._loop.time(), made
            Outside(self._loop).call_later(until_restore, self._restore)

    def _restore(self) -> None:
        """Stop the server, and let the store go back to the backup. Pilots and agents go on."""
        assert self._backup is not None
        (backed_up, backup), self._backup = self._backup, None
        [host] = self._hosts.all
        host.die(RESTORED)
        with self._store.reading() as connection:
            before = facts_of(connection)
        self._store.restore(backup)
        with self._store.reading() as connection:
            after = facts_of(connection)
        host.jumped_at = self._loop.time()
        restore = Restore(backed_up, self._loop.time(), before, after)
        self._restores.add(restore)
        self._payloads.storage.incarnation = after.incarnation
        self._agents.books.forget()
        self._people.repeat(backed_up)
        self._productions.restored(restore)

    def _calm(self) -> None:
        """Faults cease."""
        self._queue.cease()
        self._store.calm()
        for host in self._hosts.all:
            host.cut_until = 0.0
        for pilot in self._sites.live_pilots():
            assert pilot.link is not None
            pilot.link.cut_until = 0.0
        self._agents.calm()

    async def _rest(self, people: asyncio.Future[Any]) -> None:
        """Wait until nothing is under way."""
        until = self._loop.time() + PATIENCE
        left: list[str] = []
        while self._loop.time() < until:
            await asyncio.sleep(LOOK)
            self._look()
            if people.done():
                people.result()
                self._people.need_no_failure()
            with self._store.reading() as connection:
                done = people.done() and not self._people.is_repeating and self._backup is None
                left = [] if done else ["the people have no answer"]
                left += checks.unsettled(connection, self._sites, self._restores)
                left += request_checks.unsettled(connection)
            if not left and len(self._hosts.running) == len(self._hosts.all):
                return
        servers = [host.server for host in self._hosts.all if host.server is not None]
        failing = [str(one) for server in servers for one in server.context.duties.failing]
        raise Broken("; ".join([*left, *failing]))

    async def _check_end(self) -> None:
        self._store.finish()
        for host in self._hosts.all:
            server = host.server
            assert server is not None
            failing = list(server.context.duties.failing)
            if failing:
                raise Broken(f"duties fail: {failing}")
            with self._store.reading() as connection:
                checks.check_memory(server, connection)
        for host in self._hosts.all:
            await host.stop()
        self._need_no_errors()
        checks.check_ledger(self._store)
        checks.check_damage(self._store)
        with self._store.reading() as connection:
            checks.check_end(
                connection,
                self._people.books,
                self._payloads,
                self._sites,
                self._hosts,
                self._restores,
                budget=has_budget(self._history.seed),
                calm=not self._history.faults,
            )
            request_checks.check_end(connection, self._productions.books, self._payloads.storage)
            self._restores.check(connection)
            if self._contention is not None:
                self._contention.check_end(connection)
            self._write_up(connection)

    def _write_up(self, connection: Any) -> None:
        history = self._history
        history.states = dict(
            connection.execute(
                "SELECT state, count(*) FROM (SELECT state FROM jobs UNION ALL SELECT state FROM history)"
                " GROUP BY state ORDER BY 1"
            )
        )
        history.jobs = sum(history.states.values())
        digest = hashlib.sha256()
        for row in connection.execute("SELECT * FROM events ORDER BY id"):
            digest.update(repr(row).encode())
        for entry in self._payloads.entries:
            digest.update(repr(entry).encode())
        history.digest = digest.hexdigest()[:16]

    def close(self) -> None:
        history = self._history
        history.happened = self._queue.happened
        history.seconds = self._loop.time() - BEGIN
        history.starts, history.messages = (
            sum(host.starts for host in self._hosts.all),
            self._network.messages,
        )
        history.overlaps = self._store.overlaps()
        self._agents.close()
        for host in self._hosts.all:
            host.after_death = lambda: None
            host.die(1.0)
            for process in host.dead:
                process.bury()
        self._store.close()
        for task in asyncio.all_tasks(self._loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                # The end of its maker began it. Python would warn that nobody has awaited it.
                coroutine.close()


class _Alarm(logging.Handler):
    """Notes what the product logs as an error, unless a fault of the simulation explains it."""

    def __init__(self, alarms: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._alarms = alarms

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, CommitFailed | PilotageError):
            return
        self._alarms.append(f"{record.getMessage()}: {error!r}")


@contextmanager
def _alarms() -> Iterator[list[str]]:
    found: list[str] = []
    handler, log = _Alarm(found), logging.getLogger("pilotage")
    log.addHandler(handler)
    propagates, log.propagate = log.propagate, False
    try:
        yield found
    finally:
        log.removeHandler(handler)
        log.propagate = propagates
