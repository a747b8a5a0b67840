"""Readers of the nodes, partitions and jobs that Slurm shows. Pure, and tested on recorded outputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pilotage.core.brokering.host_classes import Host, group_hosts
from pilotage.core.brokering.host_values import FEATURES
from pilotage.core.glue.information import CeInformation, Value
from pilotage.core.policy.batch_systems.slurm import SlurmOptions
from pilotage.outside.batch.ce_facts import job_counts, known_limits, longest, minima_of_hosts
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.slurm.output import STATES, read_setting, read_span, whole_lines
from pilotage.outside.batch.submission import NativeState

GRES = "SlurmGres"
"""The attribute of a host class with the generic resources of its nodes, such as gpu:2."""

_UNUSABLE = frozenset(
    {
        *("DOWN", "ERROR", "FAIL", "FAILING", "FUTURE", "UNKNOWN"),
        *("DRAIN", "DRAINED", "DRAINING", "NOT_RESPONDING", "INVALID_REG"),
    }
)
"""Words in the state of a node that starts no jobs. Nodes that are switched off to save power start again."""

_STATUS = {"UP": "Production", "DOWN": "Queueing", "DRAIN": "Draining", "INACTIVE": "Closed"}
"""GlueCEStateStatus by the state of a partition.

Queueing: jobs are accepted and not started. Draining: jobs are started and not accepted. Closed: neither.
"""
_BEST_FIRST = ("Production", "Queueing", "Draining", "Closed")


@dataclass(frozen=True, slots=True)
class ShownPartition:
    """A partition as `commands.show_partitions` shows it."""

    name: str
    status: str
    """A value of GlueCEStateStatus."""
    wall: float | None
    """Seconds; None: no limit."""
    default: bool


@dataclass(frozen=True, slots=True)
class ShownNode:
    """A node as `commands.show_nodes` shows it."""

    name: str
    partitions: frozenset[str]
    usable: bool
    """False: it is down or drained."""
    processors: int
    free: int
    """Processors that no job has."""
    attributes: Mapping[str, Value]

    @property
    def features(self) -> tuple[str, ...]:
        names = self.attributes[FEATURES]
        return names if isinstance(names, tuple) else ()


def read_shown_partitions(text: str) -> list[ShownPartition]:
    """Read the output of `commands.show_partitions`."""
    partitions = []
    for line in _lines(text, "PartitionName="):
        state = _field(line, "State")
        if state not in _STATUS:
            raise UnreadableOutput(f"a partition has the unknown state {state[:50]!r}")
        wall, default = read_span(_field(line, "MaxTime")), _field(line, "Default") == "YES"
        partitions.append(ShownPartition(_field(line, "PartitionName"), _STATUS[state], wall, default))
    return partitions


def read_shown_nodes(text: str) -> Iterator[ShownNode]:
    """Read the output of `commands.show_nodes`."""
    for line in _lines(text, "NodeName="):
        processors = _number(_field(line, "CPUTot"))
        facts = (
            *(_field(line, "Arch", ""), _number(_field(line, "RealMemory")), processors),
            *(_field(line, "AvailableFeatures", ""), _field(line, "Gres", "")),
        )
        yield ShownNode(
            _field(line, "NodeName"),
            _partitions_of(_field(line, "Partitions", "")),
            _is_usable(_field(line, "State")),
            processors,
            max(0, processors - _number(_field(line, "CPUAlloc"))),
            _attributes(*facts),
        )


def _lines(text: str, start: str) -> Iterator[str]:
    """The lines of an output, each after a space, so that all names of fields follow one."""
    for line in whole_lines(text):
        if not line.strip():
            continue
        if not line.startswith(start):
            raise UnreadableOutput(f"a line does not begin with {start}: {line[:200]!r}")
        yield f" {line}"


def _field(line: str, name: str, default: str | None = None) -> str:
    """The value of NAME=value. The first one counts: texts of administrators, such as Reason, come last."""
    mark = f" {name}="
    start = line.find(mark)
    if start < 0:
        if default is None:
            raise UnreadableOutput(f"{name} is missing in {line[:200]!r}")
        return default
    start += len(mark)
    end = line.find(" ", start)
    return line[start:] if end < 0 else line[start:end]


def _number(text: str) -> int:
    if re.fullmatch("[0-9]{1,15}", text) is None:
        raise UnreadableOutput(f"not a number: {text[:50]!r}")
    return int(text)


@lru_cache(1000)
def _is_usable(state: str) -> bool:
    """Whether a node in this state, such as MIXED+CLOUD, starts jobs now or later by itself."""
    return "*" not in state and _UNUSABLE.isdisjoint(re.findall("[A-Z_]+", state))


@lru_cache(1000)
def _partitions_of(text: str) -> frozenset[str]:
    return frozenset(word for word in text.split(",") if word)


@lru_cache(5000)
def _attributes(arch: str, memory: int, processors: int, features: str, gres: str) -> Mapping[str, Value]:
    """The attributes of a node. Equal nodes have the same object."""
    attributes: dict[str, Value] = {
        "GlueHostArchitectureSMPSize": processors,
        "GlueHostMainMemoryRAMSize": memory,
        FEATURES: _names(features),
        GRES: _names(re.sub(r"\([^)]*\)", "", gres)),
    }
    if arch:
        attributes["GlueHostArchitecturePlatformType"] = arch
    return attributes


def _names(text: str) -> tuple[str, ...]:
    words = () if text in ("(null)", "N/A") else text.split(",")
    return tuple(sorted({word for word in words if word}))


def named_partitions(
    partitions: Sequence[ShownPartition], options: SlurmOptions, wall: float = 0.0
) -> list[ShownPartition]:
    """The partitions that the pilots of a CE use. `UnreadableOutput` if the cluster has none of them.

    Partitions that are too short for pilots of `wall` seconds are left out, unless all of them are.
    """
    if not options.partition:
        named = [partition for partition in partitions if partition.default]
        reason = "the cluster has no default partition"
    else:
        wanted = options.partition.split(",")
        named = [partition for partition in partitions if partition.name in wanted]
        reason = f"the cluster has no partition {options.partition[:200]!r}"
    if not named:
        raise UnreadableOutput(reason)
    return [partition for partition in named if partition.wall is None or partition.wall >= wall] or named


def _is_wanted(node: ShownNode, partitions: Collection[str], options: SlurmOptions) -> bool:
    """Whether the pilots of a CE may run on a node, as far as its options tell by single features and resources."""
    if node.partitions.isdisjoint(partitions):
        return False
    return _has_features(options.constraint, node.attributes[FEATURES]) and _has_gres(
        options.gres, node.attributes[GRES]
    )


def _has_features(constraint: str, features: Value) -> bool:
    """True also for a constraint with brackets, counts or both operators, which only Slurm decides."""
    if not constraint or re.search(r"[\[\]()*]", constraint) or ("&" in constraint and "|" in constraint):
        return True
    assert isinstance(features, tuple)
    names = re.split("[&|,]", constraint)
    return any(name in features for name in names) if "|" in constraint else set(names) <= set(features)


def _has_gres(wanted: str, gres: Value) -> bool:
    assert isinstance(gres, tuple)
    names = {resource.partition(":")[0] for resource in gres}
    return not wanted or all(word.partition(":")[0] in names for word in wanted.split(","))


def count_jobs(text: str) -> tuple[int, int]:
    """(running, waiting) jobs in the output of `commands.list_job_states`."""
    running = waiting = 0
    for word, count in Counter(" ".join(whole_lines(text)).split()).items():
        state = STATES.get(word)
        if state is None:
            raise UnreadableOutput(f"a job has the unknown state {word[:50]!r}")
        running += count if state is NativeState.RUNNING else 0
        waiting += count if state in (NativeState.WAITING, NativeState.HELD) else 0
    return running, waiting


def describe_ce(
    configuration: str,
    partitions: Sequence[ShownPartition],
    nodes: Sequence[ShownNode],
    states: str,
    options: SlurmOptions,
) -> CeInformation:
    """The information of a CE. `partitions`: its own; `configuration`, `states`: the outputs of the commands."""
    names = {partition.name for partition in partitions}
    own = [node for node in nodes if _is_wanted(node, names, options)]
    usable = [node for node in own if node.usable]
    classes = group_hosts((Host(node.name, node.attributes) for node in usable), details=(FEATURES, GRES))
    running, waiting = count_jobs(states)
    status = min((partition.status for partition in partitions), key=_BEST_FIRST.index)
    attributes: dict[str, Value] = {
        **minima_of_hosts(classes),
        **job_counts(running, waiting),
        "GlueCEName": ",".join(partition.name for partition in partitions),
        "GlueCEInfoLRMSType": "slurm",
        "GlueCEInfoLRMSVersion": read_setting(configuration, "SLURM_VERSION"),
        "GlueCEInfoHostName": read_setting(configuration, "SlurmctldHost[0]").partition("(")[0],
        "GlueCEInfoTotalCPUs": sum(node.processors for node in own),
        # Slurm accepts jobs for nodes that are all down, and lets them wait.
        "GlueCEStateStatus": "Queueing" if status == "Production" and not usable else status,
        "GlueCEStateFreeCPUs": sum(node.free for node in usable),
        "UnavailableHosts": len(own) - len(usable),
    }
    limits = {
        "GlueCEPolicyMaxWallClockTime": longest([partition.wall for partition in partitions]),
        "GlueCEPolicyMaxTotalJobs": _job_limit(configuration),
    }
    return CeInformation(attributes | known_limits(limits), classes)


def _job_limit(configuration: str) -> int | None:
    text = read_setting(configuration, "MaxJobCount")
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None
