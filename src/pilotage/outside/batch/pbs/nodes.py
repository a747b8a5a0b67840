"""Readers of the queues and hosts of a server of PBS, and the CE that they make. Pure, of all dialects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pilotage.core.brokering.host_classes import Host, group_hosts
from pilotage.core.glue.information import CeInformation, Value
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import BatchPartition, Shape
from pilotage.outside.batch.ce_facts import job_counts, known_limits, minima_of_hosts
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.pbs.records import PbsRecord, read_records

PROPERTIES = "TorqueProperties"
"""The attribute with the properties of a node of Torque."""

_USABLE = frozenset(
    {"free", "job-exclusive", "job-busy", "busy", "resv-exclusive", "provisioning", "wait-provisioning"}
)
"""Words of a host's state in which it starts jobs now or later by itself."""

_STANDARD = frozenset({"arch", "host", "vnode", "mem", "vmem", "ncpus", "hpmem", "naccelerators"})
"""Resources of each host. The others are a site's own."""


@dataclass(frozen=True, slots=True)
class PbsQueue:
    """A queue that jobs run from."""

    name: str
    enabled: bool
    """It accepts jobs."""
    started: bool
    """It starts jobs."""
    wall: float | None
    """The longest time of a job, in seconds; None: no limit."""
    most: Mapping[str, str]
    """Its resources_max."""
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class PbsHost:
    """One host, or virtual node."""

    name: str
    usable: bool
    processors: int
    memory: int
    """MB; 0: not known."""
    used: int
    """Cores that jobs have."""
    queue: str
    """The only queue whose jobs run there; empty: any."""
    attributes: Mapping[str, Value]
    resources: Mapping[str, str] = field(default_factory=dict)
    """The site's own resources, as PBS writes them."""


def read_queues(output: str) -> list[PbsQueue]:
    """Read the output of `commands.list_queues`. Routing queues are left out."""
    queues = []
    for record in read_records(output, "Queue:"):
        if not record.get("queue_type").lower().startswith("e"):
            continue
        counts = dict(re.findall(r"(\w+):([0-9]{1,12})", record.get("state_count")))
        number = {name: int(count) for name, count in counts.items()}
        prefix = "resources_max."
        most = {
            name.removeprefix(prefix): value
            for name, value in record.values.items()
            if name.startswith(prefix)
        }
        queues.append(
            PbsQueue(
                record.name,
                record.get("enabled") == "True",
                record.get("started") == "True",
                read_span(most.get("walltime", "")),
                most,
                number.get("Running", 0) + number.get("Exiting", 0),
                sum(number.get(state, 0) for state in ("Queued", "Held", "Waiting", "Transit")),
            )
        )
    return queues


def read_hosts(output: str) -> list[PbsHost]:
    """Read the output of `commands.list_nodes`, of OpenPBS and of Torque."""
    hosts = []
    for record in read_records(output, ""):
        if not record.get("state"):
            raise UnreadableOutput(f"the host {record.name[:100]!r} has no state")
        states = set(re.split(r"[,\s]+", record.get("state")))
        read = _torque_host if "np" in record.values else _openpbs_host
        hosts.append(read(record, bool(states) and states <= _USABLE))
    return hosts


def _openpbs_host(record: PbsRecord, usable: bool) -> PbsHost:
    prefix = "resources_available."
    resources = {
        name.removeprefix(prefix): value for name, value in record.values.items() if name.startswith(prefix)
    }
    processors = _integer(resources.get("ncpus", "") or record.get("pcpus"))
    memory = read_memory(resources.get("mem", "")) or 0
    own = {name: text for name, text in resources.items() if name not in _STANDARD}
    attributes = _sizes(processors, memory >> 20)
    for name, text in own.items():
        if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            attributes[name] = read_value(text)
    used = _integer(record.get("resources_assigned.ncpus") or "0")
    return PbsHost(record.name, usable, processors, memory >> 20, used, record.get("queue"), attributes, own)


def _torque_host(record: PbsRecord, usable: bool) -> PbsHost:
    status = dict(word.partition("=")[::2] for word in record.get("status").split(","))
    processors = _integer(record.get("np"))
    memory = (read_memory(status.get("physmem", "")) or 0) >> 20
    # jobs = 0-3/12.server,5/13.server: the cores, and the job that has them.
    used = sum(
        int(last or first) - int(first) + 1
        for first, last in re.findall(
            r"(?:^|[\s,])([0-9]{1,6})(?:-([0-9]{1,6}))?(?=[/,])", record.get("jobs")
        )
    )
    attributes = _sizes(processors, memory)
    attributes[PROPERTIES] = tuple(sorted({word for word in record.get("properties").split(",") if word}))
    return PbsHost(record.name, usable, processors, memory, used, "", attributes)


def _sizes(processors: int, memory: int) -> dict[str, Value]:
    known: dict[str, Value] = {"GlueHostArchitectureSMPSize": processors}
    return known | ({"GlueHostMainMemoryRAMSize": memory} if memory else {})


def _integer(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,15}", text) is None:
        raise UnreadableOutput(f"not a number: {text[:50]!r}")
    return int(text)


