"""The store of a history, as the checks read it: a file of SQLite, or a database of PostgreSQL."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pilotage.store.admin import sqlite_backup
from pilotage.store.admin.integrity_check import find_damage
from pilotage.store.admin.revisions import head_revision
from pilotage.store.engine.sqlite import SqliteReaders
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.twin.server import TwinServer, TwinServerSettings
from tests.simulation.overlap_counts import OverlapCounts

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.processes import SimulationLoop
    from tests.simulation.shared_server import SharedDatabase


class Rows(Protocol):
    """A connection that reads, with `?` for values in each dialect."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any: ...


class Store(Protocol):
    dialect: str
    servers: int
    """Servers that share it."""

    def reading(self) -> Any:
        """A context with `Rows` that all see the same instant."""

    def make_server(
        self, settings: TwinServerSettings, loop: asyncio.AbstractEventLoop, number: int
    ) -> TwinServer: ...

    def committed(self, server: TwinServer) -> None:
        """A server has committed."""

    async def chance(self, tables: frozenset[bytes], seconds: float) -> object:
        """Wait until a transaction of a server stands still that rests on these tables, or for some seconds.

        Returns its session; None: there was none.
        """

    def calm(self) -> None:
        """Faults cease."""

    def finish(self) -> None:
        """Let open transactions end."""

    def overlaps(self) -> OverlapCounts | None:
        """How the transactions of its servers overlapped."""

    def damage(self) -> list[str]:
        """What `pilotage db check` finds."""

    def back_up(self) -> Path | None:
        """Make a backup while the servers go on; None: this store makes none."""

    def restore(self, backup: Path) -> None:
        """Replace the store by a backup. No server runs."""

    def close(self) -> None: ...


class SqliteStore:
    """Implements `Store`."""

    dialect = "sqlite"
    servers = 1

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = f"file:{folder}/pilotage.db?mode=ro"
        self._backups = 0

    @contextmanager
    def reading(self) -> Iterator[Rows]:
        with closing(sqlite3.connect(self._path, uri=True, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            yield connection

    def make_server(
        self, settings: TwinServerSettings, loop: asyncio.AbstractEventLoop, number: int
    ) -> TwinServer:
        return TwinServer(settings, loop)

    def committed(self, server: TwinServer) -> None:
        """Nobody else waits for it."""

    async def chance(self, tables: frozenset[bytes], seconds: float) -> object:
        await asyncio.sleep(seconds)
        return None

    def calm(self) -> None:
        """It has no faults of its own."""

    def finish(self) -> None:
        """No transaction is open."""

    def overlaps(self) -> OverlapCounts | None:
        return None

    def damage(self) -> list[str]:
        with closing(SqliteReaders(self._folder / "pilotage.db")) as readers:
            return list(map(str, find_damage(readers.connection(), head_revision())))

    def back_up(self) -> Path | None:
        self._backups += 1
        backup = self._folder / f"backup-{self._backups}.db"
        sqlite_backup.create_backup(self._folder / "pilotage.db", backup)
        return backup

    def restore(self, backup: Path) -> None:
        sqlite_backup.restore(backup, self._folder / "pilotage.db", backup.with_suffix(".replaced"))

    def close(self) -> None:
        """The file goes with its folder."""


class _Session:
    """Implements `Rows`."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any:
        places = iter(range(1, 1000))
        return self._cursor.execute(re.sub(r"\?", lambda _: f"${next(places)}", sql), tuple(values))


class PostgresqlStore:
    """Implements `Store`, for two servers."""

    dialect = "postgresql"
    servers = 2

    def __init__(self, database: SharedDatabase, loop: SimulationLoop, rng: Random, rate: float) -> None:
        """`rate`: of the trips of writers, those before which their transactions stand still."""
        from tests.simulation.interleaving import Interleaving
        from tests.simulation.pauses import Pauses
        from tests.simulation.shared_server import LoopNotifications

        self._database = database
        self.interleaving = Interleaving(loop, Pauses(rng, rate, loop.time), database.session())
        self._notifications = LoopNotifications(loop, rng)
        self._session = database.session()

    @contextmanager
    def reading(self) -> Iterator[Rows]:
        import psycopg

        with self._session.transaction():
            self._session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield _Session(psycopg.RawCursor(self._session))

    def make_server(
        self, settings: TwinServerSettings, loop: asyncio.AbstractEventLoop, number: int
    ) -> TwinServer:
        from tests.simulation.shared_server import SharedServer

        return SharedServer(
            settings, loop, self._database.url, number, self._notifications, self.interleaving
        )

    def back_up(self) -> Path | None:
        """Its backups are dumps by programs of PostgreSQL: each would take seconds."""
        return None

    def restore(self, backup: Path) -> None:
        raise NotImplementedError

    async def chance(self, tables: frozenset[bytes], seconds: float) -> object:
        return await self.interleaving.chance(tables, seconds)

    def calm(self) -> None:
        self.interleaving.pauses.is_calm = True

    def finish(self) -> None:
        self.interleaving.finish()

    def overlaps(self) -> OverlapCounts | None:
        return self.interleaving.counts

    def damage(self) -> list[str]:
        with closing(DatabaseAddress.parse(self._database.url).readers()) as readers:
            return list(map(str, find_damage(readers.connection(), head_revision())))

    def committed(self, server: TwinServer) -> None:
        self.interleaving.committed(server.connection)
        self._notifications.committed(server.context.pool.peers.server)

    def close(self) -> None:
        self.interleaving.close()
        self._session.close()
        self._database.close()
