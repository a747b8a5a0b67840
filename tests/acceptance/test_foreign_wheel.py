"""A wheel of a stranger adds plug-ins at several doors: it is built, typed, installed, listed, and does work.

Plug-ins that are of no use are named with the reason, and disable nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deadlines import PATIENCE
from tests.installed_environment import environment_with_client
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
WHEEL = ROOT / "tests" / "foreign_wheel"
BUILD = "hatchling>=1.26"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * PATIENCE)]

POLICY = """
[groups.home]
properties = ["ADMINISTRATOR", "NORMAL_USER", "PRODUCTION_MANAGEMENT"]
[users.{user}]
groups = ["home"]
[correction]
correctors = ["Karma"]
[correction.Karma.all]
karma = 2
[sites.here]
[ces.own]
site = "here"
type = "karma"
pilot_processors = 2
idle = 2
[ces.own.karma]
lane = "fast"
"""
REQUEST = """
name = "karma"
team = "home"
[input]
dataset = "/a/b/RAW"
[program]
executable = "/bin/true"
[splitting]
algorithm = "KarmaBased"
luck = 3
"""
USELESS = {
    "absent": ("correctors", "Absent", "no_such_module:Absent", ""),
    "early": ("correctors", "Early", "early_module:KarmaInstance", "pilotage>=99"),
    "raising": ("splitting", "Raising", "raising_module:Raising", ""),
    "taken": ("correctors", "Karma", "pilotage_karma.corrector:KarmaInstance", ""),
    "own-name": ("correctors", "HalfLife", "pilotage_karma.corrector:KarmaInstance", ""),
    "key": ("batch_systems", "site", "pilotage_karma.options:KarmaOptions", ""),
    "abstract": ("start_policies", "Abstract", "pilotage.core.requests.start_policy:StartPolicy", ""),
    "no-class": ("correctors", "Function", "json:dumps", ""),
    "no-help": ("commands", "silent", "raising_module:silent", ""),
}
"""Door, name, object and the needed version of plug-ins that cannot be used, by their distributions."""
MODULE = "def silent() -> None: ...\ndef __getattr__(name: str) -> None:\n    raise OSError('no disk')\n"


class Site:
    """A machine with Pilotage and the wheel in a virtual environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        base = environment_with_client("Plug-in", BUILD)
        self.built = folder / "wheels"
        pip = [str(base / "bin" / "pip"), "-q", "--disable-pip-version-check"]
        for project in (ROOT, WHEEL):
            source = folder / f"source of {project.name}"
            skipped = shutil.ignore_patterns(".*", "__pycache__", "docs" if project == WHEEL else "tests")
            shutil.copytree(project, source, ignore=skipped)
            self._run(
                [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(self.built), str(source)]
            )
        self._run([str(base / "bin" / "python"), "-m", "venv", "--without-pip", str(folder / "venv")])
        self.python = folder / "venv" / "bin" / "python"
        [self.packages] = (folder / "venv" / "lib").glob("python*/site-packages")
        [shared] = (base / "lib").glob("python*/site-packages")
        (self.packages / "dependencies.pth").write_text(f"{shared}\n")
        wheels = [str(wheel) for wheel in self.built.iterdir()]
        self._run([*pip, "--python", str(self.python), "install", "--no-deps", *wheels])

    def _run(self, words: list[str]) -> None:
        done = subprocess.run(words, capture_output=True, text=True, timeout=3 * PATIENCE, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def cli(self, *words: str, code: int = 0) -> str:
        """The output of a command, with its errors."""
        environment = {
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "PILOTAGE_HOME": str(self.home),
        }
        done = subprocess.run(
            [str(self.python.parent / "pilotage"), *words],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def plugins(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.cli("plugins", "--json", *words))["plugins"]
        return found

    def add_useless(self) -> None:
        """Install distributions whose plug-ins cannot be used."""
        (self.packages / "raising_module.py").write_text(MODULE)
        for distribution, (door, name, value, needs) in USELESS.items():
            info = self.packages / f"{distribution.replace('-', '_')}-1.0.dist-info"
            info.mkdir()
            required = f"Requires-Dist: {needs}\n" if needs else ""
            info.joinpath("METADATA").write_text(
                f"Metadata-Version: 2.1\nName: zz-{distribution}\nVersion: 1.0\n{required}"
            )
            info.joinpath("entry_points.txt").write_text(f"[pilotage.{door}]\n{name} = {value}\n")

    def remove_useless(self) -> None:
        for distribution in USELESS:
            shutil.rmtree(self.packages / f"{distribution.replace('-', '_')}-1.0.dist-info")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("foreign"))
    try:
        yield made
    finally:
        if made.home.exists():
            made.cli("down")


def test_its_types_are_checked_strictly(site: Site) -> None:
    """With nothing but what is installed."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary"),
            *(
                "--config-file=",
                "--python-executable",
                str(site.python),
                "--cache-dir",
                str(site.folder / "mypy"),
            ),
            *("-p", "pilotage_karma"),
        ],
        cwd=WHEEL / "src",
        env={**os.environ, "MYPYPATH": ""},
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_its_plug_ins_are_listed(site: Site) -> None:
    found = site.plugins()
    assert {(one["door"], one["name"]) for one in found} == {
        ("batch_adapters", "karma"),
        ("batch_systems", "karma"),
        ("commands", "karma"),
        ("correctors", "Karma"),
        ("splitting", "KarmaBased"),
    }
    assert {(one["distribution"], one["version"], one["problem"]) for one in found} == {
        ("pilotage-karma", "2.5", "")
    }
    assert "karma           Show how many jobs there are in each state." in site.cli("--help")
    assert "karma" in site.cli("completion", "words", "--", "kar")


def test_its_batch_system_corrector_splitting_and_command_work(site: Site) -> None:
    site.cli("up", "--detach", "--port", str(free_port()))
    user = json.loads(site.cli("whoami", "--json"))
    (site.folder / "policy.toml").write_text(POLICY.format(user=user["user"]))
    site.cli("policy", "apply", "policy.toml", "--yes")
    site.cli("submit", "--wait", "--", "true")
    pilots = json.loads(site.cli("pilot", "list", "--json"))["pilots"]
    assert {pilot["ce"] for pilot in pilots} == {"own"}
    assert "Done: 1" in site.cli("karma")
    assert json.loads(site.cli("karma", "--json")) == {"states": {"Done": 1}}
    shares = json.loads(site.cli("share", "list", "--json"))
    assert "Karma" in json.dumps(shares)


def test_useless_plug_ins_are_named_once_and_disable_nothing(site: Site) -> None:
    site.add_useless()
    try:
        problems = {one["distribution"]: one["problem"] for one in site.plugins() if one["problem"]}
        assert problems.keys() == {f"zz-{name}" for name in USELESS}
        assert problems["zz-absent"] == "ModuleNotFoundError: No module named 'no_such_module'"
        assert problems["zz-early"].startswith("it needs pilotage>=99, and this is ")
        assert problems["zz-raising"] == "OSError: no disk"
        assert problems["zz-taken"] == "pilotage-karma has a plug-in of this name"
        assert problems["zz-own-name"] == "pilotage has a plug-in of this name"
        assert problems["zz-key"] == "the program has a key of this name"
        assert problems["zz-no-class"].startswith("it is no subclass of ")
        (site.folder / "wrong.toml").write_text(
            POLICY.format(user="u").replace('["Karma"]', '["Karma", "Early"]')
        )
        said = site.cli("policy", "check", "--offline", "wrong.toml", code=2)
        assert "there is no corrector Early" in said
        assert "Early of zz-early 1.0 (pilotage.correctors) cannot be used: it needs pilotage>=99" in said
        (site.folder / "right.toml").write_text(POLICY.format(user="u"))
        said = site.cli("policy", "check", "--offline", "right.toml")
        assert "valid policy" in said
        assert "zz-" not in said
        site.cli("down")
        site.cli("up", "--detach")
        log = (site.home / "server.log").read_text()
        named = [line for line in log.splitlines() if "cannot be used" in line]
        of_its_doors = {name for name, (door, *_) in USELESS.items() if door != "commands"}
        assert sorted(line.split()[7] for line in named) == sorted(f"zz-{name}" for name in of_its_doors), log
        assert "Done: 1" in site.cli("karma")
    finally:
        site.remove_useless()
