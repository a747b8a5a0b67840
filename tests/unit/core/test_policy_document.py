"""The policy is taken whole or refused with the line, the reason and what would be right."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from pilotage.core import policy as policies
from pilotage.core.errors import InvalidInput
from pilotage.core.policy import (
    ADMINISTRATOR,
    JOB_SHARING,
    KEYS,
    NORMAL_USER,
    PolicyDifference,
    changes,
    known_properties,
    parse,
    warnings,
)
from pilotage.core.policy.parser import NODE_TAGS, _keys_below, hint_for_key
from pilotage.pilot import node
from pilotage.pilot.isolation.client import TAG

GOOD = """\
[groups.physics]
share = 3000
properties = ["NORMAL_USER", "JOB_SHARING"]

[groups.home]
properties = ["NORMAL_USER", "ADMINISTRATOR"]

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


def test_a_good_policy_is_read_with_its_defaults() -> None:
    policy = parse(GOOD)
    assert policy.groups["physics"].share == 3000
    assert policy.groups["home"].share == 1000
    assert policy.users["bob.b"].groups == ("home",)
    assert policy.matching.cpu_buckets == (500, 5000, 50000, 300000)
    assert policy.matching.rule == "proportional"
    assert policy.director.demand == "matched"
    assert not policy.ces["local"].serves_everybody
    assert [limit.running for limit in policy.matching_limits()] == [5, None]
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


