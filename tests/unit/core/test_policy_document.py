"""The policy is taken whole or refused with the line, the reason and what would be right."""

from __future__ import annotations

import pytest

from pilotage.core import policy as policies
from pilotage.core.errors import InvalidInput
from pilotage.core.policy import ADMINISTRATOR, JOB_SHARING, KEYS, NORMAL_USER, parse, warnings

GOOD = """\
[groups.physics]
share = 3000
properties = ["NORMAL_USER", "JOB_SHARING"]

[groups.home]

[users.alice]
groups = ["physics", "home"]

[users."bob.b"]
groups = ["home"]

[sites.here]
[sites.there]
banned = true

[ces.local]
site = "here"
lease = 600

[ces.other]
site = "there"

[platforms]
el9 = ["el8"]

[[limits]]
attribute = "owner"
value = "alice"
running = 5

[[limits]]
attribute = "job_type"
value = "Merge"
site = "here"
delay = 1.5
"""


def line_of(text: str, *parts: str) -> int:
    """The number of the first line with the last part, below that with the ones before."""
    lines, place = text.splitlines(), 0
    for part in parts:
        place = next(number for number in range(place, len(lines)) if part in lines[number])
    return place + 1


def test_a_good_one_is_read_with_its_defaults() -> None:
    policy = parse(GOOD)
    assert policy.groups["physics"].share == 3000
    assert policy.groups["home"].share == 1000
    assert policy.users["bob.b"].groups == ("home",)
    assert policy.matching.cpu_buckets == (500, 5000, 50000, 300000)
    assert policy.matching.rule == "document"
    assert policy.ces["local"].owners == "home"
    assert [limit.running for limit in policy.limit_list()] == [5, None]
    assert warnings(policy) == []


def test_what_a_user_may_do() -> None:
    policy = parse(GOOD)
    assert policy.properties("alice", "physics") == {NORMAL_USER, JOB_SHARING}
    assert policy.properties("bob.b", "physics") == frozenset()
    assert policy.properties("nobody", "home") == frozenset()
    assert policy.entity("alice", "physics") == ("", "physics")
    assert policy.entity("alice", "home") == ("alice", "home")
    assert policy.shares() == {"physics": 3000, "home": 1000}
    assert policy.admits("alice", "physics")
    assert policy.admits("nobody", "physics"), "the jobs of a shared group are the group's"
    assert not policy.admits("nobody", "home")
    assert not policy.admits("alice", "vanished")
    assert policy.compatible("el9") == {"el9", "el8"}
    assert policy.compatible("el8") == {"el8"}


def test_a_fresh_home_has_an_administrator_and_is_good_whatever_the_names() -> None:
    owner, site = 'o"dd\\one.x', "node 1"
    policy = parse(policies.initial(owner, site))
    assert ADMINISTRATOR in policy.properties(owner, "home")
    assert policy.ces["local"].site == site
    assert warnings(policy) == []


