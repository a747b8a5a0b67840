"""Entitlements as groups of the policy: the forms of AARC-G002 and AARC-G069, and forged ones."""

from __future__ import annotations

from functools import cache
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.errors import InvalidInput
from pilotage.core.identity.claims import find_claim, read_account, read_capabilities
from pilotage.core.policy import Policy, parse
from pilotage.core.policy.entitlements import Entitlement, read_entitlement

EGI = "urn:mace:egi.eu:group:vo.example.org"
TEXT = """\
[groups.analysis]
share = 1
[groups.production]
share = 1
[groups."vo.example.org"]
share = 1
[users.alice]
groups = ["production", "analysis"]
[issuers.iam]
url = "https://iam.example.org/"
client = "cli"
group_claim = "eduperson_entitlement"
[issuers.iam.groups]
"""


@cache
def policy_with(table: str, setting: str) -> Policy:
    return parse(TEXT.replace('client = "cli"\n', f'client = "cli"\n{setting}\n') + table)


def groups(entitlements: object, table: str = "", setting: str = "") -> tuple[str, ...]:
    policy = policy_with(table, setting)
    claims = {"preferred_username": "alice", "eduperson_entitlement": entitlements}
    return read_account(policy.issuers["iam"], policy, claims).groups


ANY_ROLE = f'"{EGI}#aai.egi.eu" = "analysis"\n'
ONE_ROLE = f'"{EGI}:role=production#aai.egi.eu" = "production"\n'
SUBGROUP = f'"{EGI}:sub:role=member#aai.egi.eu" = "production"\n'


@pytest.mark.parametrize(
    ("entitlement", "table", "found"),
    [
        (f"{EGI}:role=member#aai.egi.eu", ANY_ROLE, ("analysis",)),
        (f"{EGI}#aai.egi.eu", ANY_ROLE, ("analysis",)),
        (f"{EGI}:role=production#aai.egi.eu", ANY_ROLE + ONE_ROLE, ("analysis", "production")),
        (f"{EGI}:role=member#aai.egi.eu", ONE_ROLE, ()),
        (f"{EGI}#aai.egi.eu", ONE_ROLE, ()),
        (f"{EGI}:sub:role=member#aai.egi.eu", SUBGROUP, ("production",)),
        (f"{EGI}:sub:role=member#aai.egi.eu", ANY_ROLE, ()),
        (f"{EGI}:role=member#aai.egi.eu", SUBGROUP, ()),
        ("URN:mace:EGI.eu:group:vo%2Eexample.org#aai.egi.eu", ANY_ROLE, ("analysis",)),
        ("urn:mace:egi.eu:group:VO.example.org#aai.egi.eu", ANY_ROLE, ()),
        # another authority, namespace or none
        (f"{EGI}:role=member#aai.evil.example", ANY_ROLE, ()),
        (f"{EGI}:role=member", ANY_ROLE, ()),
        ("urn:mace:evil.example:group:vo.example.org#aai.egi.eu", ANY_ROLE, ()),
        ("urn:mace:egi.eu:evil:group:vo.example.org#aai.egi.eu", ANY_ROLE, ()),
        (f"{EGI}#aai.egi.eu#aai.evil.example", ANY_ROLE, ()),
        (f"{EGI}?=x#aai.egi.eu", ANY_ROLE, ()),
        # names of groups themselves are nobody's entitlement
        ("urn:mace:egi.eu:group:analysis#aai.egi.eu", "", ()),
        (f"{EGI}#aai.egi.eu", "", ()),
    ],
)
def test_an_entitlement_counts_by_its_namespace_group_role_and_authority(
    entitlement: str, table: str, found: tuple[str, ...]
) -> None:
    assert groups([entitlement], table) == found
    assert groups(entitlement, table) == found, "a text instead of a list"


SOURCE = 'entitlements = ["urn:mace:egi.eu#aai.egi.eu"]'


@pytest.mark.parametrize(
    ("entitlement", "table", "found"),
    [
        (f"{EGI}:role=member#aai.egi.eu", "", ("vo.example.org",)),
        (f"{EGI}:sub#aai.egi.eu", '"/vo.example.org/sub" = "analysis"', ("analysis",)),
        (
            f"{EGI}:role=prod#aai.egi.eu",
            '"/vo.example.org:role=prod" = "production"',
            ("production", "vo.example.org"),
        ),
        (f"{EGI}:role=member#aai.egi.eu", '"/vo.example.org:role=prod" = "production"', ("vo.example.org",)),
        (f"{EGI}:role=member#aai.egi.eu", f'"{EGI}" = "analysis"', ("analysis", "vo.example.org")),
        (f"{EGI}:role=member#aai.evil.example", "", ()),
        (f"{EGI}:role=member", "", ()),
        ("urn:mace:evil.example:group:vo.example.org#aai.egi.eu", "", ()),
        # one component that would read as two
        (
            "urn:mace:egi.eu:group:vo.example.org%2Fsub#aai.egi.eu",
            '"/vo.example.org/sub" = "analysis"',
            (),
        ),
        (
            "urn:mace:egi.eu:group:vo.example.org%3Arole=prod#aai.egi.eu",
            '"/vo.example.org:role=prod" = "production"',
            (),
        ),
    ],
)
def test_the_groups_of_a_trusted_source_count_as_paths(
    entitlement: str, table: str, found: tuple[str, ...]
) -> None:
    assert groups([entitlement], table, SOURCE) == found


