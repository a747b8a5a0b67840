"""Every verb that opens a home × each way in which a home gets to another place, and each kind of copy.

The verbs come from the declared commands: all that take a home, and all commands of Slurm and of DIRAC. A line counts
if it opens a file of a good home other than `instance.json`, which tells where the home belongs. In a home that was
moved it ends as it does in a good one. In a copy it is refused, with the way out, and opens nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pilotage.cli.dirac.commands import DIRAC_COMMANDS
from pilotage.cli.root import CONFLICT, OK, build, parser_of, run
from pilotage.cli.slurm.commands import SLURM_COMMANDS
from pilotage.client import Client
from pilotage.core.errors import Conflict
from pilotage.main.command_line import SERVER_COMMANDS
from pilotage.server.process.home import Home
from tests.deadlines import PATIENCE
from tests.unit.cli.test_odd_surroundings import WORDS
from tests.unit.main import lines_in_a_home
from tests.unit.main.test_copied_homes import contents, of_an_earlier_version

ROOT = Path(lines_in_a_home.__file__).parents[3]
FILES = {
    "job.jdl": '[Executable = "/bin/true";]',
    "job.sh": "#!/bin/sh\ntrue\n",
    "dirac.cfg": "Registry\n{\n  Groups\n  {\n    users\n    {\n      Users = ada\n    }\n  }\n}\n",
    "policy.toml": "",
    "request.json": '{"name": "x", "type": "Processing", "input": "/x", "program": {"executable": "/bin/true"},'
    ' "splitting": {"algorithm": "FileBased", "files_per_job": 1}}',
    "sites.xml": "<results></results>",
    "files.txt": "/a/b\n",
    "token": "t\n",
    "job.yaml": "executable: /bin/true\n",
}
MORE_LINES = (
    ["agent", "--team", "t", "--token-file", "nothing"],
    ["ce", "disable", "local", "--reason", "x"],
    ["dataset", "add", "/x", "files.txt"],
    ["login", "http://127.0.0.1:1", "--token-file", "token"],
    ["logout"],
    ["policy", "apply", "policy.toml"],
    ["policy", "import", "dirac.cfg", "--out", "imported.toml"],
    ["request", "submit", "request.json"],
    ["request", "wait", "1"],
    ["site", "import", "sites.xml"],
    ["submit", "job.jdl"],
    ["twin", "run", "--history", "7d", "--out", "out"],
    ["up", "--policy", "-"],
)
"""Lines that come to the home, of verbs whose lines in `WORDS` end before it."""
ENDLESS = (["agent", "--team", "t"], *WORDS["up"])
"""Lines that wait for a server which never comes."""
Contents = dict[str, tuple[bytes, int]]
ARGUMENTS: tuple[tuple[str, ...], ...] = ((), ("1",), ("job.jdl",), ("job.sh",), ("show", "job", "1"))
"""Of the commands of Slurm and DIRAC: each takes one of these lists."""


class Line(NamedTuple):
    program: str
    verb: str
    words: Sequence[str]


class Outcome(NamedTuple):
    code: int
    text: str
    opened: list[str]


def lines() -> list[Line]:
    """The lines of every verb that takes a home."""
    found = []
    for verb, command in build(SERVER_COMMANDS).commands.items():
        if any(parameter.name == "home" for parameter in parser_of(command).params):
            more = [words for words in MORE_LINES if words[: len(verb.split())] == verb.split()]
            found += [
                Line("pilotage", verb, words) for words in [*WORDS[verb], *more] if words not in ENDLESS
            ]
    for program, table in (("slurm", SLURM_COMMANDS), ("dirac", DIRAC_COMMANDS)):
        found += [Line(program, verb, [verb, *words]) for verb in table for words in ARGUMENTS]
    return found


def made_home(folder: Path) -> Path:
    """A home that a server has left."""
    home = Home.at(folder)
    home.make()
    with closing(home.database.open(home.folder / "backups", "x")) as connection:
        connection.execute("INSERT INTO instance (id, uuid, incarnation, alive_at) VALUES (1, 'one', 1, 1)")
        connection.commit()
    home.become("one")
    home.write_facts("http://127.0.0.1:1")
    home.token.write_text("t")
    (folder / "secrets" / "certificate.pem").write_text("of no use")
    return folder


Places = Callable[[Path, Path], Path]
"""Bring a home to a place; where it is then."""


def good(home: Path, place: Path) -> Path:
    return home


def moved(home: Path, place: Path) -> Path:
    return home.rename(place)


def linked(home: Path, place: Path) -> Path:
    place.symlink_to(home)
    return place


def mounted(home: Path, place: Path) -> Path:
    place.mkdir()
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


def backup_restored(home: Path, place: Path) -> Path:
    """Beside the original there is a new home, with a backup of its database."""
    backup = str(home.with_name("backup"))
    for words in (
        ["db", "backup", backup, "--home", str(home)],
        ["db", "restore", backup, "--home", str(place)],
    ):
        assert run(build(SERVER_COMMANDS), words) == OK
    for name in ("server.json", "token"):  # of the server that has used it since
        shutil.copy(home / name, place)
    return place


def copied(home: Path, place: Path) -> Path:
    shutil.copytree(home, place, copy_function=shutil.copy2)
    return place


def copied_without_its_database(home: Path, place: Path) -> Path:
    shutil.copytree(home, place, copy_function=shutil.copy2, ignore=shutil.ignore_patterns("pilotage.db*"))
    return place


def copied_from_an_earlier_version(home: Path, place: Path) -> Path:
    of_an_earlier_version(home, home)
    return copied(home, place)


def copied_while_running(home: Path, place: Path) -> Path:
    """A server has the lock, and its last write is in the log of the database only."""
    with closing(sqlite3.connect(home / "pilotage.db")) as connection, (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE of_a_running_server (x)")
        assert (home / "pilotage.db-wal").stat().st_size
        return copied(home, place)


SAME: tuple[Places, ...] = (moved, linked, mounted, restored, restored_elsewhere, of_an_earlier_version)
OWN: tuple[Places, ...] = (backup_restored,)
COPIES: tuple[Places, ...] = (
    copied,
    copied_without_its_database,
    copied_from_an_earlier_version,
    copied_while_running,
)


class Seen(NamedTuple):
    """The outcomes by line, and the files of the original and of the copy before and after."""

    outcomes: dict[int, Outcome]
    before: list[Contents]
    after: list[Contents]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[Places, Seen]:
    """All lines on a good home; then of each verb the first one that opened it, on each kind of home."""
    folder = tmp_path_factory.mktemp("homes")
    orders: dict[Places, dict[str, Any]] = {}
    for kind in sorted((good, *SAME, *OWN, *COPIES), key=lambda kind: kind is mounted):
        here = folder / kind.__name__
        (here / "work").mkdir(parents=True)
        for name, text in FILES.items():
            (here / "work" / name).write_text(text)
        home, place = made_home(here / "home"), here / "place"
        home_now = kind(home, place)
        orders[kind] = {
            "home": str(home_now),
            "work": str(here / "work"),
            "folders": [str(home), str(place)],
            "mounted": (str(home), str(place)) if kind is mounted else (),
        }
    before = {kind: [contents(Path(one)) for one in order["folders"]] for kind, order in orders.items()}
    told = told_of(folder, list(orders.values()))
    return {
        kind: Seen(told[number], before[kind], [contents(Path(one)) for one in order["folders"]])
        for number, (kind, order) in enumerate(orders.items())
    }


def told_of(folder: Path, orders: list[dict[str, Any]]) -> list[dict[int, Outcome]]:
    """The outcomes of each order. In what they tell, `HOME` stands for the home."""
    order, told = folder / "order", folder / "told"
    order.write_text(json.dumps({"lines": lines(), "orders": orders}))
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", lines_in_a_home.__name__, str(order), str(told)],
        env=kept | {"PYTHONPATH": str(ROOT)},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=12 * PATIENCE,
        check=False,
    )
    assert done.returncode in (0, lines_in_a_home.CANNOT_MOUNT), done.stderr
    found: list[dict[int, Outcome]] = [{} for _ in orders]
    for text in told.read_text().splitlines():
        number = json.loads(text)[0]
        _, place, *outcome = json.loads(text.replace(orders[number]["home"], "HOME"))
        found[number][place] = Outcome(*outcome)
    return found


@pytest.mark.slow
@pytest.mark.timeout(15 * PATIENCE)
def test_a_line_of_every_verb_opens_the_home_or_does_its_work_without(seen: dict[Places, Seen]) -> None:
    by_verb = defaultdict(list)
    for place, line in enumerate(lines()):
        by_verb[line.verb].append(seen[good].outcomes[place])
    without = {verb: ended for verb, ended in by_verb.items() if not any(one.opened for one in ended)}
    assert len(by_verb) - len(without) == len(seen[copied].outcomes) > 100
    ends_before = {
        verb: ended
        for verb, ended in without.items()
        if not any(one.code in (OK, CONFLICT) for one in ended)
        and (len(ended) == 1 or len({one.text for one in ended}) > 1)  # not one refusal for all
    }
    assert not ends_before, f"add a line to MORE_LINES that comes to the home: {ends_before}"


@pytest.mark.slow
@pytest.mark.timeout(15 * PATIENCE)
@pytest.mark.parametrize("kind", SAME)
def test_every_verb_works_in_a_home_that_is_no_copy(seen: dict[Places, Seen], kind: Places) -> None:
    if kind is mounted and not seen[kind].outcomes:
        pytest.skip("folders cannot be mounted here")
    differ = [
        (lines()[place], usual, outcome)
        for place, outcome in seen[kind].outcomes.items()
        if (usual := seen[good].outcomes[place]) != outcome
    ]
    assert seen[kind].outcomes
    assert not differ, "\n".join(map(str, differ[:5]))


@pytest.mark.slow
@pytest.mark.timeout(15 * PATIENCE)
@pytest.mark.parametrize("kind", OWN)
def test_every_verb_leaves_the_original_of_a_restored_backup_alone(
    seen: dict[Places, Seen], kind: Places
) -> None:
    assert seen[kind].outcomes
    for place, outcome in seen[kind].outcomes.items():
        assert "is a copy" not in outcome.text, lines()[place]
        assert all(path.startswith("HOME/") for path in outcome.opened), lines()[place]
    assert seen[kind].after[0] == seen[kind].before[0]


@pytest.mark.slow
@pytest.mark.timeout(15 * PATIENCE)
@pytest.mark.parametrize("kind", COPIES)
def test_every_verb_refuses_a_copy_and_touches_nothing(seen: dict[Places, Seen], kind: Places) -> None:
    accepted = [
        (lines()[place], outcome)
        for place, outcome in seen[kind].outcomes.items()
        if outcome.opened
        or "HOME is a copy of the home" not in outcome.text
        # `version` ends well, and tells of the copy without the way out.
        or (outcome.code != OK and "pilotage home adopt --home HOME" not in outcome.text)
    ]
    assert not accepted, "\n".join(map(str, accepted[:5]))
    assert seen[kind].outcomes
    assert seen[kind].after == seen[kind].before


def test_the_client_of_python_refuses_a_copy(tmp_path: Path) -> None:
    with pytest.raises(Conflict):
        Client.connect(home=copied(made_home(tmp_path / "home"), tmp_path / "copy"))
