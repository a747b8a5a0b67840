"""The ads of CEs: made from information, loaded from a text, and refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.brokering.ad_text import load_ce_ads, parse_ads, suspicions_of
from pilotage.core.brokering.ce_ad import ce_ad
from pilotage.core.classads import ClassAd, ListOf, evaluate, matches, parse_ad, parse_expression, unparse
from pilotage.core.classads.partial import Kind
from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.glue.information import CeInformation, HostClass, Value
from pilotage.core.glue.schema import BY_NAME, is_of_hosts, kinds, mistake, nearest_name
from pilotage.core.policy import Ce

DOCUMENT = (Path(__file__).parents[2] / "classads/glue_ce.ad").read_text(encoding="utf-8")
UPDATED = 1128351882
CE = Ce(site="milan", type="slurm")
CONDITIONAL = parse_expression(
    "other.GlueHostBenchmarkSI00 > 500 ? other.GlueCEPolicyMaxCPUTime > 1000 : other.GlueCEPolicyMaxCPUTime > 2000"
)


def information(**attributes: Value) -> CeInformation:
    return CeInformation(attributes=attributes, updated=1000.0)


def value_of(ad: ClassAd, text: str, requester: str = "[]") -> object:
    return evaluate(parse_expression(text), my=ad, target=parse_ad(requester))


# --- the schema


def test_the_schema_has_every_attribute_of_the_documents_ad() -> None:
    info = parse_ad(DOCUMENT).get("info")
    assert isinstance(info, ClassAd)
    assert len(info.attributes) == 55
    unknown = {name for name, _ in info.attributes if name.lower() not in BY_NAME}
    assert unknown == {"AuthorizationCheck", "CloseOutputSECheck"}
    # The values are of the kinds that the schema declares.
    assert [suspicion.path for suspicion in suspicions_of(parse_ad(DOCUMENT))] == [
        "info.CloseStorageElements[0].name"
    ]


def test_hosts_fix_what_is_told_of_hosts_and_sub_clusters() -> None:
    assert is_of_hosts("glueHOSTbenchmarkSI00")
    assert is_of_hosts("GlueSubClusterLogicalCPUs")
    assert not is_of_hosts("GlueCEPolicyMaxCPUTime")
    assert not is_of_hosts("Site")
    assert kinds()["gluehostbenchmarksi00"] is Kind.QUANTITY
    assert kinds()["platforms"] is Kind.STRINGS


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GlueHostBenchmarkSI00", 400, ""),
        (
            "glueHostBenchmarkSI00",
            True,
            "GlueHostBenchmarkSI00 must be a whole number (SPECint2000), not true",
        ),
        ("GlueHostBenchmarkSI00", 1.5, "GlueHostBenchmarkSI00 must be a whole number (SPECint2000), not 1.5"),
        ("GlueSiteLatitude", 45, ""),
        ("GlueCEStateStatus", 1, "GlueCEStateStatus must be a text, not 1"),
        (
            "GlueCEAccessControlBaseRule",
            "VO:EGEE",
            "GlueCEAccessControlBaseRule must be a list of texts, not the text 'VO:EGEE'",
        ),
        ("GlueHostNetworkAdapterOutboundIP", "true", ""),
        ("the_sites_own", "anything", ""),
        ("AuthorizationCheck", 'other.Owner == "alice"', ""),
        ("authorizationCheck", True, ""),
        ("AuthorizationCheck", 5, "AuthorizationCheck must be the text of a ClassAd expression"),
        ("Tags", ("gpu",), "Tags cannot be set: Pilotage itself tells it of each pilot"),
    ],
)
def test_values_have_the_type_of_the_schema(name: str, value: Value, said: str) -> None:
    if name == "GlueHostNetworkAdapterOutboundIP":
        said = "GlueHostNetworkAdapterOutboundIP must be true or false, not the text 'true'"
    assert mistake(name, value) == said


def test_a_misspelt_name_of_the_schema_is_recognised() -> None:
    assert nearest_name("GlueHostBenchmarkSI000") == "GlueHostBenchmarkSI00"
    assert nearest_name("GlueHostBenchmarkSI00") == "" == nearest_name("si00") == nearest_name("GlueTeapot")


# --- from information


def test_the_ad_has_the_form_of_the_document() -> None:
    ad = ce_ad("milan-long", CE, information(GlueCEPolicyMaxCPUTime=500), now=1010.0)
    text = unparse(ad.document())
    again = parse_ad(text)
    assert [name for name, _ in again.attributes] == ["id", "update_time", "expiry_time", "info"]
    [loaded] = load_ce_ads(text, now=1010.0)
    assert (loaded.name, loaded.updated, loaded.expiry) == ("milan-long", 1000.0, 300.0)
    assert loaded.ad == ad.ad
    assert value_of(ad.ad, "GlueCEUniqueID") == "milan-long"
    assert value_of(ad.ad, "GlueSiteName") == "milan"


def test_requirements_are_the_checks_that_the_lists_allow() -> None:
    open_ce = ce_ad("a", CE, information(), now=1000.0)
    assert value_of(open_ce.ad, "Requirements", '[OutputSE = "se"]') is True
    closed = ce_ad(
        "a",
        CE,
        information(GlueCEAccessControlBaseRule=("VO:EGEE", "/CN=ann"), GlueCESEBindGroupSEUniqueID=("se1",)),
        now=1000.0,
    )
    for requester, expected in {
        '[VirtualOrganisation = "EGEE"]': True,
        '[VirtualOrganisation = "other"; CertificateSubject = "/CN=bob"]': False,
        '[VirtualOrganisation = "other"; CertificateSubject = "/CN=ann"]': True,
        '[VirtualOrganisation = "EGEE"; OutputSE = "se1"]': True,
        '[VirtualOrganisation = "EGEE"; OutputSE = "se2"]': False,
    }.items():
        assert (value_of(closed.ad, "Requirements", requester) is True) is expected, requester


def test_the_policy_may_give_the_checks_as_texts() -> None:
    ad = ce_ad("a", CE, information(closeoutputsecheck='other.OutputSE == "se9"'), now=1000.0)
    assert value_of(ad.ad, "Requirements", '[OutputSE = "SE9"]') is True
    assert value_of(ad.ad, "Requirements", '[OutputSE = "se1"]') is False


def test_a_check_that_cannot_be_read_lets_nobody_in() -> None:
    ad = ce_ad("a", CE, information(AuthorizationCheck="(other."), now=1000.0)
    assert value_of(ad.ad, "Requirements", '[VirtualOrganisation = "EGEE"]') is not True
    assert mistake("AuthorizationCheck", "(other.").startswith(
        "AuthorizationCheck is no ClassAd expression: line 1"
    )


def test_host_attributes_are_unknown_to_partial_evaluation_unless_all_hosts_agree() -> None:
    facts: dict[str, Value] = {
        "GlueHostBenchmarkSI00": 400,
        "GlueCEPolicyMaxCPUTime": 1500,
        "rack": "r1",
    }
    classes = (
        HostClass(2, {"GlueHostBenchmarkSI00": 400, "rack": "r1"}),
        HostClass(3, {"GlueHostBenchmarkSI00": 600, "rack": "r2"}),
    )
    ad = ce_ad("a", CE, CeInformation(facts, classes, updated=1000.0), now=1000.0)
    assert {name.lower() for name, _ in ad.fixed.attributes} & set(map(str.lower, facts)) == {
        "gluecepolicymaxcputime"
    }
    assert [evaluate(CONDITIONAL, target=host.ad) for host in ad.hosts] == [False, True]
    assert [host.count for host in ad.hosts] == [2, 3]
    alike = ce_ad("a", CE, CeInformation(facts, homogeneous=True, updated=1000.0), now=1000.0)
    assert alike.fixed == alike.ad
    assert evaluate(CONDITIONAL, target=alike.hosts[0].ad) is False


def test_attributes_absent_from_a_host_class_are_unknown_on_hosts_and_minima_in_offers() -> None:
    classes = (HostClass(1, {"GlueHostBenchmarkSI00": 600}, ("n1",)), HostClass(1, {"rack": "r2"}, ("n2",)))
    facts: dict[str, Value] = {"GlueHostBenchmarkSI00": 400, "GlueHostMainMemoryRAMSize": 1000}
    ad = ce_ad("a", CE, CeInformation(facts, classes, updated=1000.0), now=1000.0)
    first, second = (host.ad for host in ad.hosts)
    assert value_of(first, "GlueHostBenchmarkSI00") == 600
    assert first.get("GlueHostMainMemoryRAMSize") is None
    assert second.get("GlueHostBenchmarkSI00") is None is second.get("GlueHostMainMemoryRAMSize")
    assert value_of(ad.of_host("n1"), "GlueHostMainMemoryRAMSize") == 1000
    assert value_of(ad.of_host("n2"), "GlueHostBenchmarkSI00") == 400


def test_hosts_that_are_alike_fix_all_on_which_they_agree() -> None:
    classes = (
        HostClass(1, {"GlueHostBenchmarkSI00": 600, "rack": "r1"}),
        HostClass(1, {"gluehostbenchmarksi00": 600}),
    )
    ad = ce_ad("a", CE, CeInformation({}, classes, homogeneous=True, updated=1000.0), now=1000.0)
    assert value_of(ad.fixed, "GlueHostBenchmarkSI00") == 600
    assert ad.fixed.get("rack") is None


def test_expired_information_is_unknown_and_not_free() -> None:
    facts = information(GlueCEStateFreeCPUs=7, GlueCEStateStatus="Production", GlueCEPolicyMaxCPUTime=9)
    assert ce_ad("a", CE, facts, now=1299.0).ad.get("GlueCEStateFreeCPUs") is not None
    expired = ce_ad("a", CE, facts, now=1300.0)
    assert not expired.is_current(1300.0)
    assert expired.ad.get("GlueCEStateFreeCPUs") is None is expired.ad.get("GlueCEStateStatus")
    assert expired.ad.get("GlueCEPolicyMaxCPUTime") is not None


def test_a_host_is_found_by_its_whole_or_its_short_name() -> None:
    classes = (
        HostClass(2, {"speed": 1}, ("n1.milan.it", "n2.milan.it")),
        HostClass(1, {"speed": 2}, ("n3.milan.it",)),
        HostClass(2, {"speed": 3}, ("n4", "n1.rome.it")),
    )
    ad = ce_ad("a", CE, CeInformation({"speed": 0}, classes), now=0.0)

    def speed(*names: str) -> object:
        return value_of(ad.of_host(*names), "speed")

    assert speed("N1.milan.it") == 1
    assert speed("n1.rome.it") == 3
    assert speed("n1") == 0, "two hosts of different classes have this short name"
    assert speed("n3") == 2
    assert speed("n4.milan.it") == 3
    assert speed("n3.rome.it") == 0, "the same name in another domain is another host"
    assert speed("unknown", "n3") == 2
    queues = (HostClass(1, {"speed": 5}, ("fast.q@n1",)), HostClass(1, {"speed": 6}, ("slow.q@n1.milan.it",)))
    ad = ce_ad("a", CE, CeInformation({"speed": 0}, queues), now=0.0)
    assert speed("fast.q@n1.milan.it") == 5
    assert speed("slow.q@n1") == 6
    assert speed("other.q@n1", "n1") == 0
    only = ce_ad("a", CE, CeInformation({"speed": 0}, classes[:1]), now=0.0)
    assert value_of(only.of_host("unknown"), "speed") == 1


# --- from a text


def test_the_documents_ad_loads_as_it_stands() -> None:
    [ad] = load_ce_ads(DOCUMENT, now=UPDATED + 10)
    assert ad.name == "atlfarm006.mi.infn.it:2119/blah-pbs-long"
    assert (ad.updated, ad.expiry) == (float(UPDATED), 300.0)
    assert ad.is_current(UPDATED + 299)
    assert not ad.is_current(UPDATED + 300)
    assert value_of(ad.ad, "Requirements", '[VirtualOrganisation = "EGEE"]') is True
    assert value_of(ad.ad, "Requirements", '[VirtualOrganisation = "CMS"]') is not True
    assert ad.fixed.get("GlueHostBenchmarkSI00") is None
    assert ad.ad.get("GlueHostBenchmarkSI00") is not None
    flat = parse_ad(DOCUMENT).get("info")
    assert isinstance(flat, ClassAd)
    # Without the wrapper, gLite's own names tell identity and expiry.
    assert load_ce_ads(unparse(flat), now=0.0)[0].name == ad.name


MACHINE = r"""
# condor_status -long
MyType = "Machine"
Name = "slot1@node7.example.org"
Machine = "node7.example.org"
Arch = "X86_64"
OpSys = "LINUX"
Cpus = 8
Memory = 16000
LoadAvg = 0.120000
Start = true
Requirements = (START) && (IsValidCheckpointPlatform =?= undefined)
HasFileTransfer = true
FileSystemDomain = "C:\temp \"x\""
LastHeardFrom = 1700000000
ClassAdLifetime = 900

