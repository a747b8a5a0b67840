"""Job descriptions and ads as gLite, HTCondor and DIRAC write them: read, evaluated, matched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotage.core.brokering.ad_text import load_ce_ads, parse_ads, suspicions_of
from pilotage.core.brokering.ce_ad import CeAd
from pilotage.core.brokering.ce_answer import facts_of
from pilotage.core.brokering.match import CeVerdict, match
from pilotage.core.brokering.requester_ad import requester_ad
from pilotage.core.classads import ClassAd, evaluate, matches, parse_ad, parse_expression
from pilotage.core.errors import InvalidInput
from pilotage.core.glue.schema import kinds
from pilotage.core.jobs.jdl import parse_jdl
from pilotage.core.policy import Policy, parse
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.submission.accept import identity_of

NOW = 1_200_000_000.0
POLICY: Policy = parse(
    """\
[groups.atlas]
vo = "atlas"
[users.ann]
groups = ["atlas"]
subject = "/DC=ch/DC=cern/OU=Users/CN=ann"
[sites.CERN-PROD]
[ces.ce]
site = "CERN-PROD"
type = "local"
"""
)

# A CE as the information system of gLite shows it: flat, GLUE 1.3.
GLITE_CE = """\
[
    GlueCEUniqueID = "ce201.cern.ch:8443/cream-lsf-grid_atlas";
    CEid = GlueCEUniqueID;
    GlueCEName = "grid_atlas";
    GlueCEImplementationName = "CREAM";
    GlueCEInfoHostName = "ce201.cern.ch";
    GlueCEInfoLRMSType = "lsf";
    GlueCEInfoTotalCPUs = 21034;
    GlueCEStateStatus = "Production";
    GlueCEStateFreeCPUs = 17;
    GlueCEStateWaitingJobs = 444;
    GlueCEStateEstimatedResponseTime = 4182;
    GlueCEPolicyMaxCPUTime = 259200;
    GlueCEPolicyMaxWallClockTime = 345600;
    GlueCEPolicyMaxTotalJobs = 1000000;
    GlueCEStateTotalJobs = 9000;
    GlueCEAccessControlBaseRule = { "VO:atlas", "VOMS:/atlas/Role=production" };
    GlueCESEBindGroupSEUniqueID = { "srm-atlas.cern.ch", "castorsrm.cern.ch" };
    GlueHostMainMemoryRAMSize = 15998;
    GlueHostArchitectureSMPSize = 8;
    GlueHostArchitecturePlatformType = "x86_64";
    GlueHostOperatingSystemName = "ScientificCERNSLC";
    GlueHostOperatingSystemRelease = "5.8";
    GlueHostBenchmarkSI00 = 2412;
    GlueHostNetworkAdapterOutboundIP = true;
    GlueHostApplicationSoftwareRunTimeEnvironment = {
        "LCG-2_7_0", "GLITE-3_1_0", "VO-atlas-release-15.6.9", "VO-atlas-tier-T0", "MPICH"
    };
    AuthorizationCheck = member(other.CertificateSubject, GlueCEAccessControlBaseRule)
        || member(strcat("VO:", other.VirtualOrganisation), GlueCEAccessControlBaseRule);
    CloseOutputSECheck = IsUndefined(other.OutputSE) || member(other.OutputSE, GlueCESEBindGroupSEUniqueID);
    GlueSchemaVersionMajor = 1;
    GlueSchemaVersionMinor = 3
]
"""

GLITE_JOBS = {
    "software tag and time": (
        'Member("VO-atlas-release-15.6.9", other.GlueHostApplicationSoftwareRunTimeEnvironment)'
        " && other.GlueCEPolicyMaxCPUTime > 1440 && other.GlueHostMainMemoryRAMSize >= 2048",
        True,
    ),
    "a queue by a pattern": (r'RegExp(".*cern\.ch:8443/cream-.*", other.GlueCEUniqueID)', True),
    "not this queue": (r'!(RegExp("cream-lsf", other.GlueCEUniqueID))', False),
    "the state": ('other.GlueCEStateStatus == "production" && other.GlueCEStateFreeCPUs > 0', True),
    "a list of CEs": (
        'other.GlueCEUniqueID == "a.example.org:2119/jobmanager" || other.GlueCEInfoHostName == "ce201.cern.ch"',
        True,
    ),
    "an older system": ('other.GlueHostOperatingSystemRelease == "4.7"', False),
    "too long": ("other.GlueCEPolicyMaxWallClockTime >= 604800", False),
    "a bare name": ("GlueCEPolicyMaxCPUTime > 1440 && GlueHostNetworkAdapterOutboundIP", True),
}


def queue_of(jdl: str) -> QueueIdentity:
    return identity_of(parse_jdl(jdl).description, "ann", "atlas", POLICY)


def as_one_host(ad: CeAd) -> CeAd:
    """The minima as the values of its only host."""
    return replace(ad, homogeneous=True, fixed=ad.ad)


def verdict(jdl: str, ad: CeAd) -> CeVerdict:
    requester = requester_ad(queue_of(jdl), POLICY)
    return match(requester, facts_of(ad), now=NOW, kinds=kinds()).verdict


@pytest.mark.parametrize("name", GLITE_JOBS)
def test_requirements_of_glite_jobs(name: str) -> None:
    requirements, fits = GLITE_JOBS[name]
    jdl = f"""[
        Type = "Job";
        JobType = "Normal";
        Executable = "/bin/sh";
        Arguments = "athena.sh 4";
        StdOutput = "std.out";
        StdError = "std.err";
        InputSandbox = {{ "athena.sh" }};
        OutputSandbox = {{ "std.out", "std.err" }};
        Requirements = {requirements};
    ]"""
    ad = as_one_host(load_ce_ads(GLITE_CE, now=NOW)[0])
    assert verdict(jdl, ad).fits is fits
    value = evaluate(parse_expression(requirements), target=ad.ad)
    assert (value is True) is fits


def test_a_glite_ce_asks_who_submits_and_where_the_output_goes() -> None:
    [ad] = load_ce_ads(GLITE_CE, now=NOW)
    assert ad.name == "ce201.cern.ch:8443/cream-lsf-grid_atlas"
    assert suspicions_of(parse_ad(GLITE_CE)) == ()
    assert verdict('Executable = "x"; OutputSE = "castorsrm.cern.ch";', ad) is CeVerdict.YES
    assert not verdict('Executable = "x"; OutputSE = "dcache.desy.de";', ad).fits
    stranger = QueueIdentity("bob", "cms")
    requester = requester_ad(stranger, POLICY)
    assert match(requester, facts_of(ad), now=NOW, kinds=kinds()).verdict is CeVerdict.REFUSED


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("Rank = -other.GlueCEStateEstimatedResponseTime;", "rank"),
        ('VirtualOrganisation = "atlas";', "virtualorganisation"),
        ("RetryCount = 3;", "retrycount"),
        ("ShallowRetryCount = 3;", "shallowretrycount"),
        ('Type = "DAG";', "type"),
    ],
)
def test_attributes_of_glite_without_effect_are_refused_by_name(attribute: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_jdl(f'Executable = "x"; {attribute}')
    assert said in str(caught.value).lower()


# Machines as `condor_status -long` prints them, and a job as `condor_q -long` does.
CONDOR_MACHINES = r"""
AccountingGroup = ""
Activity = "Idle"
AddressV1 = "{[ p=\"primary\"; a=\"10.0.0.7\"; port=9618; n=\"Internet\"; ]}"
Arch = "X86_64"
CondorVersion = "$CondorVersion: 23.0.4 2024-02-08 BuildID: 712251 $"
Cpus = 16
Disk = 412000000
Gpus = 2
DetectedMemory = 64216
HasFileTransfer = true
HasSingularity = true
KFlops = 1812003
LoadAvg = 0.3
Machine = "wn007.example.org"
Memory = 64216
MyType = "Machine"
Name = "slot1@wn007.example.org"
OpSys = "LINUX"
OpSysAndVer = "AlmaLinux9"
OpSysMajorVer = 9
Rank = 0.0
Requirements = START
SlotID = 1
Start = (isUndefined(TARGET.JobUniverse) || TARGET.JobUniverse == 5) && TARGET.RequestMemory <= Memory
State = "Unclaimed"
StarterAbilityList = "HasFileTransfer,HasSingularity,HasTransferInputRemaps"
LastHeardFrom = 1200000000
ClassAdLifetime = 900

