"""Backup and restore of a PostgreSQL database by PostgreSQL's own programs, pg_dump and pg_restore.

Only the tables of Pilotage are copied and put back. The password goes to the programs by their environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.store.admin.revisions import READ_REVISION, refuse_unknown
from pilotage.store.admin.sqlite_backup import ID_MARGIN, UNKNOWN_ID_MARGIN
from pilotage.store.engine.connection import array_literal
from pilotage.store.postgresql.connection import PostgresqlConnection, one_line
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.schema import metadata
from pilotage.store.tables import instance
from pilotage.store.tables.partitions import PARTITION_COLUMN, PARTITION_NAMES

_TABLES = (*metadata.tables, "alembic_version")


def create_backup(address: DatabaseAddress, target: Path, programs: Path | None) -> int:
    """Write a dump of one instant; the bytes written."""
    if target.exists():
        raise InvalidInput(f"{target} exists already", hint="choose another name for the backup")
    partial = target.with_name(target.name + ".partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.close(handle)
    parts = [f"{table}_{part}" for table in PARTITION_COLUMN for part in ("[0-9]*", "default")]
    tables = [f"--table=public.{table}" for table in (*_TABLES, *parts)]
    try:
        _run(
            address,
            programs,
            "pg_dump",
            "--format=custom",
            "--no-owner",
            "--no-privileges",
            f"--file={partial}",
            *tables,
        )
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    handle = os.open(partial, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    partial.replace(target)
    return target.stat().st_size


def restore(
    address: DatabaseAddress,
    connection: PostgresqlConnection,
    backup: Path,
    stamp: str,
    programs: Path | None,
) -> tuple[instance.Instance, str]:
    """Put a dump in the place of the tables, which are kept in a schema of their own; (the instance, that schema).

    As on SQLite the incarnation is raised above that of both, and ids go on above all that were ever given.
    `connection` holds the database for us.
    """
    _check_dump(address, backup, programs)
    lost, lost_highest = _read_instance(connection)
    aside = f"before_restore_{stamp.lower()}"
    moved = _move_tables(connection, "public", aside)
    try:
        # Not --clean: nothing is left that could be in the way.
        _run(
            address, programs, "pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction",
            f"--dbname={address.shown}", str(backup),
        )  # fmt: skip
        known, highest = _read_instance(connection)
        if known is None:
            raise InvalidInput(f"{backup} is no backup of a Pilotage instance")
        refuse_unknown(connection.execute(READ_REVISION).fetchone()[0])
        same = lost is not None and lost.uuid == known.uuid
        floor = max(highest + (ID_MARGIN if same else UNKNOWN_ID_MARGIN), lost_highest + ID_MARGIN)
        incarnation = max(known.incarnation, lost.incarnation if lost else 0) + 1
        instance.begin_incarnation(connection, incarnation, floor)
    except BaseException:
        for table in _pilotage_tables(connection, "public"):
            # One after the other: a partition goes with its table.
            connection.execute(f"DROP TABLE IF EXISTS public.{table}")
        _move_tables(connection, aside, "public")
        connection.execute(f"DROP SCHEMA IF EXISTS {aside}")
        raise
    if not moved:
        connection.execute(f"DROP SCHEMA {aside}")
        aside = ""
    return instance.Instance(known.uuid, incarnation, known.alive_at, floor), aside


def _move_tables(connection: PostgresqlConnection, source: str, target: str) -> bool:
    """Move our tables, with their indexes and sequences, to another schema; whether there were any."""
    connection.begin()
    try:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {target}")
        tables = _pilotage_tables(connection, source)
        for table in tables:
            connection.execute(f"ALTER TABLE {source}.{table} SET SCHEMA {target}")
        connection.commit()
    finally:
        connection.rollback()
    return bool(tables)


def _pilotage_tables(connection: PostgresqlConnection, schema: str) -> list[str]:
    """Our tables there, their months included."""
    sql = (
        "SELECT tablename FROM pg_tables WHERE schemaname = ? AND (tablename = ANY (?::text[]) OR tablename ~ ?)"
        " ORDER BY tablename DESC"
    )
    return [
        row[0] for row in connection.execute(sql, (schema, array_literal(_TABLES, "text"), PARTITION_NAMES))
    ]


def _read_instance(connection: PostgresqlConnection) -> tuple[instance.Instance | None, int]:
    """(instance, highest id) of the tables in public; (None, 0) where they are not."""
    [there] = connection.execute("SELECT to_regclass('public.instance') IS NOT NULL").fetchone() or (False,)
    if not there:
        return None, 0
    return instance.load(connection), instance.highest_id(connection)


def _check_dump(address: DatabaseAddress, backup: Path, programs: Path | None) -> None:
    """Refuse a file that is not a dump of Pilotage, before any change."""
    if not backup.exists():
        raise NotFound(f"there is no file {backup}")
    try:
        listed = _run(address, programs, "pg_restore", "--list", str(backup))
    except Conflict as error:
        raise InvalidInput(f"{backup} is no backup of a PostgreSQL database: {error.message}") from None
    if " TABLE DATA public instance " not in listed:
        raise InvalidInput(f"{backup} is no backup of a Pilotage database")


def _run(address: DatabaseAddress, programs: Path | None, name: str, *arguments: str) -> str:
    program = shutil.which(name, path=None if programs is None else str(programs))
    if program is None:
        where = "on PATH" if programs is None else f"in {programs}"
        raise NotFound(
            f"there is no {name} {where}",
            hint="install PostgreSQL's client programs, or say where they are: --pg-bin DIR",
        )
    command: Sequence[str] = [program, *arguments]
    if name == "pg_dump":
        command = [*command, f"--dbname={address.shown}"]
    done = subprocess.run(
        command,
        env={**_environment(), **address.secrets()},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        words = one_line(done.stderr)[-1000:]
        hint = (
            "take the programs of the server's version or newer: --pg-bin DIR" if "version" in words else ""
        )
        raise Conflict(f"{name} failed: {words}", hint=hint)
    return done.stdout


def _environment() -> dict[str, str]:
    return dict(os.environ)  # noqa: TID251 (the programs read their own settings there, as libpq does here)
