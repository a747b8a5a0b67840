"""The GLUE2 document of an ARC CE as parts with limits, and as the information of a CE. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from xml.etree.ElementTree import Element

from pilotage.core.errors import Unreachable
from pilotage.core.glue.information import CeInformation, HostClass, Value
from pilotage.core.policy.batch_systems.arc import ArcOptions
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import BatchPartition, Shape
from pilotage.outside.batch.arc.answers import GLUE2, text_of
from pilotage.outside.batch.ce_facts import job_counts, known_limits, minima_of_hosts
from pilotage.outside.batch.command_client import UnreadableOutput
from pilotage.outside.batch.xml_answers import read_xml

UNKNOWN_MEMORY = 900_000_000
"""MB of memory from which on a node is one whose memory the CE does not know."""

_STATUS = {"production": "Production", "draining": "Draining", "queueing": "Queueing", "closed": "Closed"}


@dataclass(frozen=True, slots=True)
class ArcDocument:
    """The parts of a GLUE2 document that matter for pilots."""

    shares: Sequence[Element]
    """Queues, or the parts of queues that VOs have."""
    manager: Element
    environments: Sequence[Element]
    """Kinds of nodes."""
    endpoint: Element | None
    """The REST interface."""
    created: float | None
    """In epoch seconds; None: it does not tell."""
    validity: float
    """Seconds."""

    def require_current(self, now: float) -> None:
        """`Unreachable` if the CE has not renewed the document for longer than it says."""
        if self.created is not None and now > self.created + self.validity:
            raise Unreachable(
                f"the information of the CE is {(now - self.created) / 60:.0f} minutes old: its A-REX may be dead"
            )


def read_document(text: str) -> ArcDocument:
    """Read the answer to `info`."""
    root = read_xml(text)
    service = next(root.iter(f"{GLUE2}ComputingService"), None)
    if service is None:
        raise UnreadableOutput("the information has no computing service")
    shares = list(service.iter(f"{GLUE2}ComputingShare"))
    manager = next(service.iter(f"{GLUE2}ComputingManager"), None)
    if not shares or manager is None:
        raise UnreadableOutput("the information has no queue, or no batch system")
    endpoints = [
        endpoint
        for endpoint in service.iter(f"{GLUE2}ComputingEndpoint")
        if text_of(endpoint, "InterfaceName") == "org.nordugrid.arcrest"
    ]
    return ArcDocument(
        shares,
        manager,
        list(manager.iter(f"{GLUE2}ExecutionEnvironment")),
        endpoints[0] if endpoints else None,
        _instant(service.get("CreationTime", "")),
        _number(service.get("Validity", "")) or 0,
    )


def _instant(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None


def _of(element: Element, tag: str) -> int:
    return _number(text_of(element, tag)) or 0


def queue_of(share: Element) -> str:
    """The queue of a share, as job descriptions name it."""
    return text_of(share, "MappingQueue") or text_of(share, "Name")


def own_shares(document: ArcDocument, options: ArcOptions) -> list[Element]:
    """The shares that the pilots of a CE use. `UnreadableOutput` if there is none of them."""
    named = [share for share in document.shares if not options.queue or queue_of(share) == options.queue]
    if not named:
        known = ", ".join(dict.fromkeys(queue_of(share) for share in document.shares))
        raise UnreadableOutput(f"the CE has no queue {options.queue[:100]!r}; queues: {known}")
    return named


def read_partitions(document: ArcDocument) -> list[BatchPartition]:
    """One part for each queue. The first is the default one: the CE does not tell which it prefers."""
    kinds = tuple(_kinds(document))
    partitions: dict[str, BatchPartition] = {}
    for share in document.shares:
        name = queue_of(share)
        if name not in partitions:
            wall = _number(text_of(share, "MaxWallTime"))
            is_up = _status(share) == "Production"
            partitions[name] = BatchPartition(name, is_up, wall, kinds, default=not partitions)
    return list(partitions.values())


def _kinds(document: ArcDocument) -> Iterator[NodeSize]:
    """The kinds of nodes: of the environments that tell their number, else of the distribution of processors."""
    memory = min((size for known in document.environments if (size := _memory(known))), default=0)
    counted = [known for known in document.environments if _of(known, "TotalInstances")]
    if counted and all(_of(known, "LogicalCPUs") for known in counted):
        for known in counted:
            yield NodeSize(_of(known, "TotalInstances"), _of(known, "LogicalCPUs"), _memory(known))
        return
    distribution = re.findall(
        "([0-9]{1,6}):([0-9]{1,9})", text_of(document.manager, "LogicalCPUDistribution")
    )
    if distribution:
        for processors, nodes in distribution:
            yield NodeSize(int(nodes), int(processors), memory)
        return
    yield NodeSize(1, max(1, _of(document.manager, "TotalSlots")), memory)


def _memory(environment: Element) -> int:
    """MB; 0: the CE does not know it."""
    memory = _of(environment, "MainMemorySize")
    return 0 if memory >= UNKNOWN_MEMORY else memory


def _status(share: Element) -> str:
    return _STATUS.get(text_of(share, "ServingState").lower(), "Closed")


def refusal_of(shape: Shape, document: ArcDocument, options: ArcOptions) -> str:
    """Why the CE would never start such a pilot, as far as it tells its limits; "" if nothing is known against it."""
    kinds = list(_kinds(document))
    share = own_shares(document, options)[0]
    most_cores = max(kind.processors for kind in kinds)
    wall = _number(text_of(share, "MaxWallTime"))
    if shape.processors > most_cores:
        return f"no node of the CE has {shape.processors} cores; the largest has {most_cores}"
    if shape.memory and all(0 < kind.memory < shape.memory for kind in kinds):
        return f"no node of the CE has {shape.memory} MB"
    if wall and shape.wall > wall:
        return f"the queue {queue_of(share)} allows {wall} s, not {shape.wall:g}"
    missing = [name for name in options.environments if name not in applications(document)]
    if missing and applications(document):
        return f"the CE has no runtime environment {', '.join(missing)}"
    return ""


def applications(document: ArcDocument) -> tuple[str, ...]:
    """The runtime environments of the CE."""
    names = set()
    for known in document.manager.iter(f"{GLUE2}ApplicationEnvironment"):
        name, version = text_of(known, "AppName"), text_of(known, "AppVersion")
        if name:
            names.add(f"{name}-{version}" if version else name)
    return tuple(sorted(names))


def describe_ce(document: ArcDocument, options: ArcOptions, host: str) -> CeInformation:
    """The information of a CE whose pilots use its queue, or any."""
    shares = own_shares(document, options)
    running = sum(_of(share, "RunningJobs") for share in shares)
    waiting = sum(
        _of(share, name) for share in shares for name in ("WaitingJobs", "PreLRMSWaitingJobs", "StagingJobs")
    )
    manager = document.manager
    total = _of(manager, "TotalSlots") or _of(manager, "TotalLogicalCPUs")
    version = text_of(manager, "ProductVersion")
    classes = _host_classes(document)
    attributes: dict[str, Value] = {
        **minima_of_hosts(classes),
        **job_counts(running, waiting),
        "GlueCEName": ",".join(dict.fromkeys(queue_of(share) for share in shares)),
        "GlueCEInfoLRMSType": text_of(manager, "ProductName").lower() or "arc",
        "GlueCEInfoHostName": host,
        "GlueCEInfoTotalCPUs": total,
        "GlueCEStateStatus": _best_status([_status(share) for share in shares]),
        "GlueCEStateFreeCPUs": min(total, max(_of(share, "FreeSlots") for share in shares)),
        **({"GlueCEInfoLRMSVersion": version} if version else {}),
    }
    walls = [_number(text_of(share, "MaxWallTime")) for share in shares]
    limits = {"GlueCEPolicyMaxWallClockTime": None if None in walls else max(wall or 0 for wall in walls)}
    return CeInformation(attributes | known_limits(limits), classes)


def _best_status(states: Sequence[str]) -> str:
    return min(states, key=("Production", "Queueing", "Draining", "Closed").index)


def _host_classes(document: ArcDocument) -> tuple[HostClass, ...]:
    """A class for each kind of nodes. ARC names no nodes."""
    environment = document.environments[0] if len(document.environments) == 1 else None
    common: dict[str, Value] = {}
    if environment is not None:
        texts = {
            "GlueHostProcessorVendor": text_of(environment, "CPUVendor"),
            "GlueHostProcessorModel": text_of(environment, "CPUModel"),
            "GlueHostOperatingSystemName": text_of(environment, "OSName"),
            "GlueHostOperatingSystemRelease": text_of(environment, "OSVersion"),
        }
        common.update((name, text) for name, text in texts.items() if text and text != "UNDEFINEDVALUE")
    if names := applications(document):
        common["GlueHostApplicationSoftwareRunTimeEnvironment"] = names
    classes = []
    for kind in _kinds(document):
        own: dict[str, Value] = {"GlueHostArchitectureSMPSize": kind.processors}
        if kind.memory:
            own["GlueHostMainMemoryRAMSize"] = kind.memory
        classes.append(HostClass(kind.nodes, {**common, **own}))
    return tuple(classes)
