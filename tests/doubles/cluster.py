"""A double for tests: its folder, the commands on a PATH of its own, and the faults that a test orders."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.doubles.jobs import locked, signal_group

HERE = Path(__file__).parent
COMMANDS = {
    "pbs": ("pbs_commands.py", ("qsub", "qstat", "qselect", "qdel", "qrls", "pbsnodes")),
    "lsf": (
        "lsf_commands.py",
        ("bsub", "bjobs", "bresume", "bkill", "bqueues", "bhosts", "lshosts", "lsid"),
    ),
    "torque": ("pbs_commands.py", ("qsub", "qstat", "qselect", "qdel", "qrls", "pbsnodes")),
}


class Double:
    """One cluster. `environment` is for the commands of clients."""

    def __init__(self, folder: Path, system: str) -> None:
        self.folder = folder
        self.system = system
        self.bin = folder / "bin"
        self.state = folder / "state"
        program, commands = COMMANDS[system]
        for path in (self.bin, self.state):
            path.mkdir()
        folder.chmod(0o755)
        words = [sys.executable, "-I", "-S", "-B", str(HERE / program), str(self.state), system]
        for name in commands:
            (self.bin / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} {name} "$@"\n')
            (self.bin / name).chmod(0o755)
        self.environment = {
            "PATH": f"{self.bin}:{os.environ.get('PATH', '')}",
            "HOME": str(folder),
            "USER": getpass.getuser(),
            "LANG": "C",
        }

    def run(self, *command: str, text: str = "") -> str:
        """The output of a command; its exit code is ignored."""
        done = subprocess.run(
            command, env=self.environment, input=text, capture_output=True, text=True, check=False, cwd="/"
        )
        return done.stdout

    @contextmanager
    def faulty(self, command: str = "*", **order: Any) -> Iterator[None]:
        """Let a command fail, as `jobs.fail_as_told` says."""
        file = self.state / "faults.json"
        file.write_text(json.dumps({command: order}))
        try:
            yield
        finally:
            file.unlink()

    def kill(self, number: str, index: str = "") -> None:
        """Kill the processes of a job that runs."""
        with locked(self.state) as cluster:
            task = cluster.jobs[number]["tasks"][index]
            signal_group(task["pid"], signal.SIGKILL)

    def change(self, number: str, **values: Any) -> None:
        """Set values of a job, such as its comment."""
        with locked(self.state) as cluster:
            cluster.jobs[number].update(values)

    def stop(self) -> None:
        """Kill the processes of all jobs."""
        with locked(self.state) as cluster:
            for job in cluster.jobs.values():
                job["hold"] = "u"
                for task in job["tasks"].values():
                    if task["state"] == "running":
                        signal_group(task["pid"], signal.SIGKILL)


@contextmanager
def double(system: str) -> Iterator[Double]:
    """A cluster of this system."""
    folder = Path(tempfile.mkdtemp(prefix="pilotage-double-"))
    made = Double(folder, system)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
