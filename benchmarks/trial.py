"""Three owners share a small Slurm under the policy of a new home: efficiency of pilots, and shares of owners.

ada and bob always have jobs waiting; their groups have shares 3 : 1. carol has a few jobs at the start only, so her
pilots must leave. Everything goes through the commands that a user types.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from benchmarks.server import start
from benchmarks.shapes import Absent
from benchmarks.slurm import small_slurm

SUMMARY = "efficiency and shares of three owners on a real Slurm, under the policy of a new home"

GROUPS = """
[groups.physics]
share = 3000
[groups.biology]
share = 1000
[groups.guests]
share = 1000
[users.ada]
groups = ["physics"]
[users.bob]
groups = ["biology"]
[users.carol]
groups = ["guests"]
"""
OWNERS = ("ada", "bob")
ENTITLED = 0.75
"""The part of ada."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=30.0, help="how long the trial lasts")
    parser.add_argument("--job", type=float, default=20.0, help="seconds of a job")
    parser.add_argument("--preset", default="", help="a preset of the policy, such as dirac")


def run(asked: argparse.Namespace) -> Figure:
    with small_slurm(CORES="4") as environment, _home(environment) as home:
        rows = _try(home, asked)
    whole = _sum(rows)
    payload = {row["name"]: row["payload"] for row in rows}
    ours = sum(payload.get(owner, 0.0) for owner in OWNERS)
    share = payload.get("ada", 0.0) / max(ours, 1.0)
    seconds = {kind: f"{whole[kind] / max(whole['total'], 1.0):.1%}" for kind in ("startup", "idle", "lost")}
    notes = {
        "share of ada": f"{share:.3f} of ada's and bob's payload; entitled: {ENTITLED:g}",
        "not payload": ", ".join(f"{kind} {part}" for kind, part in seconds.items()),
        "core-seconds": f"{whole['total']:,.0f} in {asked.minutes:g} minutes, jobs of {asked.job:g} s",
        "owners": ", ".join(f"{row['name']} {row['efficiency'] or 0:.1%}" for row in rows),
    }
    efficiency = 100 * whole["payload"] / max(whole["total"], 1.0)
    return Figure("trial", round(efficiency, 1), "%", {"aim": 80.0}, round(share, 3), [efficiency], notes)


class _Home:
    """A server's home and its commands, as any of its users."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._environment = os.environ | environment | {"PILOTAGE_HOME": str(folder / "home")}
        self._tokens: dict[str, str] = {}

    def call(self, *words: str, user: str = "") -> str:
        if user and user not in self._tokens:
            self._tokens[user] = str(self.folder / user)
            self.call("token", "create", user, "--lifetime", "7d", "--out", self._tokens[user])
        environment = self._environment | ({"PILOTAGE_TOKEN_FILE": self._tokens[user]} if user else {})
        command = [sys.executable, "-m", "pilotage.main", *words]
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"pilotage {' '.join(words)}: {done.stderr}")
        return done.stdout

    def submit(self, user: str, jobs: int, seconds: float) -> None:
        numbers = self.folder / f"{user}.txt"
        numbers.write_text("".join(f"{number}\n" for number in range(jobs)))
        self.call(
            *("submit", "--params-from", str(numbers), "--", "sh", "-c", f"sleep {seconds:g} # %s"), user=user
        )


@contextmanager
def _home(environment: dict[str, str]) -> Iterator[_Home]:
    folder = Path(tempfile.mkdtemp(prefix="bench-trial-"))
    home = _Home(folder, environment)
    (folder / "home").mkdir(mode=0o700)
    os.environ["SLURM_CONF"] = environment["SLURM_CONF"]
    os.environ["PATH"] = environment["PATH"]
    server = start(folder)
    try:
        while not (folder / "home/server.json").exists():
            if server.poll() is not None:
                raise Absent((folder / "server.log").read_text())
            time.sleep(0.1)
        yield home
    finally:
        server.terminate()
        server.wait(120)
        shutil.rmtree(folder, ignore_errors=True)


def _try(home: _Home, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """The costs by owner at the end of the trial."""
    document = home.folder / "policy.toml"
    preset = home.call("policy", "preset", asked.preset) if asked.preset else ""
    document.write_text(home.call("policy", "show") + GROUPS + preset)
    home.call("policy", "apply", str(document), "--reason", "three owners")
    home.call("ce", "add", "slurm", "--owners", "any", "--reason", "the cluster")
    jobs = int(8 * asked.minutes * 60 / asked.job)
    home.submit("ada", jobs, asked.job)
    home.submit("bob", jobs, asked.job)
    home.submit("carol", 24, asked.job)
    ends = time.monotonic() + asked.minutes * 60
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(60.0, left))
        rows = _costs(home)
        told = ", ".join(f"{row['name']} {row['payload']:.0f} of {row['total']:.0f}" for row in rows)
        print(f"{asked.minutes - max(0.0, ends - time.monotonic()) / 60:.0f} min: {told}", flush=True)
    print(
        home.call("share", "list"), home.call("pilot", "list", "--all"), home.call("ce", "list"), flush=True
    )
    return rows


def _costs(home: _Home) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(home.call("cost", "--by", "owner", "--json"))["rows"]
    return rows


def _sum(rows: list[dict[str, Any]]) -> dict[str, float]:
    kinds = ("payload", "startup", "idle", "lost", "total")
    return {kind: sum(row[kind] for row in rows) for kind in kinds}
