"""Machines without a batch system: pilots are processes there, started over ssh."""

from __future__ import annotations

from pilotage.core.policy import Ce
from pilotage.core.policy.batch_systems.machines import MachinesOptions
from pilotage.outside.batch.machines.adapter import MachinesBatch
from pilotage.outside.batch.machines.far_machine import FarMachine
from pilotage.outside.batch.registry import ServerMachine


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> MachinesBatch:
    """The adapter of the machines of a CE."""
    machines = ce.options_as(MachinesOptions).machines
    assert machine.ssh is not None, "this machine has no connections"
    return MachinesBatch(
        [FarMachine(machine.ssh(each.reach), each.cores, timeout) for each in machines], ce.wall
    )