@pytest.mark.parametrize(("kind", "where"), [("local", "on this machine"), ("slurm", "on the nodes")])
def test_a_ce_for_everybody_is_warned_of_with_the_place_of_its_programs(kind: str, where: str) -> None:
    text = policies.initial("ada", "here").replace('type = "local"', f'type = "{kind}"')
    told = warnings(parse(text.replace('owners = "home"', 'owners = "any"')))
    assert [warning for warning in told if f"run programs {where}" in warning], told


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
    "an unknown key unlike any": ("share = 3000", "zzz = 1", ("zzz",), "unknown key zzz", "known here"),
    "a key of another table": ("lease = 600", "share = 600", ("share = 600",), "unknown key share", ""),
    "a wrong type": (
        "share = 3000",
        'share = "3000"',
        ("share",),
        "groups.physics.share: must be a number",
        "",
    ),
    "a wrong type in the second entry": (
        '[users."bob.b"]\ngroups = ["home"]',
        '[users."bob.b"]\ngroups = "home"',
        ("bob.b", "groups"),
        "users.bob.b.groups: must be a list",
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
    "a broken document": ("[users.alice]", "[users.alice", ("users.alice",), "not valid TOML", ""),
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
    "a proxy without a port": (
        "lease = 600",
        'lease = 600\nproxy = "http://proxy"',
        ("proxy",),
        "http://HOST:PORT",
        "password",
    ),
    "a proxy with a password": (
        "lease = 600",
        'lease = 600\nproxy = "http://u:p@proxy:3128"',
        ("proxy",),
        "http://HOST:PORT",
        "password",
    ),
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
    "an unknown type of CE": ("lease = 600", 'type = "slrum"', ("type",), "invalid enum value", ""),
    "an unknown attribute of a limit": (
        'attribute = "job_type"',
        'attribute = "jobtype"',
        ('"jobtype"',),
        "unknown attribute jobtype",
        "job_type",
    ),
    "a limit of nothing": ("delay = 1.5", "burst = 2", ('"job_type"',), "a limit needs running", ""),
    "a limit below nothing": ("running = 5", "running = -5", ("[[limits]]",), "a limit needs running", ""),
    "a delay that is no number": ("delay = 1.5", "delay = nan", ("[[limits]]",), "a limit needs running", ""),
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
        "matching.cpu_buckets must be a list of increasing",
        "",
    ),
    "no buckets": (
        "[platforms]",
        "[matching]\nmemory_buckets = []\n[platforms]",
        ("memory_buckets",),
        "matching.memory_buckets must be a list of increasing",
        "",
    ),
    "an unknown rule": (
        "[platforms]",
        '[matching]\nrule = "fair"\n[platforms]',
        ('"fair"',),
        "matching.rule: invalid enum value",
        "",
    ),
    "the former name of a rule": (
        "[platforms]",
        '[matching]\nrule = "document"\n[platforms]',
        ('"document"',),
        "matching.rule: invalid enum value",
        '"document" is called "dirac" now',
    ),
    "the former name of a demand": (
        "[platforms]",
        '[director]\ndemand = "document"\n[platforms]',
        ('"document"',),
        "director.demand: invalid enum value",
        '"document" is called "dirac" now',
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
def test_a_bad_policy_is_refused_with_line_reason_and_hint(what: str) -> None:
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
    assert 'The cure is ces.local.isolation = "require"' in said


def test_shares_whose_sum_is_no_number_are_refused() -> None:
    text = GOOD.replace("share = 3000", "share = 1e308").replace(
        "[groups.home]", "[groups.home]\nshare = 1e308"
    )
    with pytest.raises(InvalidInput, match="sum of all shares is too large"):
        parse(text)


def test_shares_that_are_all_nothing_are_refused() -> None:
    text = GOOD.replace("share = 3000", "share = 0").replace("[groups.home]", "[groups.home]\nshare = 0")
    with pytest.raises(InvalidInput, match="all shares are 0"):
        parse(text)


CORRECTED = (
    GOOD
    + """
[correction]
correctors = ["WMSHistory"]
period = 30

[correction.WMSHistory.Groups]
max_global_correction_factor = 3

[correction.WMSHistory.Groups.slices.Week]
time_span = 604800
weight = 80
max_correction = 2

[correction.WMSHistory.Groups.slices.Hour]
time_span = 3600
weight = 20
max_correction = 5

[correction.WMSHistory.Home]
group = "home"
form = "integral"
unit = "cores"
gain = 0.5

[correction.WMSHistory.Home.slices.Day]
time_span = 86400

[accounting]
history = 2592000
"""
)

# (what it is, text to replace, text in its place, line of this part, what the message says)
BAD_CORRECTION = {
    "weights that sum to 0": (
        "weight = 80",
        "weight = 0",
        ("[correction.WMSHistory.Groups]",),
        "the weights of its slices add up to 0",
    ),
    "an instance without slices": (
        "[correction.WMSHistory.Home.slices.Day]\ntime_span = 86400\n",
        "",
        ("[correction.WMSHistory.Home]",),
        "Home: there is no slice",
    ),
    "a weight below nothing": (
        "weight = 80",
        "weight = -80",
        ("weight = -80",),
        "Groups, Week: weight must be",
    ),
    "a weight that is no number": ("weight = 80", "weight = nan", ("weight = nan",), "Groups, Week: weight"),
    "an endless weight": ("weight = 80", "weight = inf", ("weight = inf",), "Groups, Week: weight must be"),
    "the owners of a sharing group": (
        'group = "home"\nform',
        'group = "physics"\nform',
        ("[correction.WMSHistory.Home]",),
        "physics has JOB_SHARING",
    ),
    "the owners of no group": (
        'group = "home"\nform',
        'group = "hone"\nform',
        ('group = "hone"',),
        "there is no group hone",
    ),
    "longer than the history": (
        "time_span = 604800",
        "time_span = 2592001",
        ("time_span = 2592001",),
        "Groups, Week: time_span must be between 60 and accounting.history (2.592e+06)",
    ),
    "shorter than use is known": (
        "time_span = 3600",
        "time_span = 59",
        ("time_span = 59",),
        "Groups, Hour: time_span",
    ),
    "a span that is no number": (
        "time_span = 3600",
        "time_span = nan",
        ("time_span = nan",),
        "Groups, Hour: time_span",
    ),
    "a clamp below 1": (
        "max_correction = 5",
        "max_correction = 0.5",
        ("max_correction = 0.5",),
        "Hour: max_correction",
    ),
    "no clamp": (
        "max_correction = 5",
        "max_correction = inf",
        ("max_correction = inf",),
        "Hour: max_correction",
    ),
    "a global clamp below 1": (
        "max_global_correction_factor = 3",
        "max_global_correction_factor = 0.9",
        ("max_global_correction_factor",),
        "Groups: max_global_correction_factor must be",
    ),
    "a global clamp that is no number": (
        "max_global_correction_factor = 3",
        "max_global_correction_factor = nan",
        ("max_global_correction_factor",),
        "Groups: max_global_correction_factor must be",
    ),
    "a bound that lets nothing through": (
        "max_global_correction_factor = 3",
        "max_global_correction_factor = 1",
        ("max_global_correction_factor",),
        "with 1 nothing is corrected",
    ),
    "a gain that nothing reads": (
        'form = "integral"',
        'form = "ratio"',
        ("gain = 0.5",),
        "gain is read with",
    ),
    "bounds of slices that let nothing through": (
        "time_span = 86400",
        "time_span = 86400\nmax_correction = 1",
        ("[correction.WMSHistory.Home]",),
        "max_correction is 1 in all slices",
    ),
    "a gain of nothing": ("gain = 0.5", "gain = 0", ("gain = 0",), "Home: gain must be"),
    "an endless gain": ("gain = 0.5", "gain = inf", ("gain = inf",), "Home: gain must be"),
    "an unknown form": ('form = "integral"', 'form = "pid"', ('form = "pid"',), "invalid enum value 'pid'"),
    "an unknown unit": (
        'unit = "cores"',
        'unit = "euros"',
        ('unit = "euros"',),
        "invalid enum value 'euros'",
    ),
    "an unknown corrector": (
        '["WMSHistory"]',
        '["WMSHistory", "Karma"]',
        ("Karma",),
        "there is no corrector Karma",
    ),
    "a corrector twice": (
        '["WMSHistory"]',
        '["WMSHistory", "WMSHistory"]',
        ("correctors =",),
        "names a corrector twice",
    ),
    "instances that nothing starts": (
        'correctors = ["WMSHistory"]\n',
        "",
        ("[correction.WMSHistory.Groups]",),
        "WMSHistory has instances, but correction.correctors does not name it",
    ),
    "no period": ("period = 30", "period = 0", ("period = 0",), "correction.period must be"),
    "a period that is no number": (
        "period = 30",
        "period = nan",
        ("period = nan",),
        "correction.period must",
    ),
    "a short history": (
        "history = 2592000",
        "history = 3600",
        ("history = 3600",),
        "accounting.history must be",
    ),
    "an unknown key of the correction": ("period = 30", "periode = 30", ("periode",), "unknown key periode"),
    "an unknown key of an instance": ("gain = 0.5", "gian = 0.5", ("gian",), "unknown key gian"),
    "an unknown key of a slice": ("weight = 20", "wieght = 20", ("wieght",), "unknown key wieght"),
    "an unknown key of the last slice": (
        "time_span = 86400",
        "time_span = 86400\nTimeSpan = 5",
        ("TimeSpan",),
        "unknown key TimeSpan",
    ),
    "an unknown key of the accounting": ("history = 2592000", "keep = 1", ("keep",), "unknown key keep"),
    "a text for a number deep inside": (
        "time_span = 3600",
        'time_span = "1h"',
        ('time_span = "1h"',),
        "correction.WMSHistory.Groups.slices.Hour.time_span: must be",
    ),
    "a number for a table deep inside": (
        "[correction.WMSHistory.Home.slices.Day]\ntime_span = 86400\n",
        "[correction.WMSHistory.Home.slices]\nDay = 86400\n",
        ("Day = 86400",),
        "correction.WMSHistory.Home.slices.Day: must be",
    ),
}


def test_the_correction_is_read() -> None:
    correction = parse(CORRECTED).correction
    home = cast(Any, correction).WMSHistory["Home"]
    assert (home.form, home.unit, home.gain, home.slices["Day"].weight) == ("integral", "cores", 0.5, 1)
    assert cast(Any, correction).WMSHistory["Groups"].slices["Hour"].max_correction == 5


@pytest.mark.parametrize("what", BAD_CORRECTION)
def test_a_bad_correction_is_refused_with_its_line(what: str) -> None:
    old, new, place, message = BAD_CORRECTION[what]
    assert old in CORRECTED
    text = CORRECTED.replace(old, new, 1)
    if what == "weights that sum to 0":
        text = text.replace("weight = 20", "weight = 0")
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    assert message in refused.value.message
    assert refused.value.line == line_of(text, *place), str(refused.value)


def test_a_corrector_that_is_started_without_an_instance_is_refused() -> None:
    text = GOOD + '\n[correction]\ncorrectors = ["WMSHistory"]\n'
    with pytest.raises(InvalidInput, match="names WMSHistory, which has no instance") as refused:
        parse(text)
    assert refused.value.line == line_of(text, "correctors")


@pytest.mark.parametrize(
    ("tags", "required", "told"),
    [
        ((), ("gold",), "gold, but tags"),
        (("gold",), ("gold", "ssd", "big"), "big, ssd, but tags"),
        (("gold", "ssd"), ("gold",), ""),
        ((), ("GPU", "apptainer", "userns"), ""),
    ],
)
def test_a_ce_that_requires_tags_which_nothing_there_offers_is_told(
    tags: tuple[str, ...], required: tuple[str, ...], told: str
) -> None:
    lists = f"tags = {list(tags)}\nrequired_tags = {list(required)}"
    said = warnings(parse(GOOD.replace("lease = 600", lists)))
    assert len(said) == bool(told)
    assert all(f"ces.local: required_tags has {told} has not" in one for one in said)


def test_the_tags_that_nodes_have_by_themselves_are_those_of_the_pilot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node.shutil, "which", lambda _: "/bin/true")  # type: ignore[attr-defined]
    monkeypatch.setattr(node, "user_namespaces_work", lambda: True)
    assert {*node.detect_tags(True), TAG} == NODE_TAGS