@pytest.mark.parametrize(
    "text",
    [
        *("", "urn", "urn:mace:group:x", "urn:group:x:y", "http://mace:egi.eu:group:x"),
        *("urn:mace:egi.eu:group", "urn:mace:egi.eu:group:", f"{EGI}:", f"{EGI}::x", f"{EGI}:role="),
        *(f"{EGI}:role=a:role=b", f"{EGI}:role=a:sub", f"{EGI}#", f"{EGI}:%zz", f"{EGI}:%ff", f"{EGI}:%0a"),
        f"{EGI}:{'x' * 1000}",
    ],
)
def test_damaged_entitlements_are_none(text: str) -> None:
    assert read_entitlement(text) is None


_WORDS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8).filter(
    lambda word: not word.startswith("role=") and word.isprintable()
)
_ENTITLEMENTS = st.builds(
    Entitlement,
    st.sampled_from(["urn:mace:egi.eu", "urn:geant:helmholtz.de:aai"]),
    st.lists(_WORDS, min_size=1, max_size=3).map(tuple),
    st.one_of(st.just(""), _WORDS),
    st.one_of(st.just(""), _WORDS),
)


def _written(entitlement: Entitlement) -> str:
    parts = [entitlement.namespace, "group", *(quote(group, safe="") for group in entitlement.groups)]
    role = [f"role={quote(entitlement.role, safe='')}"] if entitlement.role else []
    authority = f"#{quote(entitlement.authority, safe='')}" if entitlement.authority else ""
    return ":".join([*parts, *role]) + authority


@given(_ENTITLEMENTS)
def test_what_is_written_is_read(entitlement: Entitlement) -> None:
    assert read_entitlement(_written(entitlement)) == entitlement


@given(_ENTITLEMENTS, _ENTITLEMENTS)
def test_two_entitlements_share_a_path_only_if_they_share_a_group(
    one: Entitlement, other: Entitlement
) -> None:
    shared = set(one.paths) & set(other.paths)
    assert not shared or one.groups == other.groups
    assert one.role == other.role or all(":role=" not in path for path in shared)


@given(st.text(max_size=60) | st.text("urn:mace:group#%=ro", max_size=60).map("urn:a:b:group:".__add__))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = read_entitlement(text)
    assert found is None or (found.groups and all(found.groups))
    assert "vo.example.org" not in groups([text], ANY_ROLE) or text.removeprefix("/") == "vo.example.org"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('entitlements = ["egi.eu"]', "is not a source"),
        ('entitlements = ["urn:mace:egi.eu:group:vo"]', "is not a source"),
        ('group_claim = ""\nnew_users = "accept"', "no group"),
    ],
)
def test_mistakes_in_the_settings_are_refused(change: str, words: str) -> None:
    text = TEXT.replace('group_claim = "eduperson_entitlement"', change)
    with pytest.raises(InvalidInput, match=words):
        parse(text)
    with pytest.raises(InvalidInput, match="is not an entitlement"):
        parse(TEXT + '"urn:mace:egi.eu:group:vo:role=" = "analysis"')


# Claims at other places


def test_dots_lead_into_objects_and_names_with_dots_come_first() -> None:
    claims = {
        "wlcg.groups": ["/exp"],
        "wlcg": {"groups": ["/forged"]},
        "resource_access": {"pool.example": {"roles": ["analysis"]}, "other": {"roles": ["production"]}},
        "https://example.org/groups": ["a"],
    }
    assert find_claim(claims, "wlcg.groups") == ["/exp"]
    assert find_claim(claims, "resource_access.pool.example.roles") == ["analysis"]
    assert find_claim(claims, "resource_access.other.roles") == ["production"]
    assert find_claim(claims, "https://example.org/groups") == ["a"]
    for name in ("resource_access.nobody.roles", "wlcg.groups.deeper", "absent", "", ".", "a..b"):
        assert find_claim(claims, name) is None


def test_roles_of_a_client_are_groups() -> None:
    policy = parse(TEXT.replace("eduperson_entitlement", "resource_access.pool.roles"))
    claims = {"preferred_username": "alice", "resource_access": {"pool": {"roles": ["production", "x"]}}}
    assert read_account(policy.issuers["iam"], policy, claims).groups == ("production",)


def test_without_a_claim_the_policy_gives_the_groups() -> None:
    """Tokens of SciTokens name no groups."""
    policy = parse(
        TEXT.replace('"eduperson_entitlement"', '""').replace('client = "cli"', 'audience = ["x"]')
    )
    account = read_account(policy.issuers["iam"], policy, {"preferred_username": "alice"})
    assert account.groups == ("production", "analysis")
    assert read_account(policy.issuers["iam"], policy, {"preferred_username": "eve"}).groups == ()


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ({"scope": ["openid", "compute.read"]}, {"compute.read"}),
        ({"scp": "compute.cancel"}, {"compute.cancel"}),
        ({"scp": ["condor:/WRITE", 7]}, set()),
        ({"scope": "openid", "scp": "compute.read"}, {"compute.read"}),
        ({"scope": "compute.read", "scp": ["openid"]}, {"compute.read"}),
        ({"scope": "compute.read compute.create", "scp": "compute.create"}, {"compute.create"}),
        ({"scope": "compute.modify", "scp": {}}, set()),
        ({"scope": "storage.read:/ openid"}, set()),
        ({"scope": "read:/home write:/home"}, set()),
        ({"scope": "condor:/ADMINISTRATOR"}, set()),
        ({"scope": "openid email wlcg.groups:/exp"}, None),
        ({}, None),
    ],
)
def test_scopes_of_another_service_give_no_rights_here(
    claims: dict[str, object], found: set[str] | None
) -> None:
    read = read_capabilities(claims)
    assert (None if read is None else set(read)) == found
