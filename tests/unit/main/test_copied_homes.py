"""A copy of a home is found out by every command that opens a home, before anything is touched."""

from __future__ import annotations

import json
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pilotage.cli.root import build, parser_of, run
from pilotage.client import Client
from pilotage.core.errors import Conflict
from pilotage.home_place import original_of, refuse_copy
from pilotage.main.command_line import SERVER_COMMANDS
from pilotage.server.process.home import Home
from tests.instance import Instance, running
from tests.unit.cli.test_odd_surroundings import WORDS

EXEMPT = {
    "home adopt": "it is the way out",
    "login": "it refuses each home of a server",
    "logout": "it refuses each home of a server",
    "version": "it tells of the copy, and asks nothing",
    **dict.fromkeys(
        ("policy init", "policy preset", "policy import"), "they read and write files of their own"
    ),
    **dict.fromkeys(
        ("request submit", "site import", "dataset add", "policy apply", "twin run"),
        "the file in the line is read first, and is missing",
    ),
}
MORE_LINES = {
    "request wait": [["request", "wait", "1"]],
    "ce disable": [["ce", "disable", "local", "--reason", "x"]],
}


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


@pytest.mark.parametrize("change", [moved, linked, restored, restored_elsewhere, of_an_earlier_version])
def test_a_home_that_is_no_copy_simply_works(
    home: Home, tmp_path: Path, change: Callable[[Path, Path], Path]
) -> None:
    place = change(home.folder, tmp_path / "place")
    assert original_of(place) is None
    opened = Home.at(place)
    assert opened.database.file == place / "pilotage.db"
    opened.bind("one")
    assert run(build(SERVER_COMMANDS), ["db", "check", "--home", str(place)]) in (0, 1)


def test_a_home_of_an_earlier_version_leaves_a_new_home_at_its_old_place_alone(
    home: Home, tmp_path: Path
) -> None:
    place = of_an_earlier_version(home.folder, tmp_path / "place")
    other = Home.at(home.folder)
    other.make()
    other.database.open(other.folder / "backups", "x").close()
    other.become("other")
    assert Home.at(place).database.file == place / "pilotage.db"


def test_a_home_at_two_places_by_a_mount_is_one(home: Home, tmp_path: Path) -> None:
    place = tmp_path / "mounted"
    place.mkdir()
    program = (
        "import sys; from pathlib import Path; from pilotage.home_place import original_of;"
        f" print(original_of(Path({str(place)!r})))"
    )
    line = f"mount --bind {home.folder} {place} && exec {sys.executable} -c {shlex.quote(program)}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", line], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout == "None\n", done.stderr


def opening() -> Iterator[tuple[str, list[list[str]]]]:
    """Each command with a home, with lines that it takes."""
    for name, command in build(SERVER_COMMANDS).commands.items():
        if any(parameter.name == "home" for parameter in parser_of(command).params):
            yield name, WORDS[name] + MORE_LINES.get(name, [])


@pytest.mark.parametrize("by_earlier_version", [False, True])
def test_every_command_refuses_a_copy_and_touches_nothing(
    home: Home,
    tmp_path: Path,
    by_earlier_version: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "job.yaml").write_text("executable: true\n")
    monkeypatch.chdir(work)
    for name in ("PILOTAGE_SERVER", "PILOTAGE_TOKEN_FILE", "PILOTAGE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    if by_earlier_version:
        of_an_earlier_version(home.folder, home.folder)
    copy = tmp_path / "copy"
    shutil.copytree(home.folder, copy, copy_function=shutil.copy2)
    monkeypatch.setenv("PILOTAGE_HOME", str(copy))
    before = contents(home.folder), contents(copy)
    accepting: list[tuple[str, list[str]]] = []
    tried = 0
    for name, lines in opening():
        if name in EXEMPT:
            continue
        tried += 1
        told = []
        for line in lines:
            run(build(SERVER_COMMANDS), line)
            told.append("".join(capsys.readouterr()))
        if not any(f"pilotage home adopt --home {copy}" in text for text in told):
            accepting.append((name, told))
        assert (contents(home.folder), contents(copy)) == before, name
    assert not accepting, chr(10).join(map(str, accepting))
    assert tried > 100
    with pytest.raises(Conflict):
        Client.connect(home=copy)


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