def test_a_clamp_that_never_binds_is_told() -> None:
    said = warnings(parse(CORRECTED))
    assert len(said) == 2
    assert "Groups: max_global_correction_factor = 3 never binds" in said[0]


def test_values_that_nothing_reads_are_warned_of() -> None:
    text = GOOD.replace('"JOB_SHARING"]', '"JOB_SHARING", "GENERIC_PILOT"]\nvo = "lab"')
    text = text.replace("[users.alice]\n", '[users.alice]\nsubject = "/CN=Alice"\n')
    assert [one.split(" is stored")[0] for one in warnings(parse(text))] == [
        "property GENERIC_PILOT (physics)"
    ]
    pilots = 'properties = ["GENERIC_PILOT"]\n'
    many = GOOD + "".join(f'[groups.g{n}]\n{pilots}[users.u{n}]\ngroups = ["g{n}"]\n' for n in range(50))
    assert warnings(parse(many)) == [
        "property GENERIC_PILOT (g0, g1, g2 and 47 more) is stored for the director of batch systems, but has no"
        " effect yet"
    ]


def test_a_policy_that_nobody_could_change_is_warned_of() -> None:
    [said] = warnings(parse(GOOD.replace('"ADMINISTRATOR"', '"JOB_ADMINISTRATOR"')))
    assert "nobody could change this policy any more" in said
    # The property of a group without users helps nobody.
    [said, idle] = warnings(
        parse(
            GOOD.replace("[groups.home]", "[groups.other]\nproperties = []\n[groups.home]")
            .replace('properties = ["NORMAL_USER", "ADMINISTRATOR"]', "")
            .replace("properties = []", 'properties = ["ADMINISTRATOR"]')
        )
    )
    assert "nobody could change this policy any more" in said
    assert idle == "groups.other has no users"
    text = GOOD.replace("[groups.home]", "[groups.home]\nshare = 0")
    assert any("groups.home: with share 0" in one for one in warnings(parse(text)))


