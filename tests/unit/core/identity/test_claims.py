"""Claims of an issuer as users, groups and rights of the policy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.errors import Forbidden, InvalidInput, NotAuthenticated
from pilotage.core.identity.claims import (
    CAPABILITIES,
    choose_group,
    read_account,
    read_capabilities,
)
from pilotage.core.policy import Policy, parse
from pilotage.core.policy.new_user import with_user

TEXT = """\
[groups.analysis]
share = 1
[groups.production]
share = 1
[users.alice]
groups = ["production", "analysis"]
[issuers.iam]
url = "https://iam.example.org/"
client = "cli"
[issuers.iam.groups]
"/exp/analysis" = "analysis"
[issuers.iam.users]
"7c1b" = "alice"
"""


def policy(**changes: str) -> Policy:
    text = TEXT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return parse(text)


def account(claims: dict[str, Any], text: str = TEXT) -> tuple[str, tuple[str, ...]]:
    known = parse(text)
    found = read_account(known.issuers["iam"], known, claims)
    return found.user, found.groups


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        (["/exp/analysis", "/production"], ("analysis", "production")),
        (["analysis", "/exp", "unknown"], ("analysis",)),
        ("production", ("production",)),
        ("/exp/analysis", ("analysis",)),
        ("Data production", ()),
        ("production analysis", ()),
        (["analysis", "/exp/analysis"], ("analysis",)),
        ([1, None, ["production"], {"a": 1}], ()),
        ({"production": True}, ()),
        (None, ()),
        (7, ()),
    ],
)
def test_groups_are_those_of_the_policy_that_the_claim_names(groups: object, found: tuple[str, ...]) -> None:
    assert account({"preferred_username": "alice", "wlcg.groups": groups}) == ("alice", found)


def test_a_user_is_named_by_the_claim_or_by_the_table() -> None:
    text = TEXT.replace('client = "cli"', 'client = "cli"\nuser_claim = "sub"')
    assert account({"sub": "7c1b"}, text)[0] == "alice"
    assert account({"sub": "bob"}, text)[0] == "bob"


@pytest.mark.parametrize("name", [None, "", 7, ["alice"], "a\nb", "a" * 300, "al\u0000ice"])
def test_a_claim_that_is_no_name_names_nobody(name: object) -> None:
    with pytest.raises(NotAuthenticated, match="preferred_username"):
        account({"preferred_username": name})


def test_the_group_of_a_token_is_one_that_both_give() -> None:
    known = parse(TEXT)
    both = read_account(
        known.issuers["iam"],
        known,
        {"preferred_username": "alice", "wlcg.groups": ["analysis", "production"]},
    )
    assert choose_group(known, both, "") == "analysis", "the order is that of the claim"
    assert choose_group(known, both, "production") == "production"
    with pytest.raises(Forbidden, match="not in group other"):
        choose_group(known, both, "other")
    lost = read_account(known.issuers["iam"], known, {"preferred_username": "alice", "wlcg.groups": ["/exp"]})
    with pytest.raises(Forbidden, match="in no group here"):
        choose_group(known, lost, "analysis")
    stranger = read_account(
        known.issuers["iam"], known, {"preferred_username": "eve", "wlcg.groups": ["analysis"]}
    )
    with pytest.raises(Forbidden, match="no user eve"):
        choose_group(known, stranger, "")


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ("openid profile", None),
        ("", None),
        (None, None),
        (7, set()),
        ({"compute.read": True}, set()),
        ([{"compute.read": True}], set()),
        (["openid compute.read"], {"compute.read"}),
        ("openid compute.read compute.create:/x", {"compute.read", "compute.create"}),
        ("condor:/READ", {"compute.read"}),
        ("condor:/WRITE", {"compute.create", "compute.cancel", "compute.modify"}),
        ("compute.everything", set()),
    ],
)
def test_scopes_of_computing_bound_a_token(scope: object, found: set[str] | None) -> None:
    read = read_capabilities({"scope": scope})
    assert (None if read is None else set(read)) == found
    assert read is None or read <= CAPABILITIES


@given(st.text(), st.lists(st.sampled_from(["analysis", "production"]), min_size=1, unique=True))
def test_a_new_user_is_the_only_change_of_a_policy(name: str, groups: list[str]) -> None:
    try:
        text, changed = with_user(TEXT, name, groups)
    except InvalidInput:
        return
    before = parse(TEXT)
    assert text.startswith(TEXT.rstrip())
    assert changed.users.keys() - before.users.keys() == {name}
    assert list(changed.users[name].groups) == groups
    assert changed.groups == before.groups


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("https://iam.example.org/", "iam.example.org", "is not an address"),
        ("https://iam.example.org/", "http://iam.example.org/", "without TLS"),
        ("https://iam.example.org/", "https://iam.example.org/?a=1", "is not an address"),
        ('client = "cli"', 'client = ""', "no client and no audience"),
        ('= "analysis"\n', '= "physics"\n', "no group physics"),
        ('"7c1b" = "alice"', '"7c1b" = "bob"', "no user bob"),
        ('client = "cli"', 'client = "cli"\nca_file = "ca.pem"', "no absolute path"),
        ('client = "cli"', 'client = "cli"\nlifetime = 5', "lifetime"),
        (
            "[issuers.iam]",
            '[issuers."a b"]\nurl = "https://a"\nclient = "c"\n[issuers.iam]',
            "cannot be used",
        ),
        (
            "[issuers.iam]",
            '[issuers.two]\nurl = "https://iam.example.org/"\nclient = "c"\n[issuers.iam]',
            "has the url of",
        ),
    ],
)
def test_mistakes_in_the_table_are_refused_with_their_line(old: str, new: str, words: str) -> None:
    assert old in TEXT
    with pytest.raises(InvalidInput, match=words) as refused:
        parse(TEXT.replace(old, new, 1))
    assert refused.value.line
