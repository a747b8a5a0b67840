"""Debian's packages that tests need, installed by one worker of the tests at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.deadlines import PATIENCE


def still_lacking(lacking: Callable[[], list[str]], packages: Sequence[str]) -> list[str]:
    """What `lacking` names after the packages were installed, as root on Debian; elsewhere nothing is installed.

    apt refuses a second installation beside the first: the other workers wait, and look again.
    """
    if not lacking() or os.geteuid() != 0 or not shutil.which("apt-get"):
        return lacking()
    lock = Path(tempfile.gettempdir()) / "pilotage-debian-packages.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if lacking():
            _install(packages)
    return lacking()


def lacks(program: str) -> bool:
    """Whether a program is absent, also after the package of its name was installed."""
    return bool(still_lacking(lambda: [] if shutil.which(program) else [program], [program]))


def _install(packages: Sequence[str]) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
        subprocess.run(
            ["apt-get", "-o", "DPkg::Lock::Timeout=300", *command],
            env=environment,
            check=False,
            capture_output=True,
            timeout=5 * PATIENCE,
        )