def test_the_properties_of_the_rule_are_known() -> None:
    dirac = GOOD + '\n[matching]\nrule = "dirac"\n'
    assert any(".833" in one for one in known_properties(parse(dirac)))
    assert len(known_properties(parse(GOOD))) == 2


def test_a_document_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nested deeper than 50"):
        parse("a = " + "[" * 100_000)
    with pytest.raises(InvalidInput, match="more than 20 parts"):
        parse(".".join("a" * 5000) + " = 1")


@pytest.mark.parametrize("owner", ["ada", 'o"dd\\one.x', "Zoë", "a\tb"])
def test_the_policy_to_begin_with_is_valid_with_every_setting_switched_on(owner: str) -> None:
    text = policies.annotated(owner, "node 1")
    policy = parse(text)
    assert ADMINISTRATOR in policy.properties(owner, "home")
    assert warnings(policy) == []
    switched_on = "\n".join(line[1:] if re.match(r"#\S", line) else line for line in text.splitlines())
    full = parse(switched_on)
    groups = cast(Any, policy.correction).WMSHistory["groups"]
    assert (groups.form, groups.slices["day"].time_span) == ("integral", 86400)
    assert cast(Any, full.correction).WMSHistory["analysts"].group == "analysis"
    assert len(full.limits) == 1
    # Each group of lines is valid by itself too.
    for block in re.findall(r"(?:^#\S.*\n)+", text, re.MULTILINE):
        if not re.search("analysis|production|correct", block):
            parse(text.replace(block, re.sub("^#", "", block, flags=re.MULTILINE)))


def test_differences_of_policies_are_listed_by_key() -> None:
    new = GOOD.replace("share = 3000", "share = 2000").replace(
        "[sites.there]\nbanned = true", "[sites.there]"
    )
    new = new.replace('value = "alice"\nrunning = 5', 'value = "alice"\nrunning = 6')
    new = new.replace("[sites.here]\n", "[sites.here]\nbanned = false\n[sites.'new.one']\n")
    limit = {"attribute": "owner", "value": "alice"}
    assert changes(GOOD, new) == [
        PolicyDifference("groups.physics.share", "changed", 3000, 2000),
        PolicyDifference("limits", "removed", {**limit, "running": 5}),
        PolicyDifference("limits", "added", None, {**limit, "running": 6}),
        PolicyDifference('sites."new.one"', "added", None, {}),
        PolicyDifference("sites.here.banned", "added", None, False),
        PolicyDifference("sites.there.banned", "removed", True),
    ]
    assert changes(GOOD, "# only words\n" + GOOD) == []
    assert changes("a = 1", "a = 1.0") == [PolicyDifference("a", "changed", 1, 1.0)]
    assert changes("a = 1", "a.b = 1") == [
        PolicyDifference("a", "removed", 1),
        PolicyDifference("a.b", "added", None, 1),
    ]
    with pytest.raises(InvalidInput, match="not valid TOML"):
        changes(GOOD, "x = ")