Name = "slot2@node7.example.org"
Cpus = 2
"""


def test_the_lines_of_condor_status_load() -> None:
    first, second = load_ce_ads(MACHINE, now=1_700_000_100)
    assert (first.name, first.updated, first.expiry) == ("slot1@node7.example.org", 1_700_000_000.0, 900.0)
    assert value_of(first.ad, "FileSystemDomain") == 'C:\\temp "x"'
    job = parse_ad('[Requirements = TARGET.Arch == "X86_64" && TARGET.Memory >= 4000 && TARGET.Cpus >= 4]')
    assert matches(job, first.ad)
    assert not matches(job, second.ad)
    # A machine is one host: it fixes all of its values.
    assert first.homogeneous
    assert first.fixed == first.ad
    assert len(first.hosts) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the text is empty"),
        ("// nothing\n# here", "the text is empty"),
        ('[GlueCEName = "long"]', "the ad has no identity"),
        ('[id = 5; info = [GlueCEName = "x"]]', "the ad has no identity"),
        ('[id = "a"; update_time = 1128351882; info = []]', "the ad of a has expired"),
        ('[id = "a"; update_time = 1899999999; info = []]', "the ad of a is from the future"),
        ('[id = "a"; update_time = "yesterday"]', "update_time must be a number of seconds"),
        ('[id = "a"; update_time = true]', "update_time must be a number of seconds"),
        ('[id = "a"; update_time = -1]', "update_time must be a number of seconds"),
        ('[id = "a"; expiry_time = 1.0e400]', "line 1"),
        ('[id = "a"; x = 1; X = 2]', "is already defined on line 1"),
        ('[id = "a"; info = [x = 1; x = 2]]', "is already defined on line 1"),
        ('Name = "a"\nCpus = 1\ncpus = 2', "line 3: cpus has two values"),
        ('Name = "a"\nCpus 1', "line 2: a line must be `Name = value`"),
        ('Name = "a"\nCpus = (1', "line 2: Cpus: "),
        ('Name = "a"\n\nName = "a"', "two ads have the identity a"),
        ('[id = "a"; x = ' + "(" * 500 + "1" + ")" * 500 + "]", "nested deeper than 100 levels"),
        ('[id = "a"', "line 1"),
        ("job = 5 ]", "line 1"),
    ],
)
def test_bad_ads_are_refused_with_a_reason(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_ce_ads(text, now=1_700_000_000.0)
    assert said in str(caught.value)


def test_an_ad_may_be_a_minute_ahead_and_no_more() -> None:
    assert load_ce_ads('[id = "a"; update_time = 1060]', now=1000.0)[0].updated == 1060.0
    with pytest.raises(InvalidInput, match="61 s ahead"):
        load_ce_ads('[id = "a"; update_time = 1061]', now=1000.0)


def test_an_ad_of_a_megabyte_is_read_and_a_larger_one_is_refused() -> None:
    tags = ", ".join(f'"SOFTWARE-{number:05}"' for number in range(50_000))
    text = f'[id = "a"; info = [GlueHostApplicationSoftwareRunTimeEnvironment = {{ {tags} }}]]'
    assert 900_000 < len(text) < 2**20
    [ad] = load_ce_ads(text, now=0.0)
    tags_of_ad = ad.ad.get("GlueHostApplicationSoftwareRunTimeEnvironment")
    assert isinstance(tags_of_ad, ListOf)
    assert len(tags_of_ad.items) == 50_000
    with pytest.raises(TooLarge):
        load_ce_ads(text + " " * 2**20, now=0.0)


def test_circles_are_undefined_and_named() -> None:
    text = '[id = "a"; info = [x = y + 1; y = z; z = x; w = x; v = 1; u = v]]'
    [ad] = load_ce_ads(text, now=0.0)
    assert unparse(parse_expression(str(value_of(ad.ad, "isUndefined(x)")).lower())) == "true"
    named = {suspicion.path for suspicion in suspicions_of(parse_ad(text))}
    assert named == {"x", "y", "z", "w"}


def test_slips_in_an_ad_are_named() -> None:
    ad = parse_ad(
        '[id = "a"; info = [GlueHostBenchmarkSI000 = 5; GlueCEPolicyMaxCPUTime = "500"; se = disk.cern.ch]]'
    )
    assert [suspicion.message for suspicion in suspicions_of(ad)] == [
        "GlueCEPolicyMaxCPUTime is of type integer in the GLUE schema",
        "the GLUE schema has no GlueHostBenchmarkSI000: is GlueHostBenchmarkSI00 meant?",
        "disk.cern.ch selects from 'disk', which nothing defines: quote it? \"disk.cern.ch\"",
    ]


@given(st.text(alphabet='[]{}=;"\\\n abNme1.', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        for ad in parse_ads(text):
            suspicions_of(ad)
        load_ce_ads(text, now=0.0)
    except InvalidInput:
        pass
