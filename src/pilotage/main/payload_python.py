"""The python3 that jobs of local pilots find, for the start message of `up`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from pilotage.outside.batch.local import own_environment
from pilotage.pilot.launch import base_environment

PATIENCE = 5.0
"""Seconds to wait for the version of an interpreter."""


def describe_payload_python(environment: Mapping[str, str]) -> str:
    """A sentence about python3. `environment` is the server's; pilots and jobs inherit from it."""
    given = base_environment(own_environment(environment))
    place = shutil.which("python3", path=given["PATH"])
    if place is None:
        return "Jobs find no python3 in their PATH."
    try:
        result = subprocess.run(
            [os.path.abspath(place), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            env=given,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"Jobs find python3 at {place}, whose version is unknown."
    return f"Jobs find python3 at {place} ({result.stdout.strip()[:40] or 'of unknown version'})."
