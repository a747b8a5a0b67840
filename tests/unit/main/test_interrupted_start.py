"""Ctrl-C ends a command without a traceback, whatever is being imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
sys.meta_path.insert(0, Interruption())
sys.argv = ["pilotage", "status"]
from pilotage.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module",
    [
        *("pilotage.main.command_line", "pilotage.cli.commands", "pilotage.cli.root", "pilotage.core.errors"),
        *(
            "pilotage.cli.status",
            "click",
            "pilotage.client",
            "http.client",
            "pilotage.client.connections",
        ),
    ],
)
def test_an_interrupted_import_prints_no_traceback(module: str, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PILOTAGE_SERVER": "http://127.0.0.1:1", "PILOTAGE_TOKEN": "x"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr in ("", "pilotage: interrupted\n")
