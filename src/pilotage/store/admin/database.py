"""The database of an instance, as the server and `pilotage db` take it: a file of SQLite, or one of PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.store.admin import integrity_check, revisions, sqlite_backup, upgrade
from pilotage.store.cluster.id_allocator import Counters
from pilotage.store.engine.connection import Readers, WriterConnection
from pilotage.store.engine.damage import refuse_unusable
from pilotage.store.engine.sqlite import SqliteReaders, open_writer, quick_check
from pilotage.store.integrity.check import Damage
from pilotage.store.tables.instance import Instance

if TYPE_CHECKING:
    from pilotage.store.postgresql.notify import Notifications

SCHEMES = ("postgresql://", "postgres://")


class Database(Protocol):
    """A database of an instance. All errors are from `core.errors`, with hints."""

    @property
    def shown(self) -> str:
        """For people, and for the home to remember: a path, or an address without password."""
        ...

    @property
    def file(self) -> Path | None:
        """The file of an embedded database."""
        ...

    def is_empty(self) -> bool:
        """Whether it has no table."""
        ...

    def open(self, backups: Path, stamp: str) -> WriterConnection:
        """The connection of a server that begins. Where it upgrades, a copy goes to `backups` before."""
        ...

    def repairing(self) -> WriterConnection:
        """The connection of a repair, which holds the database. No server runs."""
        ...

    def readers(self) -> Readers: ...

    def session(self) -> WriterConnection | None:
        """A second writing connection, which may wait for locks; None: there is only one writer."""
        ...

    def counters(self) -> Counters | None:
        """The id counters of servers that share the database; None: it has one server at a time."""
        ...

    def notifications(self) -> Notifications | None:
        """Notifications by other servers; None: there are no other servers."""
        ...

    def upgrade(self, backups: Path, stamp: str) -> tuple[str | None, str]:
        """Bring the schema to this version; (revision before, None: there was none; revision now). No server runs."""
        ...

    def check(self) -> list[Damage]:
        """Find damage of each kind. Works while a server runs."""
        ...

    def backup(self, target: Path) -> int:
        """Copy it as of one instant, also while a server runs; the bytes written."""
        ...

    def restore(self, backup: Path, stamp: str) -> tuple[Instance, str]:
        """Put a backup in its place; (the instance as it goes on, where the old tables are). No server runs."""
        ...


@dataclass(frozen=True, slots=True)
class SqliteDatabase:
    """A SQLite file. A process that opens or changes it must have locked its home."""

    path: Path

    @property
    def shown(self) -> str:
        return str(self.path)

    @property
    def file(self) -> Path:
        return self.path

    def is_empty(self) -> bool:
        return not self.path.exists()

    def open(self, backups: Path, stamp: str) -> WriterConnection:
        return upgrade.open_database(self.path, backups, stamp)

    def repairing(self) -> WriterConnection:
        with refuse_unusable(self.path):
            return open_writer(self.path)

    def readers(self) -> SqliteReaders:
        return SqliteReaders(self.path)

    def session(self) -> None:
        return None

    def counters(self) -> None:
        return None

    def notifications(self) -> None:
        return None

    def upgrade(self, backups: Path, stamp: str) -> tuple[str | None, str]:
        engine = upgrade.sqlite_engine(self.path)
        with refuse_unusable(self.path):
            before = upgrade.current_revision(engine) if self.path.exists() else None
        engine.dispose()
        upgrade.open_database(self.path, backups, stamp).close()
        return before, revisions.head_revision()

    def check(self) -> list[Damage]:
        if not self.path.exists():
            raise NotFound(f"there is no database {self.path}")
        readers = self.readers()
        try:
            with refuse_unusable(self.path):
                connection = readers.connection()
                damage = quick_check(connection)
                if damage != "ok":
                    return [Damage("", f"the file is damaged: {damage}", by_hand="Restore a backup.")]
                engine = upgrade.sqlite_engine(self.path)
                revision = upgrade.current_revision(engine)
                engine.dispose()
                return integrity_check.find_damage(connection, revision)
        finally:
            readers.close()

    def backup(self, target: Path) -> int:
        return sqlite_backup.create_backup(self.path, target)

    def restore(self, backup: Path, stamp: str) -> tuple[Instance, str]:
        aside = self.path.with_name(f"{self.path.name}.before-restore-{stamp}")
        return sqlite_backup.restore(backup, self.path, aside), str(aside)


def database_at(place: str, programs: Path | None = None) -> Database:
    """The database of a path or of a `postgresql://` address. `programs`: where pg_dump and pg_restore are."""
    if not place.startswith(SCHEMES):
        if "://" in place:
            raise InvalidInput(
                "this is no address of a database",
                hint="postgresql://USER@HOST:PORT/DATABASE, or a path for SQLite",
            )
        return SqliteDatabase(Path(place).expanduser().absolute())
    # Not loaded for SQLite: the driver takes its time.
    from pilotage.store.admin.postgresql import PostgresqlDatabase

    return PostgresqlDatabase.parse(place, programs)
