"""Readers of the queues and hosts that LSF shows, and the CE that they make. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotage.core.brokering.host_classes import Host, group_hosts
from pilotage.core.glue.information import CeInformation, Value
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import BatchPartition, Shape
from pilotage.outside.batch.ce_facts import job_counts, known_limits, minima_of_hosts
from pilotage.outside.batch.command_client import UnreadableOutput

RESOURCES = "LsfResources"
"""The attribute with the boolean resources of a host."""

_USABLE = ("ok", "closed_Full", "closed_Busy", "closed_Excl", "closed_Cu_excl", "closed_RC")
"""States of a host in which it starts jobs now or later by itself."""

_PLATFORMS = {"X86_64": "x86_64", "X64": "x86_64", "LINUX64": "x86_64", "LINUXPPC64LE": "ppc64le"}
_PLATFORMS |= {"LINUX_ARM64": "aarch64", "LINUXAARCH64": "aarch64", "LINUX86": "i686", "X86": "i686"}


@dataclass(frozen=True, slots=True)
class LsfCluster:
    """The answer of `lsid`."""

    name: str
    version: str
    master: str


@dataclass(frozen=True, slots=True)
class LsfQueue:
    name: str
    default: bool
    status: str
    """Such as Open:Active."""
    wall: float | None
    """The longest time of a job, in seconds; None: no limit."""
    hosts: frozenset[str]
    """Empty: all hosts, or groups that only LSF knows."""
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class LsfHost:
    name: str
    usable: bool
    slots: int
    used: int
    memory: int
    """MB; 0: not known."""
    attributes: Mapping[str, Value]


def read_cluster(output: str) -> LsfCluster:
    """Read the output of `commands.show_cluster`."""
    name = re.search(r"^My cluster name is (\S+)", output, re.MULTILINE)
    master = re.search(r"^My master name is (\S+)", output, re.MULTILINE)
    version = re.search(r"\bLSF\b.*?([0-9]+(?:\.[0-9]+)+)", output)
    if name is None:
        raise UnreadableOutput(f"lsid names no cluster: {output[:200]!r}")
    return LsfCluster(name[1], version[1] if version else "", master[1] if master else "")


def read_queues(output: str) -> list[LsfQueue]:
    """Read the output of `commands.list_queues`."""
    parts = re.split(r"^QUEUE:[ \t]*(\S+)[ \t]*$", output, flags=re.MULTILINE)
    if len(parts) < 3:
        raise UnreadableOutput(f"`bqueues -l` shows no queue: {output[:200]!r}")
    return [_queue(name, text) for name, text in zip(parts[1::2], parts[2::2], strict=True)]


def _queue(name: str, text: str) -> LsfQueue:
    heads, values = list[str](), list[str]()
    for line, following in zip(text.splitlines(), text.splitlines()[1:], strict=False):
        if line.split()[:2] == ["PRIO", "NICE"]:
            heads, values = line.split(), following.split()
    figures = dict(zip(heads, values, strict=False))
    if "STATUS" not in figures:
        raise UnreadableOutput(f"the queue {name[:100]!r} has no STATUS")
    number = {head: int(value) for head, value in figures.items() if value.isdecimal()}
    # Default limits stand before the maximum ones.
    limits = text.partition("MAXIMUM LIMITS:")[2] or text
    wall = re.search(r"^[ \t]*RUNLIMIT[ \t]*\n[ \t]*([0-9]+(?:\.[0-9]+)?) min", limits, re.MULTILINE)
    named = re.search(r"^HOSTS:[ \t]*(.*)$", text, re.MULTILINE)
    hosts = [re.sub(r"\+[0-9]*$", "", word) for word in (named[1].split() if named else ())]
    are_names = (
        all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", word) for word in hosts) and "all" not in hosts
    )
    return LsfQueue(
        name,
        "This is the default queue" in text,
        figures["STATUS"],
        float(wall[1]) * 60 if wall else None,
        frozenset(hosts) if are_names else frozenset(),
        number.get("RUN", 0) + number.get("SSUSP", 0) + number.get("USUSP", 0),
        number.get("PEND", 0),
    )


def read_hosts(listed: str, states: str) -> list[LsfHost]:
    """Read the outputs of `commands.list_hosts` and `commands.list_states`. Hosts that run no jobs are left out."""
    sizes = {row["HOST_NAME"]: row for row in _rows(listed, "lshosts")}
    hosts = []
    for row in _rows(states, "bhosts"):
        size = sizes.get(row["HOST_NAME"], {})
        cores = _number(size.get("ncpus", "")) or 0
        slots = _number(row.get("MAX", ""))
        memory = _megabytes(size.get("maxmem", ""))
        attributes: dict[str, Value] = {
            RESOURCES: tuple(sorted(size.get("RESOURCES", "").strip("() ").split()))
        }
        if cores:
            attributes["GlueHostArchitectureSMPSize"] = cores
        if memory:
            attributes["GlueHostMainMemoryRAMSize"] = memory
        if (kind := size.get("type", "")) not in ("", "-", "UNKNOWN"):
            attributes["GlueHostArchitecturePlatformType"] = _PLATFORMS.get(kind, kind)
        status = row.get("STATUS", "")
        hosts.append(
            LsfHost(
                row["HOST_NAME"],
                status in _USABLE,
                cores if slots is None else slots,
                _number(row.get("NJOBS", "")) or 0,
                memory,
                attributes,
            )
        )
    return hosts


def _rows(output: str, command: str) -> list[dict[str, str]]:
    """The lines of a table by the names of its columns. The last column may have blanks."""
    lines = [line for line in output.splitlines() if line.strip()]
    heads = lines[0].split() if lines else []
    if heads[:1] != ["HOST_NAME"]:
        raise UnreadableOutput(f"{command} printed no table of hosts: {output[:200]!r}")
    return [dict(zip(heads, line.split(None, len(heads) - 1), strict=False)) for line in lines[1:]]


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,12}", text) else None


_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "": 1}


def _megabytes(text: str) -> int:
    """MB of a size such as 31.3G; 0: not known."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([KMGT]?)", text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else 0