# (what it is, text to replace, text in its place, line of this part, what the message says, what the hint says)
BAD = {
    "a typo in a key": (
        "share = 3000",
        "sahre = 3000",
        ("sahre",),
        "unknown key sahre",
        "did you mean share?",
    ),
    "a typo in a table": ("[platforms]", "[platfroms]", ("platfroms",), "unknown key", "platforms"),
    "an unknown key unlike any": ("share = 3000", "zzz = 1", ("zzz",), "unknown key zzz", "known keys"),
    "a key of another table": ("lease = 600", "share = 600", ("share = 600",), "unknown key share", ""),
    "a wrong type": (
        "share = 3000",
        'share = "3000"',
        ("share",),
        "groups.physics.share: Expected `float`",
        "",
    ),
    "a wrong type in the second entry": (
        '[users."bob.b"]\ngroups = ["home"]',
        '[users."bob.b"]\ngroups = "home"',
        ("bob.b", "groups"),
        "users.bob.b.groups: Expected `array`",
        "",
    ),
    "no groups": ('groups = ["home"]', "groups = []", ("bob.b", "groups"), "user bob.b is in no group", ""),
    "a missing group": (
        'groups = ["home"]',
        'groups = ["hone"]',
        ("bob.b", "groups"),
        "user bob.b: there is no group hone",
        "there are: home, physics",
    ),
    "an unknown property": (
        "JOB_SHARING",
        "JOB_SHARE",
        ("JOB_SHARE",),
        "unknown property JOB_SHARE",
        "JOB_SHARING",
    ),
    "a negative share": ("share = 3000", "share = -1", ("share",), "share of group physics", ""),
    "a share that is no number": ("share = 3000", "share = nan", ("share",), "share of group physics", ""),
    "an infinite share": ("share = 3000", "share = inf", ("share",), "share of group physics", ""),
    "a bad share of the second group": (
        "[groups.home]",
        "[groups.home]\nshare = -1",
        ("groups.home", "share"),
        "share of group home",
        "",
    ),
    "a duplicate table": ("[sites.there]", "[sites.here]", ("sites.there",), "twice", ""),
    "a broken document": ("[users.alice]", "[users.alice", ("users.alice",), "not TOML", ""),
    "an unknown site of a CE": (
        'site = "there"',
        'site = "their"',
        ("ces.other", "site"),
        "CE other: there is no site their",
        "there are: here, there",
    ),
    "a lease shorter than three heartbeats": (
        "lease = 600",
        "lease = 14",
        ("lease",),
        "three heartbeats",
        "",
    ),
    "a lease of nothing": ("lease = 600", "lease = 0", ("lease",), "lease must be", ""),
    "an endless lease": ("lease = 600", "lease = inf", ("lease",), "lease must be", ""),
    "a CPU power that is no number": (
        "lease = 600",
        "cpu_power = nan",
        ("cpu_power",),
        "cpu_power must be",
        "",
    ),
    "an idle time that is no number": ("lease = 600", "idle = nan", ("idle",), "idle must be", ""),
    "fewer than no cores": ("lease = 600", "processors = -1", ("processors",), "processors must be", ""),
    "an unknown type of CE": ("lease = 600", 'type = "slrum"', ("type",), "Invalid enum value", ""),
    "an unknown attribute of a limit": (
        'attribute = "job_type"',
        'attribute = "jobtype"',
        ('"jobtype"',),
        "unknown attribute jobtype",
        "job_type",
    ),
    "a limit of nothing": ("delay = 1.5", "burst = 2", ('"job_type"',), "running or delay", ""),
    "a limit below nothing": ("running = 5", "running = -5", ("[[limits]]",), "running or delay", ""),
    "a delay that is no number": ("delay = 1.5", "delay = nan", ("[[limits]]",), "running or delay", ""),
    "a limit at an unknown site": (
        'site = "here"\ndelay',
        'site = "hree"\ndelay',
        ('"hree"',),
        "limits: there is no site hree",
        "here, there",
    ),
    "a limit at an unknown CE": (
        'site = "here"\ndelay',
        'ce = "hree"\ndelay',
        ('"hree"',),
        "limits: there is no CE hree",
        "local, other",
    ),
    "buckets that fall": (
        "[platforms]",
        "[matching]\ncpu_buckets = [5000, 500]\n[platforms]",
        ("cpu_buckets",),
        "matching.cpu_buckets must rise",
        "",
    ),
    "no buckets": (
        "[platforms]",
        "[matching]\nmemory_buckets = []\n[platforms]",
        ("memory_buckets",),
        "matching.memory_buckets must rise",
        "",
    ),
    "an unknown rule": (
        "[platforms]",
        '[matching]\nrule = "fair"\n[platforms]',
        ('"fair"',),
        "matching.rule: Invalid enum value",
        "",
    ),
    "a retry delay that is no number": (
        "[platforms]",
        "[jobs]\nretry_delay = nan\n[platforms]",
        ("retry_delay",),
        "jobs.retry_delay must be",
        "",
    ),
    "reschedules below nothing": (
        "[platforms]",
        "[jobs]\nmax_reschedules = -1\n[platforms]",
        ("max_reschedules",),
        "jobs.max_reschedules must be",
        "",
    ),
    "offers that lapse at once": (
        "[platforms]",
        "[jobs]\noffer_timeout = 0\n[platforms]",
        ("offer_timeout",),
        "jobs.offer_timeout must be",
        "",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_one_is_refused_with_line_reason_and_hint(what: str) -> None:
    old, new, place, message, hint = BAD[what]
    assert old in GOOD
    text = GOOD.replace(old, new, 1) if "second" not in what else new.join(GOOD.rsplit(old, 1))
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    error = refused.value
    assert message in error.message
    assert hint in error.hint
    # TOML itself names the line; "[sites.here]" declared again stands where "[sites.there]" was.
    expected = line_of(GOOD, *place) if what == "a duplicate table" else line_of(text, *place)
    if what in ("a limit of nothing", "a delay that is no number"):
        expected = [number for number, line in enumerate(text.splitlines(), 1) if line == "[[limits]]"][1]
    assert error.line == expected, (error.line, expected, str(error))
    assert f"line {error.line}" in str(error)


def test_a_document_without_groups_is_refused() -> None:
    with pytest.raises(InvalidInput, match="groups"):
        parse("")


def test_every_user_on_this_machine_is_warned_of() -> None:
    text = GOOD.replace("lease = 600", 'owners = "any"')
    [said] = warnings(parse(text))
    assert "ces.local" in said
    assert "account of the server" in said


def test_shares_that_are_all_nothing_are_refused() -> None:
    text = GOOD.replace("share = 3000", "share = 0").replace("[groups.home]", "[groups.home]\nshare = 0")
    with pytest.raises(InvalidInput, match="all shares are 0"):
        parse(text)


def test_every_key_has_a_meaning_and_every_meaning_a_key() -> None:
    shown = policies.reference_markdown()
    assert all(f"`{key}`" in shown for key in KEYS)
    assert shown.count("\n| `") == len(KEYS)
