"""CE ads and job ads with the spread of values that a grid has: ids, hosts, limits, software, access rules."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

VOS = tuple(f"vo{number:02}.example.org" for number in range(30))
PLACES = ("cern.ch", "infn.it", "in2p3.fr", "gridka.de", "pic.es", "rl.ac.uk", "sinica.edu.tw", "triumf.ca")
LIMITS = (3600, 7200, 21600, 43200, 86400, 129600, 172800, 259200)
SOFTWARE = tuple(f"VO-{vo.split('.')[0]}-release-{number}" for vo in VOS for number in range(8))

AUTHORIZATION = (
    "member(other.CertificateSubject, GlueCEAccessControlBaseRule)"
    ' || member(strcat("VO:", other.VirtualOrganisation), GlueCEAccessControlBaseRule)'
)
CLOSE_OUTPUT = "isUndefined(other.OutputSE) || member(other.OutputSE, GlueCESEBindGroupSEUniqueID)"


class Formula(str):
    """The text of an expression, in place of a value."""

    __slots__ = ()


Values = Mapping[str, Any]


def ce_values(number: int, rng: Random) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The 55 attributes of a CE, and those of each of its host classes."""
    site = number // 4
    place = f"site{site:03}.{PLACES[site % len(PLACES)]}"
    head, system = f"ce{number % 4:02}.{place}", rng.choice(("pbs", "lsf", "sge", "slurm", "condor"))
    queue = rng.choice(("short", "long", "infinite", "grid"))
    identity = f"{head}:2119/blah-{system}-{queue}"
    limit, cores = rng.choice(LIMITS), rng.choice((16, 64, 200, 480, 1000, 4000))
    running = rng.randrange(cores + 1)
    elements = tuple(f"se{n}.{place}" for n in range(rng.choice((1, 1, 2, 3))))
    rules = tuple(f"VO:{vo}" for vo in rng.sample(VOS, rng.choice((1, 3, 6, 12, len(VOS)))))
    software = tuple(rng.sample(SOFTWARE, rng.randrange(3, 20)))
    classes = [host_values(rng, software) for _ in range(rng.choice((1, 1, 2, 3)))]
    values: dict[str, Any] = {
        **_of_site(identity, head, place, elements),
        **{name: min(host[name] for host in classes) for name in classes[0]},
        "GlueCEInfoLRMSType": system,
        "LRMSType": system,
        "GlueCEInfoLRMSVersion": f"{system}_{rng.randrange(1, 9)}.{rng.randrange(10)}",
        "GlueCEName": queue,
        "QueueName": queue,
        "GlueCEInfoTotalCPUs": cores,
        "GlueCEPolicyMaxCPUTime": limit,
        "GlueCEPolicyMaxWallClockTime": limit + rng.choice((0, 0, limit // 2)),
        "GlueCEPolicyMaxRunningJobs": rng.choice((cores, 99999)),
        "GlueCEPolicyMaxTotalJobs": rng.choice((2 * cores, 999999)),
        "GlueCEPolicyPriority": 1,
        "GlueCEStateStatus": rng.choice(("Production",) * 9 + ("Draining",)),
        "GlueCEStateRunningJobs": running,
        "GlueCEStateWaitingJobs": (waiting := rng.choice((0, 0, rng.randrange(500)))),
        "GlueCEStateTotalJobs": running + waiting,
        "GlueCEStateFreeCPUs": cores - running,
        "GlueCEStateEstimatedResponseTime": waiting * rng.randrange(30, 90),
        "GlueCEStateWorstResponseTime": waiting * limit,
        "GlueCEAccessControlBaseRule": rules,
        "AuthorizationCheck": Formula(AUTHORIZATION),
        "CloseOutputSECheck": Formula(CLOSE_OUTPUT),
    }
    return values, classes


def host_values(rng: Random, software: tuple[str, ...]) -> dict[str, Any]:
    """One class of hosts."""
    return {
        "GlueHostBenchmarkSI00": rng.choice((380, 400, 600, 1000, 1350, 1600, 2100, 2750)),
        "GlueHostBenchmarkSF00": rng.choice((380, 800, 1200)),
        "GlueHostMainMemoryRAMSize": rng.choice((512, 1001, 2002, 4048, 16000)),
        "GlueHostMainMemoryVirtualSize": rng.choice((1024, 2002, 4048, 32000)),
        "GlueHostArchitectureSMPSize": rng.choice((2, 4, 8)),
        "GlueHostProcessorModel": rng.choice(("PIII", "Xeon", "Opteron")),
        "GlueHostProcessorVendor": rng.choice(("intel", "amd")),
        "GlueHostProcessorClockSpeed": rng.choice((1000, 2400, 2800)),
        "GlueHostOperatingSystemName": rng.choice(("SLC", "ScientificSL", "CentOS")),
        "GlueHostOperatingSystemRelease": rng.choice(("3.0.3", "3.0.5", "4.8", "5.3")),
        "GlueHostOperatingSystemVersion": rng.choice(("3.0.3", "Beryllium", "Boron")),
        "GlueHostNetworkAdapterOutboundIP": rng.random() < 0.8,
        "GlueHostNetworkAdapterInboundIP": rng.random() < 0.2,
        "GlueHostApplicationSoftwareRunTimeEnvironment": software,
    }


def _of_site(identity: str, head: str, place: str, elements: tuple[str, ...]) -> dict[str, Any]:
    return {
        "CEid": identity,
        "GlueCEUniqueID": identity,
        "GlueCESEBindGroupCEUniqueID": identity,
        "GlueCESEBindGroupSEUniqueID": elements,
        "GlueCESEBindSEUniqueID": elements[0],
        "GlueCEInfoGatekeeperPort": 2119,
        "GlueCEInfoHostName": head,
        "GlobusResourceContactString": identity.rpartition("-")[0],
        "GlueCEHostingCluster": head,
        "GlueClusterUniqueID": head,
        "GlueClusterName": head,
        "GlueClusterService": (head,),
        "GlueSubClusterUniqueID": head,
        "GlueSubClusterName": head,
        "GlueForeignKey": (f"GlueClusterUniqueID={head}", f"GlueCEUniqueID={identity}"),
        "GlueChunkKey": (f"GlueClusterUniqueID={head}",),
        "GlueInformationServiceURL": (f"ldap://bdii.{place}:2170/mds-vo-name={place},o=grid",),
        "GlueSiteName": place,
        "PurchasedBy": "ism_cemon_asynch_purchaser",
        "TTLCEinfo": 300,
    }


def requirement_sets(count: int, rng: Random) -> list[str]:
    """Different Requirements in the forms that users of gLite wrote."""
    made: dict[str, None] = {}
    while len(made) < count:
        made[rng.choice(_FORMS)(rng)] = None
    return list(made)


def _limit(rng: Random) -> int:
    return rng.choice(LIMITS) - rng.choice((1, 0, 600))


def _software(rng: Random) -> str:
    return f'Member("{rng.choice(SOFTWARE)}", other.GlueHostApplicationSoftwareRunTimeEnvironment)'


_FORMS = (
    lambda rng: (
        f"other.GlueHostBenchmarkSI00 > {rng.choice((500, 900, 1500))} ? other.GlueCEPolicyMaxCPUTime >"
        f" {_limit(rng)} : other.GlueCEPolicyMaxCPUTime > {2 * _limit(rng)}"
    ),
    lambda rng: (
        f"other.GlueCEPolicyMaxCPUTime > {_limit(rng)} && other.GlueHostMainMemoryRAMSize >="
        f" {rng.choice((512, 1000, 2000))}"
    ),
    lambda rng: f"{_software(rng)} && other.GlueCEPolicyMaxWallClockTime >= {_limit(rng)}",
    lambda rng: (
        f'other.GlueCEInfoLRMSType != "{rng.choice(("pbs", "lsf"))}" && {_software(rng)}'
        f" && other.GlueCEPolicyMaxCPUTime * other.GlueHostBenchmarkSI00 / 500 > {_limit(rng)}"
    ),
    lambda rng: (
        f'RegExp(".*{rng.choice(PLACES)}.*", other.GlueCEUniqueID)'
        f" && other.GlueCEPolicyMaxCPUTime > {_limit(rng)}"
    ),
    lambda rng: (
        f'!RegExp("site{rng.randrange(250):03}", other.GlueCEUniqueID)'
        f" && other.GlueHostNetworkAdapterOutboundIP && other.GlueHostBenchmarkSI00 >= {rng.choice((400, 1000))}"
    ),
    lambda rng: (
        f"other.GlueCEInfoTotalCPUs > {rng.choice((50, 100, 400))} && other.GlueCEStateFreeCPUs >"
        f" {rng.choice((0, 2, 10))} && other.GlueCEPolicyMaxCPUTime > {_limit(rng)}"
    ),
    lambda rng: (
        '(other.GlueHostOperatingSystemName == "SLC" || other.GlueHostOperatingSystemName == "CentOS")'
        f" && other.GlueHostArchitectureSMPSize >= {rng.choice((2, 4))}"
        f" && other.GlueCEPolicyMaxCPUTime >= {_limit(rng)}"
    ),
)


def job_values(number: int, rng: Random) -> dict[str, Any]:
    """The identity of a job: one of 200 owners, one in ten with an OutputSE."""
    owner = rng.randrange(200)
    values = {
        "CertificateSubject": f"/DC=org/DC=example/CN=user {owner}",
        "VirtualOrganisation": VOS[owner % len(VOS)],
    }
    if not number % 10:
        site = rng.randrange(250)
        values["OutputSE"] = f"se0.site{site:03}.{PLACES[site % len(PLACES)]}"
    return values
