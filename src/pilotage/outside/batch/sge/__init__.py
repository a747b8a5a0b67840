"""Grid Engine: arguments of its commands, readers of their output, and the adapter that uses both."""

from __future__ import annotations

from pilotage.core.policy import Ce
from pilotage.core.policy.batch_systems.sge import SgeOptions
from pilotage.outside.batch.adapter import Shape
from pilotage.outside.batch.registry import ServerMachine
from pilotage.outside.batch.sge.adapter import SgeBatch
from pilotage.outside.batch.sge.cell import Cell, FarCell

VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ"),
    *("SGE_ROOT", "SGE_CELL", "SGE_ARCH", "SGE_QMASTER_PORT", "SGE_EXECD_PORT"),
)
"""Variables that Grid Engine's commands get, and through them its pilots."""


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> SgeBatch:
    """The adapter of the CE's cell, under the account of the server."""
    options = ce.options_as(SgeOptions)
    environment = machine.variables(VARIABLES)
    own = {"SGE_ROOT": options.root, "SGE_CELL": options.cell}
    if options.qmaster_port:
        own["SGE_QMASTER_PORT"] = str(options.qmaster_port)
    environment |= {name: value for name, value in own.items() if value}
    shape = Shape(ce.pilot_processors, ce.pilot_memory, ce.wall)
    runner = machine.runner(environment)
    cell = FarCell(runner, timeout) if runner.is_remote else Cell.of(environment)
    return SgeBatch(runner, machine.user, options, cell, timeout, shape)