Arch = "aarch64"
Cpus = 4
Disk = 10000000
HasFileTransfer = true
Memory = 7900
MyType = "Machine"
Name = "slot1@arm3.example.org"
OpSys = "LINUX"
OpSysAndVer = "Debian12"
Requirements = (START) && (IsOwner =?= UNDEFINED)
START = true
LastHeardFrom = 1200000000
"""

CONDOR_JOB = r"""
ClusterId = 4711
Cmd = "/home/ann/run.sh"
Environment = "A='b c' D=\"e\""
JobUniverse = 5
MyType = "Job"
Owner = "ann"
RequestCpus = 4
RequestDisk = 1048576
RequestMemory = ifthenelse(MemoryUsage =!= undefined, MemoryUsage, 4096)
Rank = KFlops
Requirements = (TARGET.Arch == "X86_64") && (TARGET.OpSys == "LINUX") && (TARGET.Disk >= RequestDisk) && (TARGET.Memory >= RequestMemory) && (TARGET.Cpus >= RequestCpus) && ((TARGET.FileSystemDomain == MY.FileSystemDomain) || (TARGET.HasFileTransfer))
"""  # noqa: E501


def test_machines_and_jobs_of_htcondor_match_both_ways() -> None:
    large, small = load_ce_ads(CONDOR_MACHINES, now=NOW)
    [job] = parse_ads(CONDOR_JOB)
    assert evaluate(parse_expression("Environment"), my=job) == "A='b c' D=\"e\""
    # FileSystemDomain is undefined on both sides; the right side of `||` decides.
    assert matches(job, large.ad)
    assert not matches(job, small.ad)
    assert evaluate(parse_expression("Rank"), my=job, target=large.ad) == 1812003
    greedy = ClassAd(tuple((n, v) for n, v in job.attributes if n != "RequestMemory")).extended(
        [("RequestMemory", parse_expression("100000"))]
    )
    assert not matches(greedy, large.ad)


@pytest.mark.parametrize(
    ("requirements", "fits"),
    [
        ('TARGET.Arch == "X86_64" && TARGET.OpSysMajorVer >= 8 && TARGET.HasSingularity', [True, False]),
        ('stringListIMember("hassingularity", TARGET.StarterAbilityList)', [True, False]),
        ('regexp("^(AlmaLinux|Debian)", TARGET.OpSysAndVer)', [True, True]),
        ("TARGET.Gpus >= 1", [True, False]),
        ("(TARGET.Gpus ?: 0) == 0", [False, True]),
        ('TARGET.Machine =!= "wn007.example.org"', [False, True]),
        ('split(TARGET.Name, "@")[1] == "arm3.example.org"', [False, True]),
    ],
)
def test_requirements_of_htcondor_in_job_descriptions(requirements: str, fits: list[bool]) -> None:
    ads = load_ce_ads(CONDOR_MACHINES, now=NOW)
    job = parse_ad("[RequestMemory = 1000; JobUniverse = 5]").extended(
        [("Requirements", parse_expression(requirements))]
    )
    assert [matches(job, ad.ad) for ad in ads] == fits


# An HTCondor-CE as it advertises itself to its central collector.
CONDOR_CE = r"""
MyType = "Scheduler"
Name = "ce1.example.org"
OSG_BatchSystems = "Slurm"
OSG_ResourceGroup = "Example_CE"
OSG_ResourceCatalog = { [ Name = "any"; MaxWallTime = 1440; CPUs = 16; Memory = 32000; Requirements = TARGET.RequestCPUs <= CPUs ], [ Name = "gpu"; MaxWallTime = 480; CPUs = 8; Memory = 64000; GPUs = 4 ] }
TotalIdleJobs = 12
TotalRunningJobs = 320
LastHeardFrom = 1200000000
"""  # noqa: E501


def test_an_htcondor_ce_is_read_with_its_catalogue() -> None:
    [ad] = load_ce_ads(CONDOR_CE, now=NOW + 60)
    assert not ad.homogeneous
    assert suspicions_of(ad.ad) == ()

    def fits(text: str) -> bool:
        return evaluate(parse_expression(text), my=parse_ad("[RequestCPUs = 4]"), target=ad.ad) is True

    assert fits('other.OSG_BatchSystems == "slurm" && max(other.OSG_ResourceCatalog.MaxWallTime) >= 1440')
    assert fits('member("gpu", other.OSG_ResourceCatalog.Name)')
    assert fits("other.OSG_ResourceCatalog[0].Requirements")
    assert not fits("other.OSG_ResourceCatalog[1].MaxWallTime > 480")


DIRAC_JDL = """\
    Executable = "dirac-jobexec";
    Arguments = "jobDescription.xml -o LogLevel=INFO";
    JobName = "MCSimulation_00001234";
    JobGroup = "00001234";
    JobType = "MCSimulation";
    CPUTime = 86400;
    Priority = 1;
    Platform = "x86_64-el9";
    Site = "CERN-PROD";
    BannedSites = { "LCG.RAL.uk", "LCG.GRIDKA.de" };
    Tag = { "MultiProcessor" };
    MinNumberOfProcessors = 2;
    LogLevel = "INFO";
    InputSandbox = { "jobDescription.xml" };
    OutputSandbox = { "std.out", "std.err" };
    Requirements = other.GlueHostMainMemoryRAMSize > 2000 && other.GridCE != "ce9";
    OutputSE = "srm-atlas.cern.ch";
"""


def test_a_job_of_dirac_is_matched_by_queue_and_by_ad() -> None:
    queue = queue_of(DIRAC_JDL)
    assert (queue.cpu_time, queue.processors, queue.job_type) == (300000, 2, "MCSimulation")
    assert queue.tags == {"MultiProcessor"}
    assert queue.output_se == "srm-atlas.cern.ch"
    assert set(queue.match_parts()) == {"Requirements", "OutputSE"}
    requester = requester_ad(queue, POLICY)
    [ad] = load_ce_ads(GLITE_CE, now=NOW)
    own = ad.ad.extended([("GridCE", parse_expression('"ce201"'))])
    answer = match(requester, facts_of(replace(ad, ad=own, fixed=own)), now=NOW, kinds=kinds())
    assert answer.verdict is CeVerdict.YES
    assert evaluate(parse_expression("my.CertificateSubject"), my=requester) == POLICY.users["ann"].subject
