"""Readers of the queues that Grid Engine shows on each host, and the CE that they make. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree.ElementTree import Element

from pilotage.core.brokering.host_classes import Host, group_hosts
from pilotage.core.glue.information import CeInformation, Value
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import BatchPartition
from pilotage.outside.batch.ce_facts import job_counts, known_limits, longest, minima_of_hosts
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.sge.output import read_state, read_tasks, read_xml
from pilotage.outside.batch.submission import NativeState

DEFAULT_QUEUE = "all.q"
"""The queue that Grid Engine's installation makes. Grid Engine itself has no default queue."""

_UNUSABLE = frozenset("dDsSCuEco")
"""Letters in the state of a queue on a host that starts no jobs now. The load of a host (`a`) passes by itself."""


@dataclass(frozen=True, slots=True)
class QueueInstance:
    """One queue on one host."""

    queue: str
    host: str
    usable: bool
    slots: int
    used: int
    running: int
    """Tasks that run there."""
    values: Mapping[str, str]
    """The values of its complexes, as Grid Engine prints them."""
    measured: frozenset[str] = frozenset()
    """The complexes whose values are load values: they may change at any time."""

    @property
    def wall(self) -> float | None:
        """The longest time of a job, in seconds; None: no limit."""
        return read_span(self.values.get("h_rt", ""))

    @property
    def cpu_time(self) -> float | None:
        return read_span(self.values.get("h_cpu", ""))


@dataclass(frozen=True, slots=True)
class QueueListing:
    """All queues on all hosts, and the number of tasks that wait in the cell."""

    instances: tuple[QueueInstance, ...]
    waiting: int


def read_queues(output: str) -> QueueListing:
    """Read the output of `commands.list_queues`."""
    root = read_xml(output)
    instances = tuple(_instance(element) for element in root.iterfind("queue_info/Queue-List"))
    waiting = 0
    for job in root.iterfind("job_info/job_list"):
        if read_state((job.findtext("state") or "").strip()) in (NativeState.WAITING, NativeState.HELD):
            waiting += _count_tasks(job)
    return QueueListing(instances, waiting)


def _count_tasks(job: Element) -> int:
    return sum(1 for _ in read_tasks((job.findtext("tasks") or "").strip()))


def _instance(element: Element) -> QueueInstance:
    name = (element.findtext("name") or "").strip()
    queue, at, host = name.partition("@")
    if not queue or not at or not host:
        raise UnreadableOutput(f"not the name of a queue on a host: {name[:200]!r}")
    letters = (element.findtext("state") or "").strip()
    values = {
        resource.get("name", ""): (resource.text or "").strip() for resource in element.iterfind("resource")
    }
    return QueueInstance(
        queue,
        host,
        _UNUSABLE.isdisjoint(letters),
        _integer(element.findtext("slots_total") or ""),
        _integer(element.findtext("slots_used") or ""),
        sum(_count_tasks(job) for job in element.iterfind("job_list")),
        values,
        frozenset(
            resource.get("name", "")
            for resource in element.iterfind("resource")
            if resource.get("type", "").endswith("l")
        ),
    )


def _integer(text: str) -> int:
    if re.fullmatch(r"\s*[0-9]{1,15}\s*", text) is None:
        raise UnreadableOutput(f"not a number: {text[:50]!r}")
    return int(text)


def read_span(text: str) -> float | None:
    """Seconds of `hours:minutes:seconds` or of a bare number; None: no limit, or not known."""
    if re.fullmatch(r"(?:[0-9]{1,9}:){0,3}[0-9]{1,9}(?:\.[0-9]*)?", text) is None:
        return None
    *larger, seconds = text.split(":")
    total = 0.0
    for part, length in zip(reversed(larger), (60, 3600, 86400), strict=False):
        total += int(part) * length
    return total + float(seconds)


_UNITS = {"": 1, "k": 1000, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}
_UNITS |= {"t": 10**12, "T": 1 << 40}


def read_memory(text: str) -> int | None:
    """Bytes of a size such as `23.541G`; None: no limit, or not known. More than 63 bits are no size."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([kKmMgGtT]?)", text)
    size = None if match is None else int(float(match[1]) * _UNITS[match[2]])
    return size if size is not None and size < 1 << 63 else None


def partitions(listing: QueueListing) -> list[BatchPartition]:
    """The queues, each with the size of all its hosts."""
    described = []
    instances = sorted(listing.instances, key=lambda instance: instance.queue)
    names = [instance.queue for instance in instances]
    default = DEFAULT_QUEUE if DEFAULT_QUEUE in names else next(iter(names), "")
    for name, members in groupby(instances, key=lambda instance: instance.queue):
        hosts = list(members)
        described.append(
            BatchPartition(
                name,
                any(host.usable for host in hosts),
                longest([host.wall for host in hosts]),
                tuple(
                    NodeSize(1, host.slots, (read_memory(host.values.get("mem_total", "")) or 0) >> 20)
                    for host in hosts
                ),
                default=name == default,
            )
        )
    return described


_PLATFORMS = {"lx-amd64": "x86_64", "lx24-amd64": "x86_64", "lx26-amd64": "x86_64", "linux-x64": "x86_64"}
_PLATFORMS |= {"lx-x86": "i686", "lx24-x86": "i686", "lx-arm64": "aarch64", "lx-ppc64le": "ppc64le"}

_STANDARD = frozenset(
    {
        *("arch", "calendar", "cpu", "d_rt", "display_win_gui", "hostname", "min_cpu_interval", "num_proc"),
        *("qname", "rerun", "seq_no", "slots", "swap_rate", "swap_rsvd", "tmpdir"),
        *("m_core", "m_socket", "m_thread", "m_topology", "m_topology_inuse"),
        *(f"{prefix}load_{span}" for prefix in ("", "np_") for span in ("avg", "short", "medium", "long")),
        *(f"{kind}_{part}" for kind in ("mem", "swap", "virtual") for part in ("free", "total", "used")),
        *(
            f"{limit}_{of}"
            for limit in ("h", "s")
            for of in ("core", "cpu", "data", "fsize", "rss", "rt", "stack", "vmem")
        ),
    }
)
"""Complexes of every cell. The others are a site's own."""


