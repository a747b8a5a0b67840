"""The GLUE schema 1.x as CE ads use it: name, kind, unit and meaning of each attribute, and who fixes its value."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Final

from pilotage.core.classads import parse_expression
from pilotage.core.classads.partial import LARGEST_QUANTITY, Kind
from pilotage.core.errors import InvalidInput
from pilotage.core.glue.information import Value

DEFAULT_RANK: Final = "-other.GlueCEStateEstimatedResponseTime"


class FixedBy(StrEnum):
    """Who fixes the value of an attribute."""

    CE = "CE"
    """The CE or its site: the value in the CE's ad holds for each of its nodes."""
    HOSTS = "hosts"
    """Each host for itself: the value in the CE's ad is the minimum over its hosts."""


@dataclass(frozen=True, slots=True)
class GlueAttribute:
    """One attribute. `dynamic`: the batch system changes it all the time, so it is unknown once it has expired."""

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    fixed_by: FixedBy = FixedBy.CE
    dynamic: bool = False


EXPRESSIONS: Final = ("AuthorizationCheck", "CloseOutputSECheck", "Requirements")
"""Attributes of a CE ad that are expressions over the requester's ad. In the policy each is a text."""

_EXPRESSIONS: Final = frozenset(name.lower() for name in EXPRESSIONS)
_HOST_PREFIXES: Final = ("gluehost", "gluesubcluster")
_DYNAMIC_PREFIX: Final = "gluecestate"

_INTEGER, _NUMBER, _STRING = Kind.INTEGER, Kind.NUMBER, Kind.STRING
_BOOLEAN, _STRINGS, _ANY = Kind.BOOLEAN, Kind.STRINGS, Kind.ANY


def _attribute(name: str, kind: Kind, meaning: str, unit: str = "") -> GlueAttribute:
    key = name.lower()
    fixed_by = FixedBy.HOSTS if key.startswith(_HOST_PREFIXES) else FixedBy.CE
    return GlueAttribute(name, kind, meaning, unit, fixed_by, key.startswith(_DYNAMIC_PREFIX))