# --- retention

DAY = 86400.0
PEOPLE = "[groups.g]\n[users.u]\ngroups = ['g']\n"


def test_attempts_stay_for_as_long_as_accounting_and_jobs_need_them() -> None:
    assert parse(PEOPLE).attempt_retention() == 2 * 365 * DAY
    assert parse(f"{PEOPLE}[accounting]\nhistory = {900 * DAY}\n").attempt_retention() == 900 * DAY
    assert parse(f"{PEOPLE}[retention]\njobs = {1000 * DAY}\n").attempt_retention() == 1000 * DAY
    said = f"{PEOPLE}[accounting]\nhistory = {30 * DAY}\n[retention]\njobs = {DAY}\nattempts = {40 * DAY}\n"
    assert parse(said).attempt_retention() == 40 * DAY


def test_pilots_stay_for_as_long_as_one_may_live() -> None:
    place = '[sites.s]\n[ces.c]\nsite = "s"\n'
    assert parse(PEOPLE).pilot_retention() == 90 * DAY
    assert parse(f"{PEOPLE}{place}[retention]\npilots = 0\n").pilot_retention() == 7 * DAY
    assert parse(f"{PEOPLE}{place}wall = {100 * DAY}\n").pilot_retention() == 100 * DAY


@pytest.mark.parametrize(
    ("retention", "line", "words"),
    [
        ("attempts = 3600", 7, "retention.attempts must be at least accounting.history (864000): accounting"),
        (
            "jobs = 1e9\nattempts = 9e8",
            8,
            "retention.attempts must be at least retention.jobs (1e+09): ended jobs",
        ),
        ("jobs = -1", 7, "retention.jobs must be a finite number, at least 0"),
        ("events = inf", 7, "retention.events must be a finite number, at least 0"),
        ("hot = nan", 7, "retention.hot must be a finite number, at least 0"),
        ("attempts = nan", 7, "retention.attempts must be a finite number, at least 0"),
        ("result = 5", 7, "unknown key result"),
        ("jobs = '1y'", 7, "retention.jobs: must be a number, not a text"),
    ],
)
def test_an_invalid_retention_is_refused_with_its_line(retention: str, line: int, words: str) -> None:
    text = f"{PEOPLE}[accounting]\nhistory = 864000\n[retention]\n{retention}\n"
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    assert words in str(refused.value)
    assert refused.value.line == line


@pytest.mark.parametrize("path", ["data", "/", "/data/..", "/proc", "//:rw", ""])
def test_a_path_that_cannot_be_made_visible_is_refused(path: str) -> None:
    text = f'[groups.g]\n[users.u]\ngroups = ["g"]\n[sites.s]\n[ces.c]\nsite = "s"\nvisible = ["{path}"]\n'
    with pytest.raises(InvalidInput, match="visible") as raised:
        parse(text)
    assert raised.value.line == 7


def test_administrators_of_a_site_must_be_users() -> None:
    text = '[groups.g]\n[users.u]\ngroups = ["g"]\n[sites.s]\nadministrators = ["u", "nobody"]\n'
    with pytest.raises(InvalidInput, match="no user nobody"):
        parse(text)


@pytest.mark.parametrize("key", sorted({key.rpartition(".")[2] for key in KEYS} - {"*"}))
@pytest.mark.parametrize("table", [["sites", "here"], ["ces", "local"], ["jobs"], []], ids=".".join)
def test_a_hint_never_names_the_key_that_was_refused(key: str, table: list[str]) -> None:
    """A key of another table: the hint names the table."""
    hint = hint_for_key(key, table)
    assert hint
    known_here = key in _keys_below(table)
    assert known_here or f"did you mean {key}?" not in hint


def test_a_key_of_storage_places_in_another_table_is_sent_there() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse("[sites.here]\npatience = 60\n")
    assert refused.value.hint == "it belongs to [storage.NAME]"
