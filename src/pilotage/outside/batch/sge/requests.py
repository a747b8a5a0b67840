"""The queues on hosts where the pilots of a CE may run, by its requests of queues and complexes. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pilotage.core.policy.batch_systems.sge import SgeOptions, split_requests
from pilotage.outside.batch.adapter import Shape
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.sge.queues import Complex, QueueInstance, read_value

ONE_CORE = Shape(1)
"""Pilots of which only the number of cores is known."""

PATTERN = re.compile(r"[*?\[]")


def named_host_groups(queue: str) -> list[str]:
    """The groups of hosts in the option `-q`, such as @fast of `long.q@@fast`. Patterns are left out."""
    hosts = [wanted.partition("@")[2] for wanted in queue.split(",")]
    return [host for host in dict.fromkeys(hosts) if host.startswith("@") and not PATTERN.search(host)]


def read_host_group(output: str) -> frozenset[str]:
    """The hosts in the output of `commands.show_host_group`."""
    return frozenset(output.split())


@dataclass(frozen=True, slots=True)
class PilotPlaces:
    """The requests of the CE's pilots, with all that decides them."""

    options: SgeOptions
    groups: Mapping[str, frozenset[str]]
    """Hosts by the name of their group."""
    complexes: Mapping[str, Complex]
    shape: Shape = ONE_CORE

    def select(self, instances: Iterable[QueueInstance]) -> list[QueueInstance]:
        """The queues on hosts that fit the requests. Where only Grid Engine can decide, they fit.

        `UnreadableOutput`: there is none.
        """
        queue, resources = self.options.queue[:200], self.options.resources[:200]
        named = [instance for instance in instances if self._is_named(instance)]
        if not named:
            raise UnreadableOutput(f"the cell has no queue {queue!r}" if queue else "the cell has no queue")
        fitting = [
            instance
            for instance in named
            if all(self._offers(instance, *request) for request in self._requests())
        ]
        if not fitting:
            raise UnreadableOutput(f"no queue of the CE offers {resources!r} on any host")
        # Where every queue is too small, pilots wait with the scheduler's reason.
        return [instance for instance in fitting if self._holds(instance)] or fitting

    def _holds(self, instance: QueueInstance) -> bool:
        """Whether the limits of the queue let a pilot start."""
        is_long_enough = instance.wall is None or instance.wall >= self.shape.wall
        return is_long_enough and (not instance.usable or instance.slots >= self.shape.processors)

    def _is_named(self, instance: QueueInstance) -> bool:
        """Whether jobs of `qsub -q` may run there."""
        if not self.options.queue:
            return True
        for wanted in self.options.queue.split(","):
            name, _, host = wanted.partition("@")
            if fnmatchcase(instance.queue, name or "*") and self._is_host(instance.host, host):
                return True
        return False

    def _is_host(self, host: str, wanted: str) -> bool:
        if not wanted:
            return True
        if wanted.startswith("@"):
            # The hosts of a pattern of groups are Grid Engine's own matter.
            return wanted not in self.groups or any(_is_same(host, member) for member in self.groups[wanted])
        return fnmatchcase(host.lower(), wanted.lower()) or _is_same(host, wanted)

    def _requests(self) -> Sequence[tuple[str, str]]:
        words = [word.partition("=") for word in split_requests(self.options.resources)]
        return [(name, value) for name, _, value in words]

    def _offers(self, instance: QueueInstance, name: str, wanted: str) -> bool:
        known = next((row for row in self.complexes.values() if name in (row.name, row.shortcut)), None)
        if known is None or known.name in ("qname", "hostname"):
            return True
        if (offered := instance.values.get(known.name)) is None:
            # Grid Engine starts no job there. A host that does not answer has no measured values.
            return not instance.usable
        passes = known.consumable != "NO" or (known.name in instance.measured and known.name not in _STEADY)
        return passes or _accepts(known, wanted or "true", offered)


def _accepts(known: Complex, wanted: str, offered: str) -> bool:
    """Whether a host with this value accepts a request. True where the comparison is Grid Engine's own matter."""
    if (
        known.kind in ("CSTRING", "RESTRING", "HOST")
        or PATTERN.search(wanted)
        or re.search("[|&!()]", wanted)
    ):
        return True
    if known.kind == "STRING":
        return known.relation != "==" or wanted == offered
    left, right = read_value(wanted, known.kind), read_value(offered, known.kind)
    compare = _RELATIONS.get(known.relation)
    if compare is None or not isinstance(left, int | float) or not isinstance(right, int | float):
        return True
    return compare(left, right)


_STEADY = frozenset({"arch", "num_proc", "mem_total", "swap_total", "virtual_total"})
"""Measured values that do not change with the jobs that run."""

_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
}


def _is_same(name: str, other: str) -> bool:
    """Whether two names are of one host: a name without a domain is that of a host with one."""
    name, other = name.lower(), other.lower()
    if "." in name and "." in other:
        return name == other
    return name.partition(".")[0] == other.partition(".")[0]
