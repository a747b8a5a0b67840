"""Clients of batch systems that the server's machine can reach."""

from __future__ import annotations

import getpass
import os

from pilotage.core.policy.model import SlurmOptions
from pilotage.outside.batch.runner import LocalRunner
from pilotage.outside.batch.slurm.adapter import TIMEOUT, SlurmBatch

BATCH_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "SLURM_CONF")
"""Variables that the commands of a batch system get, and through them its pilots."""


def slurm_client(options: SlurmOptions, timeout: float = TIMEOUT) -> SlurmBatch:
    """A client of this machine's Slurm, under the account of the server."""
    environment = {key: os.environ[key] for key in BATCH_ENVIRONMENT if key in os.environ}
    return SlurmBatch(LocalRunner(environment), getpass.getuser(), options, timeout)
