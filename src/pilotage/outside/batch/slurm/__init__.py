"""Slurm: arguments of its commands, readers of their text output, and the adapter that uses both."""

from __future__ import annotations

from pilotage.core.policy import Ce
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.registry import ServerMachine
from pilotage.outside.batch.slurm.adapter import SlurmBatch

VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "SLURM_CONF")
"""Variables that Slurm's commands get, and through them its pilots."""


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> SlurmBatch:
    """The adapter of the CE's cluster, under the account of the server."""
    options = ce.options_as(SlurmOptions)
    environment = machine.variables(VARIABLES)
    if options.conf:
        environment["SLURM_CONF"] = options.conf
    return SlurmBatch(machine.runner(environment), machine.user, options, timeout, ce.wall)
