"""Environments with programs of package registries, installed once into a folder of the user's cache for all tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.deadlines import PATIENCE


def installed_environment(folder_name: str, system: str, *packages: str) -> tuple[Path, str]:
    """The environment with these packages, and why there is none; it is made at the first call on a machine."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(caches) / "pilotage-tests" / folder_name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        # One process of the tests installs it; the others wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "complete").exists():
            return folder, ""
        shutil.rmtree(folder, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(folder / "bin" / "pip"), "install", "-q", *packages],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=5 * PATIENCE, check=False)
            if done.returncode:
                return folder, f"{system} cannot be installed: {done.stderr.strip()[-300:]}"
        (folder / "complete").touch()
    return folder, ""
