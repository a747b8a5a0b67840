"""Which python3 the jobs of local pilots find, for the words of `up`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from pilotage.outside.batch.local import own_environment
from pilotage.pilot.launch import base_environment

PATIENCE = 5.0
"""Seconds that an interpreter has to tell its version."""


def describe_payload_python(environment: Mapping[str, str]) -> str:
    """A sentence. `environment` is that of the server, from which its pilots and their jobs get theirs."""
    given = base_environment(own_environment(environment))
    place = shutil.which("python3", path=given["PATH"])
    if place is None:
        return "Jobs find no python3 in their PATH."
    try:
        told = subprocess.run(
            [os.path.abspath(place), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            env=given,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"Jobs find python3 at {place}, which does not tell its version."
    return f"Jobs find python3 at {place} ({told.stdout.strip()[:40] or 'of unknown version'})."
