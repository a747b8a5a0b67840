"""The machines of an HTCondor pool as hosts of a CE. Pure, and tested on recorded outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotage.core.brokering.host_classes import Host, group_hosts
from pilotage.core.glue.information import CeInformation, Value
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import BatchPartition
from pilotage.outside.batch.ce_facts import job_counts, minima_of_hosts
from pilotage.outside.batch.htcondor.output import ScheddAd, read_ads


@dataclass(frozen=True, slots=True)
class PoolMachine:
    """A machine, or one of the fixed slots of a machine."""

    name: str
    cores: int
    memory: int
    """MB."""
    free: int
    """Cores that no job has."""
    usable: bool
    """False: its owner uses it, it is drained, or it is off."""
    attributes: Mapping[str, Value]


STANDARD = {
    "GlueHostArchitecturePlatformType": "Arch",
    "GlueHostArchitectureSMPSize": "TotalCpus",
    "GlueHostMainMemoryRAMSize": "TotalMemory",
    "GlueHostOperatingSystemName": "OpSysName",
}
"""Attributes of machines by attribute of hosts, where no rule of the CE names another one."""

_UNUSABLE = frozenset({"Owner", "Drained", "Delete", "Shutdown"})
_PLATFORMS = {"X86_64": "x86_64", "INTEL": "i686"}


def read_machines(output: str, own: Mapping[str, str]) -> list[PoolMachine]:
    """Read the output of `commands.list_machines`. `own`: attributes of hosts → attributes of machines.

    A partitionable slot is a machine. Fixed slots are machines of their own, as HTCondor matches them.
    """
    return [machine for ad in read_ads(output, dict) if (machine := _machine(ad, own)) is not None]


def _machine(ad: Mapping[str, object], own: Mapping[str, str]) -> PoolMachine | None:
    name = ad.get("Name") if ad.get("SlotType") == "Static" else ad.get("Machine")
    if not isinstance(name, str):
        return None
    cores = _number(ad.get("TotalSlotCpus") or ad.get("TotalCpus"))
    memory = _number(ad.get("TotalSlotMemory") or ad.get("TotalMemory"))
    usable = ad.get("State") not in _UNUSABLE and ad.get("Offline") is not True
    busy = ad.get("SlotType") == "Static" and ad.get("State") == "Claimed"
    attributes = {
        name: value
        for name, attribute in own.items()
        if (value := _value(name, ad.get(attribute))) is not None
    }
    free = 0 if busy else _number(ad.get("Cpus"))
    return PoolMachine(name, cores, memory, free if usable else 0, usable, attributes)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _value(name: str, value: object) -> Value | None:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list) and all(isinstance(member, str) for member in value):
        return tuple(value)
    if not isinstance(value, str) or re.match(r"/Expr\(", value):
        return None  # An expression that HTCondor could not evaluate.
    return _PLATFORMS.get(value, value) if name == "GlueHostArchitecturePlatformType" else value


def partition_of(machines: Sequence[PoolMachine], name: str) -> BatchPartition:
    """The pool as the only partition. HTCondor has no limit on the time of batch jobs."""
    sizes = [(machine.cores, machine.memory) for machine in machines]
    kinds = tuple(NodeSize(sizes.count(size), *size) for size in sorted(set(sizes)))
    return BatchPartition(name, any(machine.usable for machine in machines), None, kinds, default=True)


def describe_ce(
    schedd: ScheddAd, pool: str, machines: Sequence[PoolMachine], running: int, waiting: int
) -> CeInformation:
    """The information of a CE. `running`, `waiting`: jobs of the schedd, of all users."""
    usable = [machine for machine in machines if machine.usable]
    classes = group_hosts(Host(machine.name, machine.attributes) for machine in usable)
    version = re.search(r"[0-9]+\.[0-9]+\.[0-9]+", schedd.version)
    attributes: dict[str, Value] = {
        **minima_of_hosts(classes),
        **job_counts(running, waiting),
        "GlueCEName": pool or schedd.name,
        "GlueCEInfoLRMSType": "htcondor",
        "GlueCEInfoHostName": schedd.name,
        "GlueCEInfoTotalCPUs": sum(machine.cores for machine in machines),
        # HTCondor accepts jobs for machines that are all away, and lets them wait.
        "GlueCEStateStatus": "Production" if usable else "Queueing",
        "GlueCEStateFreeCPUs": sum(machine.free for machine in usable),
        "UnavailableHosts": len(machines) - len(usable),
    }
    if version is not None:
        attributes["GlueCEInfoLRMSVersion"] = version[0]
    return CeInformation(attributes, classes)
