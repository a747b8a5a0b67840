"""Hosts of running pilots as the nodes of Slurm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pilotage.core.printable import printable

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.sites import PartitionSummary


@dataclass
class PilotHost:
    name: str
    processors: int = 0
    used: int = 0
    """Jobs that run there; each has one core at least."""
    ces: set[str] = field(default_factory=set)

    @property
    def state(self) -> str:
        if not self.used:
            return "idle"
        return "allocated" if self.used >= self.processors else "mixed"

    def is_in(self, partition: PartitionSummary) -> bool:
        return not self.ces.isdisjoint(partition.ces)


def hosts_of(client: Client) -> list[PilotHost]:
    """The hosts of pilots that have called home and not ended, by name."""
    hosts: dict[str, PilotHost] = {}
    for pilot in client.pilots():
        if pilot.ended is not None or pilot.started is None:
            continue
        name = printable(pilot.hostname.partition(".")[0])
        host = hosts.setdefault(name, PilotHost(name))
        host.processors += pilot.processors
        host.used += min(pilot.jobs, pilot.processors)
        host.ces.add(pilot.ce)
    return sorted(hosts.values(), key=lambda host: host.name)
