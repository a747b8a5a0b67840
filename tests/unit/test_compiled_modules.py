"""Processes of the tests find their modules compiled."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path


def test_a_process_keeps_what_it_compiles() -> None:
    """Also where the environment of the tests forbids it."""
    program = "import sys, pilotage.wire.pilot; print(sys.dont_write_bytecode)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    source = importlib.util.find_spec("pilotage.wire.pilot")
    assert source is not None
    assert source.cached is not None
    assert Path(source.cached).exists()
