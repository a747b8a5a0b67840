"""Environments with programs of package registries, installed once into a folder of the user's cache for all tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
import zlib
from functools import cache
from pathlib import Path

from tests.batch_daemons import skip_or_fail
from tests.deadlines import PATIENCE

ROOT = Path(__file__).parents[1]


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
            # Modules are compiled when they are imported: most never are.
            [str(folder / "bin" / "pip"), "install", "-q", "--no-compile", *packages],
        ):
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=5 * PATIENCE, check=False
                )
            except subprocess.TimeoutExpired:
                return folder, f"{system} cannot be installed within {5 * PATIENCE:.0f} s"
            if done.returncode:
                return folder, f"{system} cannot be installed: {done.stderr.strip()[-300:]}"
        (folder / "complete").touch()
    return folder, ""


@cache
def environment_with_client(system: str, *packages: str) -> Path:
    """An environment with these packages and what our client needs. Skips the test where there is none."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    name = f"{system.lower()}-{zlib.crc32(' '.join((*packages, *needed)).encode()):08x}"
    folder, trouble = installed_environment(name, system, *packages, *needed)
    if trouble:
        skip_or_fail(f"{system} is not tested: {trouble}", system.lower())
    return folder