@dataclass(frozen=True, slots=True)
class Complex:
    """One line of the table of complexes."""

    name: str
    shortcut: str
    kind: str
    """INT, DOUBLE, BOOL, TIME, MEMORY, STRING, CSTRING, RESTRING or HOST."""
    relation: str
    """How a request is compared with the value of a host: `<=` for a host that has at least as much."""
    requestable: bool
    consumable: str
    """NO; YES: each slot of a job takes its request; JOB: each job does."""


def read_complexes(output: str) -> dict[str, Complex]:
    """Read the output of `commands.list_complexes`, by name."""
    complexes = {}
    for line in output.splitlines():
        fields = line.split()
        if len(fields) >= 6 and not line.startswith("#"):
            name, shortcut, kind, relation, requestable, consumable = fields[:6]
            complexes[name] = Complex(name, shortcut, kind, relation, requestable != "NO", consumable)
    return complexes


def is_consumed_per_slot(complexes: Mapping[str, Complex], name: str) -> bool:
    """Whether each slot of a job takes its request of this complex, which may be named by its shortcut."""
    return any(
        known.consumable == "YES" for known in complexes.values() if name in (known.name, known.shortcut)
    )


def host_attributes(values: Mapping[str, str], complexes: Mapping[str, Complex]) -> dict[str, Value]:
    """The attributes of a queue on a host: sizes in GLUE names, and a site's own complexes by their names.

    Consumables are left out: their values change with the jobs that run.
    """
    attributes: dict[str, Value] = {}
    if arch := values.get("arch", ""):
        attributes["GlueHostArchitecturePlatformType"] = _PLATFORMS.get(arch, arch)
    for name, sizes in (("mem_total", "RAMSize"), ("virtual_total", "VirtualSize")):
        if (size := read_memory(values.get(name, ""))) is not None:
            attributes[f"GlueHostMainMemory{sizes}"] = size >> 20
    if (processors := _number(values.get("num_proc", ""))) is not None:
        attributes["GlueHostArchitectureSMPSize"] = int(processors)
    for name, text in values.items():
        known = complexes.get(name)
        if (
            known is None
            or known.consumable != "NO"
            or name in _STANDARD
            or not re.fullmatch(r"[A-Za-z_]\w*", name, re.A)
        ):
            continue
        if (value := read_value(text, known.kind)) is not None:
            attributes[name] = value
    return attributes


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?", text) else None


def read_value(text: str, kind: str) -> Value | None:
    """The value of a complex of this kind. Sizes are bytes, times are seconds; None: it has none."""
    if kind in ("STRING", "CSTRING", "RESTRING", "HOST"):
        return None if text in ("", "NONE", "-") else text
    if kind == "BOOL":
        return _BOOLEANS.get(text.lower())
    number = {"TIME": read_span, "MEMORY": read_memory}.get(kind, _number)(text)
    return int(number) if number is not None and number == int(number) else number


_BOOLEANS = {"true": True, "1": True, "1.000000": True, "false": False, "0": False, "0.000000": False}


def describe_ce(
    listing: QueueListing, own: Sequence[QueueInstance], complexes: Mapping[str, Complex]
) -> CeInformation:
    """The information of a CE. `own`: the queues on hosts that fit the requests of its pilots."""
    usable = [instance for instance in own if instance.usable]
    classes = group_hosts(_hosts(usable, complexes), details=tuple(sorted(set(complexes) - _STANDARD)))
    running = sum(instance.running for instance in own)
    attributes: dict[str, Value] = {
        **minima_of_hosts(classes),
        **job_counts(running, listing.waiting),
        "GlueCEName": ",".join(sorted({instance.queue for instance in own})),
        "GlueCEInfoLRMSType": "sge",
        "GlueCEInfoTotalCPUs": sum(instance.slots for instance in own),
        # Grid Engine accepts jobs for queues that are disabled, and lets them wait.
        "GlueCEStateStatus": "Production" if usable else "Queueing",
        "GlueCEStateFreeCPUs": sum(max(0, instance.slots - instance.used) for instance in usable),
        "UnavailableHosts": len({instance.host for instance in own} - {instance.host for instance in usable}),
    }
    limits = {
        "GlueCEPolicyMaxWallClockTime": longest([instance.wall for instance in own]),
        "GlueCEPolicyMaxCPUTime": longest([instance.cpu_time for instance in own]),
    }
    return CeInformation(attributes | known_limits(limits), classes)


def _hosts(instances: Sequence[QueueInstance], complexes: Mapping[str, Complex]) -> Iterator[Host]:
    """The hosts of these queues. A host with queues of different values is one host for each of its queues.

    Such a host is named QUEUE@HOST, as `qsub -q` takes it.
    """
    ordered = sorted(instances, key=lambda instance: instance.host)
    for name, members in groupby(ordered, key=lambda instance: instance.host):
        queues = [(instance, host_attributes(instance.values, complexes)) for instance in members]
        if all(attributes == queues[0][1] for _, attributes in queues):
            yield Host(name, queues[0][1])
        else:
            for instance, attributes in queues:
                yield Host(f"{instance.queue}@{instance.host}", attributes)