def named_queue(queues: Sequence[LsfQueue], queue: str) -> LsfQueue:
    """The queue of a CE's pilots. `UnreadableOutput`: the cluster has none of this name."""
    named = [known for known in queues if (known.name == queue if queue else known.default)]
    if not named:
        raise UnreadableOutput(
            f"the cluster has no queue {queue[:100]!r}" if queue else "it has no default queue"
        )
    return named[0]


def hosts_of(queue: LsfQueue, hosts: Sequence[LsfHost]) -> list[LsfHost]:
    return [host for host in hosts if not queue.hosts or host.name in queue.hosts]


def describe_queues(queues: Sequence[LsfQueue], hosts: Sequence[LsfHost]) -> list[BatchPartition]:
    """The queues, each with the sizes of its hosts."""
    described = []
    for queue in queues:
        kinds = tuple(NodeSize(1, host.slots, host.memory) for host in hosts_of(queue, hosts))
        if kinds:
            up = queue.status == "Open:Active"
            described.append(BatchPartition(queue.name, up, queue.wall, kinds, default=queue.default))
    return described


def describe_ce(
    cluster: LsfCluster, queues: Sequence[LsfQueue], hosts: Sequence[LsfHost], queue: str
) -> CeInformation:
    """The information of a CE. `queue`: of the policy; empty: the default one of the cluster."""
    chosen = named_queue(queues, queue)
    own = hosts_of(chosen, hosts)
    usable = [host for host in own if host.usable]
    classes = group_hosts((Host(host.name, host.attributes) for host in usable), details=(RESOURCES,))
    accepts, starts = "Open" in chosen.status, ":Active" in chosen.status and bool(usable)
    attributes: dict[str, Value] = {
        **minima_of_hosts(classes),
        **job_counts(chosen.running, chosen.waiting),
        "GlueCEName": chosen.name,
        "GlueCEInfoLRMSType": "lsf",
        "GlueCEInfoLRMSVersion": cluster.version,
        "GlueCEInfoHostName": cluster.master,
        "GlueCEInfoTotalCPUs": sum(host.slots for host in own),
        "GlueCEStateStatus": _STATUS[accepts, starts],
        "GlueCEStateFreeCPUs": sum(max(0, host.slots - host.used) for host in usable),
        "UnavailableHosts": len(own) - len(usable),
    }
    return CeInformation(attributes | known_limits({"GlueCEPolicyMaxWallClockTime": chosen.wall}), classes)


_STATUS = {
    (True, True): "Production",
    (True, False): "Queueing",
    (False, True): "Draining",
    (False, False): "Closed",
}


def why_refused(shape: Shape, queue: LsfQueue, hosts: Sequence[LsfHost]) -> str:
    """Why the queue would refuse such a pilot, or never start it; "" if it would."""
    if "Open" not in queue.status:
        return f"the queue {queue.name} is {queue.status}"
    if queue.wall is not None and shape.wall > queue.wall:
        return f"the queue {queue.name} runs jobs of at most {queue.wall:.0f} s"
    if not any(
        host.slots >= shape.processors and (not host.memory or host.memory >= shape.memory)
        for host in hosts_of(queue, hosts)
    ):
        return f"no host of the queue {queue.name} has {shape.processors} cores and {shape.memory} MB"
    return ""