ATTRIBUTES: Final[tuple[GlueAttribute, ...]] = (
    # The computing element
    _attribute("GlueCEUniqueID", _STRING, "Identity of the CE"),
    _attribute("CEid", _STRING, "The same, as gLite names it in ads"),
    _attribute("GlueCEName", _STRING, "Queue or partition of the batch system"),
    _attribute("QueueName", _STRING, "The same, as gLite names it in ads"),
    _attribute("GlueCEHostingCluster", _STRING, "Identity of the cluster"),
    _attribute("GlueCECapability", _STRINGS, "Further capabilities of the CE"),
    _attribute("GlueCEImplementationName", _STRING, "Software of the CE"),
    _attribute("GlueCEImplementationVersion", _STRING, "Its version"),
    _attribute("GlueCEAccessControlBaseRule", _STRINGS, "Who may use the CE: `VO:name`, or a subject"),
    _attribute("GlueCEInfoLRMSType", _STRING, "Type of the batch system, such as `slurm`"),
    _attribute("LRMSType", _STRING, "The same, as gLite names it in ads"),
    _attribute("GlueCEInfoLRMSVersion", _STRING, "Version of the batch system"),
    _attribute("GlueCEInfoGRAMVersion", _STRING, "Version of GRAM"),
    _attribute("GlueCEInfoHostName", _STRING, "Host of the CE's head"),
    _attribute("GlueCEInfoGatekeeperPort", _INTEGER, "Port of the CE's head"),
    _attribute("GlueCEInfoJobManager", _STRING, "Job manager of the CE"),
    _attribute("GlueCEInfoContactString", _STRINGS, "Contact of the CE"),
    _attribute("GlobusResourceContactString", _STRING, "Contact of the CE by Globus"),
    _attribute("GlueCEInfoTotalCPUs", _INTEGER, "Cores of all nodes", "cores"),
    _attribute("GlueCEInfoApplicationDir", _STRING, "Shared folder of installed software"),
    _attribute("GlueCEInfoDataDir", _STRING, "Shared folder of data"),
    _attribute("GlueCEInfoDefaultSE", _STRING, "Default storage element"),
    _attribute("PurchasedBy", _STRING, "Program that fetched the ad"),
    _attribute("TTLCEinfo", _INTEGER, "How long the ad is valid", "s"),
    # Its state
    _attribute("GlueCEStateStatus", _STRING, "Production, Draining, Queueing or Closed"),
    _attribute("GlueCEStateRunningJobs", _INTEGER, "Running jobs of everybody", "jobs"),
    _attribute("GlueCEStateWaitingJobs", _INTEGER, "Waiting jobs of everybody", "jobs"),
    _attribute("GlueCEStateTotalJobs", _INTEGER, "Running and waiting jobs of everybody", "jobs"),
    _attribute("GlueCEStateFreeCPUs", _INTEGER, "Free cores", "cores"),
    _attribute("GlueCEStateFreeJobSlots", _INTEGER, "Jobs that could start now", "jobs"),
    _attribute("GlueCEStateEstimatedResponseTime", _INTEGER, "Expected wait of a new job", "s"),
    _attribute("GlueCEStateWorstResponseTime", _INTEGER, "Longest wait of a new job", "s"),
    # Its policy
    _attribute("GlueCEPolicyMaxWallClockTime", _INTEGER, "Longest run of a job", "s"),
    _attribute("GlueCEPolicyMaxObtainableWallClockTime", _INTEGER, "The same, if a job asks for it", "s"),
    _attribute("GlueCEPolicyMaxCPUTime", _INTEGER, "Maximum CPU time of a job", "s"),
    _attribute("GlueCEPolicyMaxObtainableCPUTime", _INTEGER, "The same, if a job asks for it", "s"),
    _attribute("GlueCEPolicyMaxTotalJobs", _INTEGER, "Maximum number of running and waiting jobs", "jobs"),
    _attribute("GlueCEPolicyMaxRunningJobs", _INTEGER, "Maximum number of running jobs", "jobs"),
    _attribute("GlueCEPolicyMaxWaitingJobs", _INTEGER, "Maximum number of waiting jobs", "jobs"),
    _attribute("GlueCEPolicyMaxSlotsPerJob", _INTEGER, "Maximum cores of a job", "cores"),
    _attribute("GlueCEPolicyAssignedJobSlots", _INTEGER, "Jobs that can run at the same time", "jobs"),
    _attribute("GlueCEPolicyPreemption", _INTEGER, "1: running jobs may be preempted"),
    _attribute("GlueCEPolicyPriority", _INTEGER, "Priority of the queue"),
    # Clusters, sites and storage
    _attribute("GlueClusterUniqueID", _STRING, "Identity of the cluster"),
    _attribute("GlueClusterName", _STRING, "Name of the cluster"),
    _attribute("GlueClusterService", _STRINGS, "Services of the cluster"),
    _attribute("GlueClusterTmpDir", _STRING, "Shared temporary folder"),
    _attribute("GlueClusterWNTmpDir", _STRING, "Temporary folder of each node"),
    _attribute("GlueSiteUniqueID", _STRING, "Identity of the site"),
    _attribute("GlueSiteName", _STRING, "Name of the site"),
    _attribute("GlueSiteDescription", _STRING, "Description of the site"),
    _attribute("GlueSiteWeb", _STRING, "Address of the site's pages"),
    _attribute("GlueSiteLocation", _STRING, "Town and country"),
    _attribute("GlueSiteLatitude", _NUMBER, "Latitude", "degrees"),
    _attribute("GlueSiteLongitude", _NUMBER, "Longitude", "degrees"),
    _attribute("GlueSiteOtherInfo", _STRINGS, "Further facts of the site"),
    _attribute("GlueCESEBindGroupCEUniqueID", _STRING, "The CE that the close storage elements belong to"),
    _attribute("GlueCESEBindGroupSEUniqueID", _STRINGS, "Storage elements close to the CE"),
    _attribute("GlueCESEBindCEUniqueID", _STRING, "The CE of one binding"),
    _attribute("GlueCESEBindSEUniqueID", _STRING, "The storage element of one binding"),
    _attribute("GlueCESEBindCEAccesspoint", _STRING, "Where nodes mount the storage element"),
    _attribute("GlueCESEBindMountInfo", _STRING, "How nodes mount the storage element"),
    _attribute("GlueCESEBindWeight", _INTEGER, "Preference among the bindings"),
    _attribute("GlueSEUniqueID", _STRING, "Identity of a storage element"),
    _attribute("GlueSEName", _STRING, "Name of a storage element"),
    _attribute("CloseStorageElements", _ANY, "Ads of the close storage elements: `mount` and `name`"),
    # The information system
    _attribute("GlueForeignKey", _STRINGS, "Keys of the entries that this one belongs to"),
    _attribute("GlueChunkKey", _STRINGS, "Keys within the entry"),
    _attribute("GlueInformationServiceURL", _STRINGS, "Services that the facts come from"),
    _attribute("GlueSchemaVersionMajor", _INTEGER, "Version of the schema"),
    _attribute("GlueSchemaVersionMinor", _INTEGER, "Version of the schema"),
    # Sub-clusters
    _attribute("GlueSubClusterUniqueID", _STRING, "Identity of the sub-cluster"),
    _attribute("GlueSubClusterName", _STRING, "Name of the sub-cluster"),
    _attribute("GlueSubClusterPhysicalCPUs", _INTEGER, "Processor sockets", "sockets"),
    _attribute("GlueSubClusterLogicalCPUs", _INTEGER, "Cores", "cores"),
    _attribute("GlueSubClusterTmpDir", _STRING, "Shared temporary folder"),
    _attribute("GlueSubClusterWNTmpDir", _STRING, "Temporary folder of each node"),
    # Hosts
    _attribute("GlueHostUniqueID", _STRING, "Identity of the host"),
    _attribute("GlueHostName", _STRING, "Name of the host"),
    _attribute("GlueHostArchitecturePlatformType", _STRING, "Architecture, such as `x86_64`"),
    _attribute("GlueHostArchitectureSMPSize", _INTEGER, "Cores of the host", "cores"),
    _attribute("GlueHostProcessorVendor", _STRING, "Vendor of the processor, such as `intel`"),
    _attribute("GlueHostProcessorModel", _STRING, "Model of the processor"),
    _attribute("GlueHostProcessorVersion", _STRING, "Version of the processor"),
    _attribute("GlueHostProcessorClockSpeed", _INTEGER, "Clock of the processor", "MHz"),
    _attribute("GlueHostProcessorInstructionSet", _STRING, "Instruction set of the processor"),
    _attribute("GlueHostProcessorOtherDescription", _STRING, "Further facts of the processor"),
    _attribute("GlueHostMainMemoryRAMSize", _INTEGER, "Memory", "MB"),
    _attribute("GlueHostMainMemoryVirtualSize", _INTEGER, "Memory and swap space", "MB"),
    _attribute("GlueHostMainMemoryRAMAvailable", _INTEGER, "Free memory", "MB"),
    _attribute("GlueHostMainMemoryVirtualAvailable", _INTEGER, "Free memory and swap space", "MB"),
    _attribute("GlueHostOperatingSystemName", _STRING, "Operating system, such as `Debian`"),
    _attribute("GlueHostOperatingSystemRelease", _STRING, "Its release, such as `12`"),
    _attribute("GlueHostOperatingSystemVersion", _STRING, "Its code name, such as `bookworm`"),
    _attribute("GlueHostBenchmarkSI00", _INTEGER, "Speed of a core", "SPECint2000"),
    _attribute("GlueHostBenchmarkSF00", _INTEGER, "Speed of a core", "SPECfp2000"),
    _attribute("GlueHostNetworkAdapterInboundIP", _BOOLEAN, "The host can be reached from outside"),
    _attribute("GlueHostNetworkAdapterOutboundIP", _BOOLEAN, "The host reaches the outside"),
    _attribute("GlueHostNetworkAdapterName", _STRING, "Name of the network adapter"),
    _attribute("GlueHostNetworkAdapterIPAddress", _STRING, "Address of the network adapter"),
    _attribute("GlueHostNetworkAdapterMTU", _INTEGER, "Largest packet", "bytes"),
    _attribute("GlueHostApplicationSoftwareRunTimeEnvironment", _STRINGS, "Installed software"),
    _attribute("GlueHostLocalFileSystemName", _STRING, "Name of a local file system"),
    _attribute("GlueHostLocalFileSystemRoot", _STRING, "Where it is mounted"),
    _attribute("GlueHostLocalFileSystemSize", _INTEGER, "Its size", "MB"),
    _attribute("GlueHostLocalFileSystemAvailableSpace", _INTEGER, "Its free space", "MB"),
)

