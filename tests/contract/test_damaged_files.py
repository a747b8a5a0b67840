"""Damaged files of databases: each command about one says so, and how to go on. None calls it an error of its own."""

from __future__ import annotations

import secrets
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import pytest

from pilotage.cli.root import INTERNAL
from pilotage.core.errors import DatabaseDamaged
from pilotage.main.command_line import run_words
from pilotage.server.errors import error_answer
from pilotage.server.process.home import Home
from pilotage.store.engine.damage import damage_of
from pilotage.store.engine.sqlite import quick_check
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from tests.contract.lively_database import POLICY, fill
from tests.unit.services.bench import Bench

FILES: Final = 200
"""Damaged files of a run."""


def flip(data: bytearray, rng: Random) -> None:
    for _ in range(rng.choice((1, 3, 30, 300))):
        data[rng.randrange(len(data))] = rng.randrange(256)


def flip_header(data: bytearray, rng: Random) -> None:
    for _ in range(rng.choice((1, 3))):
        data[rng.randrange(100)] = rng.randrange(256)


def flip_schema(data: bytearray, rng: Random) -> None:
    """The table of tables begins in the first page."""
    place = data.find(b"CREATE TABLE", rng.randrange(len(data) // 4))
    for _ in range(rng.choice((1, 3))):
        data[place + rng.randrange(60)] = rng.randrange(256)


def cut(data: bytearray, rng: Random) -> None:
    del data[rng.randrange(len(data)) :]


def empty(data: bytearray, rng: Random) -> None:
    data.clear()


def zero(data: bytearray, rng: Random) -> None:
    for _ in range(rng.choice((1, 5, 50))):
        page = rng.randrange(len(data) // 2048) * 2048
        data[page : page + 2048] = bytes(2048)


def other_content(data: bytearray, rng: Random) -> None:
    data[:] = rng.randbytes(len(data) // 10)


DAMAGES: Final[tuple[Callable[[bytearray, Random], None], ...]] = (
    flip, flip, flip_header, flip_schema, cut, empty, zero, zero, other_content,
)  # fmt: skip
VERBS: Final = (
    ["db", "check"],
    ["db", "check", "--repair"],
    ["db", "upgrade"],
    ["db", "backup", "{folder}/copy.db"],
    ["db", "restore", "{folder}/whole.db"],
    ["db", "restore", "{folder}/damaged.db"],
    ["home", "adopt"],
)


def is_whole(file: Path) -> bool:
    with closing(sqlite3.connect(file)) as connection:
        return quick_check(connection) == "ok"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with some of everything."""
    folder = tmp_path_factory.mktemp("whole")
    bench = Bench(folder, POLICY)
    fill(bench)
    bench.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    bench.connection.close()
    return bench.path


def _meets_damage(tx: Transaction) -> None:
    if tx.connection.dialect == "sqlite":
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
    # The error that a statement meets at a damaged page.
    tx.connection.execute(
        "DO $$ BEGIN RAISE EXCEPTION 'invalid page in block 7' USING ERRCODE = 'XX001'; END $$"
    )


def test_an_error_may_be_its_own_cause() -> None:
    error = ValueError("other")
    error.__cause__ = other = KeyError("x")
    other.__cause__ = error
    assert damage_of(error) is None
    other.__cause__ = damaged = sqlite3.DatabaseError("malformed")
    damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    assert isinstance(damage_of(error), DatabaseDamaged)


def test_a_caller_of_the_server_is_told_of_damage(writer: Writer) -> None:
    with pytest.raises(DatabaseDamaged, match="restore") as told:
        writer.call(_meets_damage)
    payload, status, _ = error_answer(told.value)
    assert (status, b"database-damaged" in payload) == (500, True)


def test_each_command_tells_of_each_damage(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = secrets.randbelow(1_000_000)
    print(f"seed {seed}")
    found: list[str] = []
    for number in range(FILES):
        rng = Random(f"{seed} {number}")
        damage, verb = rng.choice(DAMAGES), rng.choice(VERBS)
        folder = tmp_path / str(number)
        folder.mkdir()
        home = Home.at(folder / "home")
        home.make()
        data = bytearray(whole.read_bytes())
        damage(data, rng)
        shutil.copy(whole, folder / "whole.db")
        (folder / "damaged.db").write_bytes(data)
        file = home.database.file
        assert file is not None
        file.write_bytes(whole.read_bytes() if "{folder}/damaged.db" in verb else data)
        if rng.random() < 0.1:
            file.with_name(f"{file.name}-wal").write_bytes(rng.randbytes(5000))
        home.become("one")
        if verb == ["home", "adopt"]:
            shutil.copytree(home.folder, folder / "copy")
            home = Home.copied_at(folder / "copy")
        words = [word.format(folder=folder) for word in verb]
        capsys.readouterr()
        code = run_words([*words, "--home", str(home.folder)])
        said = capsys.readouterr()
        lost = code == 0 and words[:2] in (["db", "check"], ["db", "backup"]) and not is_whole(file)
        helps = not code or any(word in said.out + said.err for word in ("backup", "damage", "schema"))
        if code == INTERNAL or "Traceback" in said.err or lost or not helps:
            found.append(f"{number}: {damage.__name__}, {' '.join(verb)}: {code} {said.err}")
        shutil.rmtree(folder)
    assert not found, f"seed {seed}\n" + "\n".join(found)
