"""PBS: arguments of its commands, readers of their output, and the adapter that uses both. Torque is a dialect."""

from __future__ import annotations

from pilotage.core.policy import Ce
from pilotage.core.policy.batch_systems.pbs import PbsOptions
from pilotage.outside.batch.pbs.adapter import PbsBatch
from pilotage.outside.batch.pbs.commands import OpenPbs
from pilotage.outside.batch.registry import ServerMachine

VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ"),
    *("PBS_CONF_FILE", "PBS_SERVER", "PBS_EXEC", "PBS_PRIMARY", "PBS_SECONDARY"),
)
"""Variables that the commands of PBS get."""


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> PbsBatch:
    """The adapter of the CE's server, under the account of the server of Pilotage."""
    dialect = OpenPbs(ce.options_as(PbsOptions))
    runner = machine.runner({**machine.variables(VARIABLES), **dialect.environment})
    return PbsBatch(runner, machine.user, dialect, timeout)
