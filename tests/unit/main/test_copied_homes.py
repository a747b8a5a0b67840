"""A copy of a home is found out by every command that opens a home, before anything is touched."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pilotage.cli.root import build, run
from pilotage.core.errors import Conflict
from pilotage.home_place import refuse_copy
from pilotage.main.command_line import SERVER_COMMANDS
from pilotage.server.process.home import Home
from tests.instance import Instance, running


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home that a server has left."""
    one = Home.at(tmp_path / "home")
    one.make()
    one.database.open(one.folder / "backups", "x").close()
    one.become("one")
    one.write_facts("http://127.0.0.1:1")
    one.token.write_text("t")
    return one


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def moved(home: Path, place: Path) -> Path:
    return home.rename(place)


def linked(home: Path, place: Path) -> Path:
    place.symlink_to(home)
    return place


def restored(home: Path, place: Path) -> Path:
    """The home is lost, and a copy from elsewhere takes its place."""
    shutil.copytree(home, place)
    shutil.rmtree(home)
    return place.rename(home)


def restored_elsewhere(home: Path, place: Path) -> Path:
    shutil.copytree(home, place)
    shutil.rmtree(home)
    return place


def of_an_earlier_version(home: Path, place: Path) -> Path:
    """It stored the whole path of its database, and no place."""
    facts = {"uuid": "one", "database": str(home / "pilotage.db")}
    (home / "instance.json").write_text(json.dumps(facts))
    return home.rename(place)


def test_a_home_of_an_earlier_version_leaves_a_new_home_at_its_old_place_alone(
    home: Home, tmp_path: Path
) -> None:
    place = of_an_earlier_version(home.folder, tmp_path / "place")
    other = Home.at(home.folder)
    other.make()
    other.database.open(other.folder / "backups", "x").close()
    other.become("other")
    assert Home.at(place).database.file == place / "pilotage.db"


def test_only_a_copy_is_adopted(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(build(SERVER_COMMANDS), ["home", "adopt", "--home", str(home.folder)]) == 5
    assert "is no copy" in capsys.readouterr().err


def rows(file: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.slow
def test_a_copy_of_a_running_home_is_adopted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "original"
    folder.mkdir()
    with running(folder) as original:
        job = _running_job(original)
        copy = tmp_path / "copy"
        shutil.copytree(
            original.home, copy, ignore=lambda _, names: [n for n in names if n.endswith(".sock")]
        )
        with pytest.raises(Conflict):
            refuse_copy(copy)
        assert run(build(SERVER_COMMANDS), ["home", "adopt", "--home", str(copy)]) == 0, capsys.readouterr()
        refuse_copy(copy)
        here, there = (json.loads((folder / "instance.json").read_text()) for folder in (copy, original.home))
        assert here["uuid"] != there["uuid"]
        assert here["database"] == "pilotage.db"
        assert not (copy / "server.json").exists()
        assert not (copy / "token").exists()
        file = copy / "pilotage.db"
        assert rows(file, "SELECT uuid FROM instance") == [(here["uuid"],)]
        assert rows(file, "SELECT count(*) FROM pilots WHERE ended IS NULL OR token_hash IS NOT NULL") == [
            (0,)
        ]
        assert rows(file, f"SELECT state FROM jobs WHERE id = {job}") == [("Waiting",)]
        assert original.job(job).state == "Running"


def _running_job(instance: Instance) -> int:
    with instance.client() as client:
        done = instance.cli("submit", "--", "sleep", "600")
        assert done.returncode == 0, done.stderr
        job = next(iter(client.jobs())).id
    instance.reaches(job, "Running")
    return job
