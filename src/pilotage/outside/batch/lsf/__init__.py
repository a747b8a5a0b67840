"""LSF: arguments of its commands, readers of their output, and the adapter that uses both."""

from __future__ import annotations

from pilotage.core.policy import Ce
from pilotage.core.policy.batch_systems.lsf import LsfOptions
from pilotage.outside.batch.lsf.adapter import LsfBatch
from pilotage.outside.batch.registry import ServerMachine

VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "TZ"),
    *("LSF_ENVDIR", "LSF_SERVERDIR", "LSF_BINDIR", "LSF_LIBDIR", "LSF_VERSION", "LD_LIBRARY_PATH"),
)
"""Variables that LSF's commands get, and through them its pilots."""


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> LsfBatch:
    """The adapter of the CE's cluster, under the account of the server. Its commands answer in English."""
    options = ce.options_as(LsfOptions)
    environment = {**machine.variables(VARIABLES), "LANG": "C"}
    if options.envdir:
        environment["LSF_ENVDIR"] = options.envdir
    return LsfBatch(machine.runner(environment), machine.user, options, timeout)
