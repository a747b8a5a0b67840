"""Attributes that the policy gives to CEs and classes of hosts: names, kinds, and errors with their line."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse, warnings
from pilotage.core.policy.differences import changes

HEAD = """\
[groups.g]
[users.u]
groups = ["g"]
[sites.s]
[ces.other]
site = "s"
[ces.c]
site = "s"
homogeneous = true
"""
WHOLE = (
    HEAD
    + """\
information_period = 30
[ces.c.attributes]
GlueHostBenchmarkSI00 = 400
glueceaccesscontrolbaserule = ["VO:EGEE"]
GlueHostNetworkAdapterOutboundIP = true
GlueSiteLatitude = 45
AuthorizationCheck = "member(other.CertificateSubject, GlueCEAccessControlBaseRule)"
Rack = "b 12"
[[ces.c.hosts]]
hosts = ["n1", "n2"]
attributes = { GlueHostBenchmarkSI00 = 600 }
[[ces.c.hosts]]
count = 7
[ces.c.hosts.attributes]
GlueHostMainMemoryRAMSize = 16000
"""
)


def test_attributes_and_hosts_are_read() -> None:
    ce = parse(WHOLE).ces["c"]
    assert ce.attributes["GlueHostBenchmarkSI00"] == 400
    assert ce.attributes["glueceaccesscontrolbaserule"] == ("VO:EGEE",)
    assert [(entry.size, entry.hosts) for entry in ce.hosts] == [(2, ("n1", "n2")), (7, ())]
    assert (ce.information_lifetime, parse(HEAD).ces["c"].information_lifetime) == (150, 300)
    assert (
        parse(WHOLE.replace("period = 30", "period = 30\ninformation_expiry = 70"))
        .ces["c"]
        .information_lifetime
        == 70
    )


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("GlueHostBenchmarkSI00 = 1.5", "GlueHostBenchmarkSI00 must be a whole number", ""),
        ('GlueHostBenchmarkSI00 = "400"', "must be a whole number (SPECint2000), not the text", ""),
        ("GlueHostBenchmarkSI00 = true", "must be a whole number", ""),
        ("GlueHostBenchmarkSI00 = 4398046511105", "must be between -2^42 and 2^42", ""),
        (
            "GlueHostBenchmarkSI000 = 400",
            "no attribute GlueHostBenchmarkSI000",
            "did you mean GlueHostBenchmarkSI00?",
        ),
        ('GlueCEAccessControlBaseRule = "VO:EGEE"', "must be a list of texts", ""),
        ("GlueHostNetworkAdapterInboundIP = 1", "must be true or false", ""),
        ('"a b" = 1', "'a b' cannot be the name of an attribute", ""),
        ("undefined = 1", "cannot be the name of an attribute", ""),
        ("rack = 1\nRACK = 2", "RACK has two values", "the same attribute as rack"),
        ('Requirements = "other.X =="', "Requirements is no ClassAd expression", ""),
        ("AuthorizationCheck = true", "must be a ClassAd expression", ""),
        ('GlueCEUniqueID = "ce.org:2119/q"', "must be the name of the CE", '[ces."ce.org:2119/q"]'),
        ('CEid = "other"', "must be the name of the CE", "[ces.other]"),
        ('Site = "x"', "Site cannot be set", ""),
        ("Rack = { a = 1 }", "ces.c.attributes.Rack: must be", "attributes: attributes of its ad"),
        ("Rack = [1]", "ces.c.attributes.Rack.0: must be a text", ""),
        ("Rack = inf", "ces.c.attributes.Rack must be a number from", ""),
    ],
)
def test_a_wrong_attribute_is_refused_with_its_line(line: str, message: str, hint: str) -> None:
    text = HEAD + "[ces.c.attributes]\nFine = 1\n" + line + "\nLast = 2\n"
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    assert message in refused.value.message
    assert hint in refused.value.hint
    wrong = line.splitlines()[-1]
    assert refused.value.line == text.splitlines().index(wrong) + 1


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('count = 3\nhosts = ["a"]', "count is 3, but hosts has 1 name"),
        ('hosts = ["a", "A"]', "the host a is named twice"),
        ('hosts = ["n[1-40]"]', "'n[1-40]' is no name of a host"),
        ('hosts = ["n1; id"]', "is no name of a host"),
        ('hosts = [""]', "'' is no name of a host"),
        ('hosts = ["a,b"]', "is no name of a host"),
        ('hosts = ["n0"]', "the host n0 is named twice"),
        ("attributes = { GlueCEPolicyMaxCPUTime = 5 }", "GlueCEPolicyMaxCPUTime is no attribute of hosts"),
        ('attributes = { Requirements = "true" }', "Requirements is no attribute of hosts"),
        ("attributes = { GlueHostBenchmarkSI00 = 0.5 }", "must be a whole number"),
        ("count = -1", "must be a number from 0"),
        ("attributes = { X = [true] }", "ces.c.hosts.1.attributes.X.0: must be a text"),
    ],
)
def test_wrong_hosts_are_refused_with_their_line(entry: str, message: str) -> None:
    text = HEAD + '[[ces.c.hosts]]\nhosts = ["n0"]\n[[ces.c.hosts]]\n' + entry + "\n"
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    assert message in refused.value.message
    lines = text.splitlines()
    assert refused.value.line in (len(lines), len(lines) - 1, lines.index("[[ces.c.hosts]]") + 3)


def test_names_of_hosts_with_queues_and_domains_are_accepted() -> None:
    text = (
        HEAD
        + '[ces.c.attributes]\nGlueCEUniqueID = "c"\n[[ces.c.hosts]]\nhosts = ["all.q@n1.example.org", "n_2"]\n'
    )
    assert parse(text).ces["c"].hosts[0].size == 2


@pytest.mark.parametrize("name", ["", "a\\nb", "a\\u202eb", " a", "x" * 201])
def test_a_name_of_a_ce_that_no_command_can_give_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="of a CE"):
        parse(HEAD + f'[ces."{name}"]\nsite = "s"\n')


def test_a_name_of_a_ce_that_needs_quotes_is_a_warning() -> None:
    policy = parse(HEAD + '[ces."a b"]\nsite = "s"\n[ces."ce.org:2119/q"]\nsite = "s"\n')
    assert [text for text in warnings(policy) if "needs quotes" in text and 'ces."a b"' in text]
    assert not [text for text in warnings(policy) if "needs quotes" in text and "ce.org" in text]


def test_an_answer_may_not_expire_before_the_next_one() -> None:
    with pytest.raises(InvalidInput, match="at least two information_period") as refused:
        parse(HEAD + "information_period = 30\ninformation_expiry = 59\n")
    assert refused.value.line == len(HEAD.splitlines()) + 2
    assert (
        parse(HEAD + "information_period = 30\ninformation_expiry = 60\n").ces["c"].information_lifetime == 60
    )


def test_differences_name_the_attribute() -> None:
    [change] = changes(WHOLE, WHOLE.replace("SI00 = 400", "SI00 = 500"))
    assert (change.key, change.before, change.after) == ("ces.c.attributes.GlueHostBenchmarkSI00", 400, 500)


def test_a_limit_of_the_ce_itself_may_be_any_whole_number() -> None:
    parse(HEAD + "[ces.c.attributes]\nGlueCEPolicyMaxTotalJobs = 1000000000000000\n")
