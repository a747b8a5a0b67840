"""A replay refuses records of other versions and databases that are not its own, in one sentence each."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilotage import __version__
from pilotage.core.errors import InvalidInput
from pilotage.server.recording.lines import FORMAT, RecordBegin, ServerAt, line_of
from pilotage.twin.replay import replay
from pilotage.wire.pilot import Node

NODE = msgspec.to_builtins(Node("here", "x86_64", 2, 4000))
SERVER = ServerAt("http://here", "here", "ada", "/storage", NODE, "", "", 0, "sqlite")
BEGIN = RecordBegin(FORMAT, __version__, 1_700_000_000.0, "seed", SERVER, "")
POSTGRESQL = msgspec.structs.replace(SERVER, dialect="postgresql")
ADDRESS = "postgresql://127.0.0.1:1/none"


@pytest.mark.parametrize(
    ("begin", "database_url", "words"),
    [
        (
            msgspec.structs.replace(BEGIN, version="0.0.9"),
            "",
            f"is a record of Pilotage 0.0.9, and this is {__version__} (make it again with this version:"
            " `pilotage up --record FILE`)",
        ),
        (
            msgspec.structs.replace(BEGIN, store="gone.store"),
            "",
            "gone.store, the store at the start of the record, cannot be read: No such file or directory",
        ),
        (BEGIN, ADDRESS, "is of a server on SQLite (leave --database-url out)"),
        (
            msgspec.structs.replace(BEGIN, server=POSTGRESQL),
            "",
            "is of a server on PostgreSQL (--database-url names an empty database for the replay)",
        ),
        (
            msgspec.structs.replace(BEGIN, server=POSTGRESQL),
            "mysql://here",
            "this is no address of a database",
        ),
    ],
)
def test_a_record_that_cannot_be_replayed_is_refused(
    tmp_path: Path, begin: RecordBegin, database_url: str, words: str
) -> None:
    path = tmp_path / "run.record"
    path.write_bytes(line_of(begin))
    with pytest.raises(InvalidInput) as error:
        replay(path, database_url)
    assert words in str(error.value)


def test_a_database_that_is_a_file_is_refused_for_a_record_of_postgresql(tmp_path: Path) -> None:
    """The database of a home, given by mistake: nothing in it changes."""
    path, database = tmp_path / "run.record", tmp_path / "pilotage.db"
    path.write_bytes(line_of(msgspec.structs.replace(BEGIN, server=POSTGRESQL)))
    database.write_bytes(b"a database")
    with pytest.raises(InvalidInput, match="is not empty"):
        replay(path, str(database))
    assert database.read_bytes() == b"a database"


def test_a_record_without_decisions_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "run.record"
    path.write_bytes(line_of(BEGIN))
    result = replay(path)
    assert (result.difference, result.ended, result.messages) == ("", False, 0)