BY_NAME: Final[Mapping[str, GlueAttribute]] = MappingProxyType(
    {attribute.name.lower(): attribute for attribute in ATTRIBUTES}
)
"""The attributes by name in lower case."""

_OWN_KINDS: Final = {
    "site": _STRING,
    "gridce": _STRING,
    "setup": _STRING,
    "hostname": _STRING,
    "platform": _STRING,
    "platforms": _STRINGS,
    "tags": _STRINGS,
    "processors": _INTEGER,
    "cputime": _NUMBER,
    "pilottype": _STRING,
}
"""Pilotage's own names in the offer of a pilot. `Memory` and `Disk` are missing: they are undefined if not known."""


OWN_NAMES: Final = frozenset({*_OWN_KINDS, "memory", "disk"})
"""In lower case: names that the offer of a pilot always has from Pilotage itself."""


@cache
def kinds() -> Mapping[str, Kind]:
    """The declared kind of each attribute that an offer may have, by its name in lower case.

    Whole numbers count or measure something, so none comes near the ends of 64 bits.
    """
    declared = _OWN_KINDS | {attribute.name.lower(): attribute.kind for attribute in ATTRIBUTES}
    return MappingProxyType(
        {name: Kind.QUANTITY if kind is _INTEGER else kind for name, kind in declared.items()}
    )


