"""A database of PostgreSQL: opened by a server, upgraded by command, checked, dumped and restored.

Servers hold a shared lock of the database while their writing sessions last. Upgrades and restores need it exclusively.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import sqlalchemy as sa

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.store.admin import integrity_check, pg_dump, revisions, upgrade
from pilotage.store.cluster.id_allocator import Counters
from pilotage.store.engine.connection import WriterConnection
from pilotage.store.integrity.check import Damage
from pilotage.store.postgresql.dsn import DatabaseAddress, lock_exclusive, lock_shared
from pilotage.store.postgresql.notify import PostgresqlNotifications
from pilotage.store.postgresql.readers import PostgresqlReaders
from pilotage.store.tables.instance import Instance


@dataclass(frozen=True, slots=True)
class PostgresqlDatabase:
    address: DatabaseAddress
    programs: Path | None = None

    @classmethod
    def parse(cls, url: str, programs: Path | None = None) -> PostgresqlDatabase:
        return cls(DatabaseAddress.parse(url), programs)

    @property
    def shown(self) -> str:
        return self.address.shown

    @property
    def file(self) -> None:
        return None

    def is_empty(self) -> bool:
        self.address.check()
        engine = self.address.engine()
        try:
            return not sa.inspect(engine).get_table_names()
        finally:
            engine.dispose()

    def open(self, backups: Path, stamp: str) -> WriterConnection:
        """Refuses a schema of another version: a shared database is upgraded by command only."""
        self.address.check()
        connection = self.address.open_writer(lock_shared)
        try:
            self._check_schema()
        except BaseException:
            connection.close()
            raise
        return connection

    def repairing(self) -> WriterConnection:
        self.address.check()
        return self.address.open_writer(lock_exclusive)

    def session(self) -> WriterConnection:
        return self.address.open_writer()

    def counters(self) -> Counters:
        """Where servers of this database get their ids."""
        return Counters(self.address.open_writer())

    def readers(self) -> PostgresqlReaders:
        return self.address.readers()

    def notifications(self) -> PostgresqlNotifications:
        return PostgresqlNotifications(self.address.listening)

    def upgrade(self, backups: Path, stamp: str) -> tuple[str | None, str]:
        self.address.check()
        with closing(self.address.open_writer(lock_exclusive)):
            engine = self.address.engine()
            try:
                before = upgrade.current_revision(engine)
                upgrade.upgrade(engine)
            except sa.exc.ProgrammingError as error:
                if isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
                    raise InvalidInput(
                        f"the user may not make tables in {self.shown}",
                        hint="make it the owner of the database: ALTER DATABASE NAME OWNER TO USER",
                    ) from None
                raise
            finally:
                engine.dispose()
        return before, revisions.head_revision()

    def check(self) -> list[Damage]:
        self.address.check()
        engine = self.address.engine()
        revision = upgrade.current_revision(engine)
        engine.dispose()
        readers = self.readers()
        try:
            return integrity_check.find_damage(readers.connection(), revision)
        finally:
            readers.close()

    def backup(self, target: Path) -> int:
        self.address.check()
        return pg_dump.create_backup(self.address, target, self.programs)

    def restore(self, backup: Path, stamp: str) -> tuple[Instance, str]:
        self.address.check()
        with closing(self.address.open_writer(lock_exclusive)) as connection:
            return pg_dump.restore(self.address, connection, backup, stamp, self.programs)

    def _check_schema(self) -> None:
        engine = self.address.engine()
        try:
            revision, head = upgrade.current_revision(engine), revisions.head_revision()
            revisions.refuse_unknown(revision)
        finally:
            engine.dispose()
        if revision is None:
            raise Conflict(
                f"the database {self.shown} has no tables yet",
                hint="make them: pilotage db upgrade, with the same address",
            )
        if revision != head:
            raise Conflict(
                f"the database {self.shown} has schema {revision}, this version of Pilotage needs {head}",
                hint="make a copy (pilotage db backup FILE), then pilotage db upgrade, both with the same address",
            )
