"""The start of cheap commands: processor time of each, in turns with bare Python and with another version."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.figure import Figure
from benchmarks.server import served

SUMMARY = (
    "ms of processor time of `status` without a server; of --help, queue list, why and bare Python beside it"
)

START = "import sys; from pilotage.main import main; sys.exit(main())"
COMMANDS = {
    "status, no server": ("none", "status"),
    "--help": ("none", "--help"),
    "--version": ("none", "--version"),
    "status --help": ("none", "status", "--help"),
    "status": ("home", "status"),
    "queue list": ("home", "queue", "list"),
    "why": ("home", "why", "1"),
}
"""By name: the home, and the words."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--against", default="", help="another checkout with its .venv, measured in turns")


def run(asked: argparse.Namespace) -> Figure:
    pythons = {"": sys.executable}
    if asked.against:
        pythons[f" of {asked.against}"] = str(Path(asked.against).absolute() / ".venv" / "bin" / "python")
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-commands-") as name:
        folder = Path(name)
        with served(folder) as client:
            client.submit({"executable": "/bin/true", "requirements": 'other.Site == "nowhere"'})
            for _ in range(asked.runs):
                for of, python in pythons.items():
                    times.setdefault(f"bare Python{of}", []).append(_spent([python, "-c", "pass"], folder))
                    for command, (home, *words) in COMMANDS.items():
                        spent = _spent([python, "-c", START, *words], folder / home)
                        times.setdefault(f"{command}{of}", []).append(spent)
    peers = {command: round(median(runs), 1) for command, runs in times.items()}
    ours = peers.pop("status, no server")
    runs = [round(spent, 1) for spent in times["status, no server"]]
    return Figure("commands", ours, "ms", peers, round(ours / peers["bare Python"], 2), runs)


def _spent(command: Sequence[str], home: Path) -> float:
    """Milliseconds of processor time of a process, from its start to its end."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PILOTAGE_HOME": str(home)}
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return (used.ru_utime + used.ru_stime) * 1000