def is_of_hosts(name: str) -> bool:
    """Whether hosts fix an attribute, so that a CE ad has the minimum over its hosts at best."""
    return name.lower().startswith(_HOST_PREFIXES)


def is_dynamic(name: str) -> bool:
    """Whether an attribute is unknown once its information has expired."""
    return name.lower().startswith(_DYNAMIC_PREFIX)


def mistake(name: str, value: Value) -> str:
    """The mistake in the value of an attribute; empty: none, or the name is the site's own."""
    if name.lower() in OWN_NAMES:
        return f"{name} cannot be set: Pilotage itself tells it of each pilot"
    if name.lower() in _EXPRESSIONS:
        return _mistake_in_check(name, value)
    known = BY_NAME.get(name.lower())
    if known is None:
        return ""
    if _has_kind(value, known.kind):
        if known.fixed_by is FixedBy.HOSTS and type(value) is int and abs(value) > LARGEST_QUANTITY:
            return f"{known.name} must be between -2^42 and 2^42, not {value}"
        return ""
    unit = f" ({known.unit})" if known.unit else ""
    return f"{known.name} must be {_WORDS[known.kind]}{unit}, not {_described(value)}"


def nearest_name(name: str) -> str:
    """The name of the schema that is meant by a misspelt one; empty: none is near, or the name is right."""
    key = name.lower()
    if key in BY_NAME or not key.startswith("glue"):
        return ""
    near = difflib.get_close_matches(key, BY_NAME, 1, 0.9)
    return BY_NAME[near[0]].name if near else ""


def _mistake_in_check(name: str, value: Value) -> str:
    if isinstance(value, bool):
        return ""
    if not isinstance(value, str):
        return f"{name} must be the text of a ClassAd expression"
    try:
        parse_expression(value)
    except InvalidInput as error:
        return f"{name} is no ClassAd expression: {error}"
    return ""


_WORDS: Final = {
    Kind.INTEGER: "a whole number",
    Kind.QUANTITY: "a whole number",
    Kind.NUMBER: "a number",
    Kind.STRING: "a text",
    Kind.BOOLEAN: "true or false",
    Kind.STRINGS: "a list of texts",
    Kind.ANY: "a value",
}


def _has_kind(value: Value, kind: Kind) -> bool:
    match kind:
        case Kind.INTEGER | Kind.QUANTITY:
            return type(value) is int
        case Kind.NUMBER:
            return type(value) in (int, float)
        case Kind.STRING:
            return isinstance(value, str)
        case Kind.BOOLEAN:
            return isinstance(value, bool)
        case Kind.STRINGS:
            return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
        case _:
            return True


def _described(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "a list"
    return repr(value) if isinstance(value, int | float) else f"the text {value[:40]!r}"