_UNITS = {"b": 1, "w": 8, "": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


def read_memory(text: str) -> int | None:
    """Bytes of a size such as `65853536kb`; None: it is none."""
    match = re.fullmatch(r"([0-9]{1,15})([kmgtp]?)([bw]?)", text.lower())
    if match is None:
        return None
    return int(match[1]) * _UNITS[match[2]] * (8 if match[3] == "w" else 1)


def read_span(text: str) -> float | None:
    """Seconds of `hours:minutes:seconds`, or of a bare number; None: no limit, or not known."""
    if re.fullmatch(r"(?:[0-9]{1,9}:){0,3}[0-9]{1,9}(?:\.[0-9]*)?", text) is None:
        return None
    *larger, seconds = text.split(":")
    lengths = (60, 3600, 86400)
    return float(seconds) + sum(
        int(part) * length for part, length in zip(reversed(larger), lengths, strict=False)
    )


def read_value(text: str) -> Value:
    """The value of a resource of a host: sizes are MB."""
    if text in ("True", "False"):
        return text == "True"
    if re.fullmatch(r"-?[0-9]{1,15}", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]{1,15}\.[0-9]{1,9}", text):
        return float(text)
    if re.fullmatch(r"[0-9]{1,15}[kmgtpKMGTP]?[bwBW]", text):
        return (read_memory(text) or 0) >> 20
    return text


def named_queue(server: PbsRecord, queues: Sequence[PbsQueue], queue: str) -> PbsQueue:
    """The queue of a CE's pilots. `UnreadableOutput`: the server has none of this name."""
    name = queue or server.get("default_queue")
    if (named := next((known for known in queues if known.name == name), None)) is not None:
        return named
    if not queue and len(queues) == 1:
        return queues[0]
    raise UnreadableOutput(
        f"the server has no queue {name[:100]!r} that jobs run from" if name else "it has no default queue"
    )


def _hosts_of(queue: str, hosts: Iterable[PbsHost]) -> list[PbsHost]:
    return [host for host in hosts if host.queue in ("", queue)]


def describe_queues(
    server: PbsRecord, queues: Sequence[PbsQueue], hosts: Sequence[PbsHost]
) -> list[BatchPartition]:
    """The queues that jobs run from, each with the sizes of its hosts."""
    default = server.get("default_queue") or (queues[0].name if len(queues) == 1 else "")
    described = []
    for queue in queues:
        kinds = tuple(NodeSize(1, host.processors, host.memory) for host in _hosts_of(queue.name, hosts))
        if kinds:
            up = queue.enabled and queue.started
            described.append(BatchPartition(queue.name, up, queue.wall, kinds, default=queue.name == default))
    return described


def describe_ce(
    server: PbsRecord, queues: Sequence[PbsQueue], hosts: Sequence[PbsHost], queue: str, lrms_type: str
) -> CeInformation:
    """The information of a CE. `queue`: of the policy; empty: the default one of the server."""
    chosen = named_queue(server, queues, queue)
    own = _hosts_of(chosen.name, hosts)
    usable = [host for host in own if host.usable]
    details = tuple(sorted({name for host in own for name in host.resources} | {PROPERTIES}))
    classes = group_hosts((Host(host.name, host.attributes) for host in usable), details=details)
    starts = chosen.started and bool(usable) and server.get("scheduling") != "False"
    attributes: dict[str, Value] = {
        **minima_of_hosts(classes),
        **job_counts(chosen.running, chosen.waiting),
        "GlueCEName": chosen.name,
        "GlueCEInfoLRMSType": lrms_type,
        "GlueCEInfoLRMSVersion": server.get("pbs_version"),
        "GlueCEInfoHostName": server.get("server_host") or server.name,
        "GlueCEInfoTotalCPUs": sum(host.processors for host in own),
        "GlueCEStateStatus": _status(chosen.enabled, starts),
        "GlueCEStateFreeCPUs": sum(max(0, host.processors - host.used) for host in usable),
        "UnavailableHosts": len(own) - len(usable),
    }
    limits = known_limits({"GlueCEPolicyMaxWallClockTime": chosen.wall})
    return CeInformation(attributes | limits, classes)


def _status(accepts: bool, starts: bool) -> str:
    if accepts:
        return "Production" if starts else "Queueing"
    return "Draining" if starts else "Closed"


def why_refused(shape: Shape, queue: PbsQueue, hosts: Sequence[PbsHost]) -> str:
    """Why the queue would refuse such a pilot, or never start it; "" if it would."""
    if not queue.enabled:
        return f"the queue {queue.name} is not enabled"
    if queue.wall is not None and shape.wall > queue.wall:
        return f"the queue {queue.name} runs jobs of at most {queue.wall:.0f} s"
    most = queue.most.get("ncpus", "")
    if most.isdecimal() and shape.processors > int(most):
        return f"the queue {queue.name} runs jobs of at most {most} cores"
    own = _hosts_of(queue.name, hosts)
    if not any(
        host.processors >= shape.processors and (not host.memory or host.memory >= shape.memory)
        for host in own
    ):
        return f"no host of the queue {queue.name} has {shape.processors} cores and {shape.memory} MB"
    return ""
