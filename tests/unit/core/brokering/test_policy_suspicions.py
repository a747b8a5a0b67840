"""Probable mistakes in the expressions of a policy are named; what is right gives no warning."""

from __future__ import annotations

import pytest

from pilotage.core.brokering.policy_suspicions import MOST, policy_suspicions
from pilotage.core.policy import initial, parse

HEAD = """\
[groups.g]
[users.u]
groups = ["g"]
[sites.s]
[ces.c]
site = "s"
type = "slurm"
"""


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        "GlueHostBenchmarkSI00 = 400\nRack = 'b'",
        "AuthorizationCheck = 'member(other.CertificateSubject, GlueCEAccessControlBaseRule)'",
        "Requirements = 'AuthorizationCheck && target.Owner == \"a\" && GlueCEPolicyMaxCPUTime > 5'",
    ],
)
def test_nothing_is_said_about_a_policy_that_is_right(attributes: str) -> None:
    assert policy_suspicions(parse(f"{HEAD}[ces.c.attributes]\n{attributes}\n")) == []
    assert policy_suspicions(parse(initial("me", "here"))) == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            "AuthorizationCheck = 'other.VirtualOrganization == \"x\"'",
            "AuthorizationCheck: no requester has VirtualOrganization: is VirtualOrganisation meant?",
        ),
        ("Requirements = 'other.Colour == 1'", "no requester has Colour; it has CertificateSubject"),
        ("Requirements = 'other.GlueCEName == \"a\"'", "leave out `other.` for facts of the CE"),
        ("Requirements = 'GlueCENamme == \"a\"'", "is GlueCEName meant?"),
        ("Requirements = 'Requirements && true'", "Requirements: its value needs itself"),
        (
            "AuthorizationCheck = 'CloseOutputSECheck'\nCloseOutputSECheck = 'AuthorizationCheck'",
            "CloseOutputSECheck: its value needs itself",
        ),
        ("Requirements = 'false'", "Requirements: it is never true"),
        ("AuthorizationCheck = '1'", "AuthorizationCheck: it is never true"),
        ("gluecestatestatus = 'Open'", "'Open' is none of Production, Queueing"),
        ("Requirements = 'foo(1)'", "there is no function 'foo'"),
    ],
)
def test_a_probable_mistake_in_a_check_is_named(lines: str, expected: str) -> None:
    texts = policy_suspicions(parse(f"{HEAD}[ces.c.attributes]\n{lines}\n"))
    assert any(expected in text for text in texts), texts
    assert all(text.startswith("ces.c.attributes.") for text in texts)


def test_a_rank_over_a_misspelt_name_is_named() -> None:
    pool = "[director.pools.Batch]\nEnableListMatch = true\nRank = '-other.GlueCEStateEstimatedResponsTime'\n"
    [text] = policy_suspicions(parse(HEAD + pool))
    assert text.startswith("director.pools.Batch.Rank: ")
    assert "is GlueCEStateEstimatedResponseTime meant?" in text


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ("[director.pools.Batch]\nEnableListMatch = true\nRank = '\"high\"'\n", "never a number"),
        ("[director.pools.Batch]\nEnableListMatch = true\nRank = '5'\n", ""),
        ("[director.pools.Bach]\nenabled = false\n", "no CE is in this pool; pools of CEs: Batch"),
        ("[director.pools.DIRAC]\nenabled = false\n", ""),
    ],
)
def test_pools_without_effect_are_named(pool: str, expected: str) -> None:
    texts = policy_suspicions(parse(HEAD + pool))
    assert [expected in text for text in texts] == [True] * bool(expected)


def test_the_number_of_sentences_is_bounded() -> None:
    names = " + ".join(f"other.Colour{number}" for number in range(3 * MOST))
    assert len(policy_suspicions(parse(f"{HEAD}[ces.c.attributes]\nRequirements = '{names} > 1'\n"))) == MOST
