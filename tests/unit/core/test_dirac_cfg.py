"""A DIRAC configuration becomes a valid policy, and nothing of it is passed over silently."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import GENERIC_PILOT, JOB_SHARING, NORMAL_USER, parse
from pilotage.core.policy.dirac_cfg import import_policy
from pilotage.core.policy.model import PRODUCTION_MANAGEMENT


def slices() -> str:
    return """\
WeekSlice
{
TimeSpan = 604800
Weight = 80
MaxCorrection = 2
}
HourSlice
{
TimeSpan = 3600
Weight = 20
MaxCorrection = 5
}
"""


DOCUMENT = f"""\
ShareCorrections
{{
ShareCorrectorsToStart = WMSHistory
WMSHistory
{{
GroupsInstance
{{
MaxGlobalCorrectionFactor = 3
{slices()}}}
lhcb_userInstance
{{
Group = lhcb_user
MaxGlobalCorrectionFactor = 3
{slices()}}}
}}
}}
"""
"""The example of the priority schema."""

REGISTRY = """\
# Who there is
Registry
{
  DefaultGroup = user
  Users
  {
    alice
    {
      DN = /C=CH/O=Lab, Geneva/CN=Alice, /C=CH/CN=second
      Email = a@x
    }
    bob
    {
      DN = "/C=CH/CN=Bob"
    }
    idle
    {
      DN = /C=CH/CN=Idle
    }
    left
    {
      DN = /C=CH/CN=Left
      Suspended = lhcb
    }
  }
  Groups
  {
    prod
    {
      JobShare = 4000
      Users = alice
      Users += left
      Properties = JobSharing, ProductionManagement, Mystery
      Properties += GenericPilot
      VO = lhcb
    }
    user
    {
      Users = bob, alice, ghost
      Properties = NormalUser
    }
  }
}
"""

SITES = """\
Resources
{
  StorageElements
  {
    CERN-USER
    {
      BackendType = Eos
    }
  }
  Sites
  {
    LCG
    {
      LCG.CERN.ch
      {
        CE = ce01.cern.ch, ce02.cern.ch
        CEs
        {
          ce01.cern.ch
          {
            CEType = HTCondorCE
            Queues
            {
              default
              {
                maxCPUTime = 2880
              }
            }
          }
        }
      }
    }
    DIRAC
    {
      DIRAC.home.ch
      {
        CEs
        {
          local
          {
            CEType = Local
            MaxRAM = 16000
            SI00 = 2500
            Queues
            {
              short
              {
                maxCPUTime = 60
                NumberOfProcessors = 4
                Tag = GPU, MultiProcessor
              }
              long
              {
                maxCPUTime = 6000
                RequiredTag = GPU
              }
            }
          }
        }
      }
    }
  }
}
"""


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.split("\n"), 1) if part in line)


def refused(text: str, section: str = "") -> InvalidInput:
    with pytest.raises(InvalidInput) as error:
        import_policy(text, section=section)
    return error.value


def corrections(name: str, share: int = 3) -> str:
    return f"""\
{name}
{{
  ShareCorrections
  {{
    ShareCorrectorsToStart = WMSHistory
    WMSHistory
    {{
      All
      {{
        MaxGlobalCorrection = {share}
        Week
        {{
        }}
      }}
    }}
  }}
}}
"""


def test_the_documents_example_loads_as_it_is_and_gives_its_two_instances() -> None:
    made = import_policy(DOCUMENT)
    correction = made.policy.correction
    assert correction.correctors == ("WMSHistory",)
    assert list(cast(Any, correction).WMSHistory) == ["GroupsInstance", "lhcb_userInstance"]
    groups, users = cast(Any, correction).WMSHistory.values()
    assert (groups.group, users.group) == ("", "lhcb_user")
    for instance in (groups, users):
        assert instance.max_global_correction_factor == 3
        parts = {
            name: (one.time_span, one.weight, one.max_correction) for name, one in instance.slices.items()
        }
        assert parts == {"WeekSlice": (604800, 80, 2), "HourSlice": (3600, 20, 5)}
    assert (made.policy.matching.rule, made.policy.director.demand) == ("dirac", "dirac")
    assert made.omissions == ()
    assert made.section == "ShareCorrections"
    # The group that it names is added, and told.
    assert made.policy.shares() == {"lhcb_user": 1000}
    assert any("lhcb_user" in note and "added" in note for note in made.notes)
    assert sum("MaxGlobalCorrectionFactor" in note for note in made.notes) == 2
    assert parse(made.text) == made.policy


def test_groups_and_users() -> None:
    made = import_policy(REGISTRY)
    prod, user = made.policy.groups["prod"], made.policy.groups["user"]
    assert (prod.share, prod.vo, prod.properties) == (
        4000,
        "lhcb",
        (JOB_SHARING, PRODUCTION_MANAGEMENT, GENERIC_PILOT),
    )
    assert (user.share, user.vo, user.properties) == (1000, "", (NORMAL_USER,))
    assert made.policy.users["alice"].groups == ("user", "prod"), "the default group comes first"
    assert made.policy.users["alice"].subject == "/C=CH/O=Lab, Geneva/CN=Alice"
    assert made.policy.users["bob"].subject == "/C=CH/CN=Bob"
    assert set(made.policy.users) == {"alice", "bob"}
    told = {(one.path, one.value): (one.line, one.reason) for one in made.omissions}
    expected = {
        ("Registry/Users/alice/DN", "/C=CH/CN=second"): ("DN = /C=CH/O", "one subject"),
        ("Registry/Users/alice/Email", "a@x"): ("Email", "unknown option"),
        ("Registry/Users/idle", "1 option"): ("    idle", "no group"),
        ("Registry/Users/left", "2 options"): ("    left", "suspended in lhcb"),
        ("Registry/Groups/prod/Properties", "Mystery"): ("Mystery", "unknown property"),
        ("Registry/Groups/user/Users", "ghost"): ("ghost", "not in Registry/Users"),
    }
    assert set(told) == set(expected)
    for what, (part, reason) in expected.items():
        assert told[what][0] == line_of(REGISTRY, part), what
        assert reason in told[what][1]


def test_sites_are_taken_and_ces_of_other_types_stay_as_comments() -> None:
    text = REGISTRY + SITES
    made = import_policy(text)
    assert list(made.policy.sites) == ["LCG.CERN.ch", "DIRAC.home.ch"]
    short, long = made.policy.ces["local-short"], made.policy.ces["local-long"]
    assert (short.site, short.type, short.serves_everybody) == ("DIRAC.home.ch", "local", False)
    assert (short.processors, short.memory, short.wall, short.tags) == (
        4,
        16000,
        3600,
        ("GPU", "MultiProcessor"),
    )
    assert (long.wall, long.cpu_power, long.required_tags) == (360000, 10, ("GPU",))
    assert sum("server's own machine" in note for note in made.notes) == 2
    comments = [line for line in made.text.splitlines() if line.startswith("#")]
    assert any("ce01.cern.ch" in line and "HTCondorCE is not supported yet" in line for line in comments)
    assert "#   Queues/default/maxCPUTime = 2880" in comments
    told = {one.path: one for one in made.omissions}
    assert "HTCondorCE" in told["Resources/Sites/LCG/LCG.CERN.ch/CEs/ce01.cern.ch"].reason
    assert told["Resources/Sites/LCG/LCG.CERN.ch/CE"].value == "ce02.cern.ch"
    assert told["Resources/StorageElements"].line == line_of(text, "StorageElements")


@pytest.mark.parametrize("kind", ["CEType = Slurm", "CEType = Local\nBatchSystem = Condor", "OS = el9"])
def test_no_other_ce_may_start_pilots_here(kind: str) -> None:
    made = import_policy(REGISTRY + SITES.replace("CEType = Local", kind))
    assert made.policy.ces == {}
    assert any("CEs/local" in one.path for one in made.omissions)


@pytest.mark.parametrize(
    "place",
    [
        "Operations",
        "Operations\n{\nDefaults",
        "Operations\n{\nScheduling",
        "Operations\n{\nlhcb\n{\nProduction",
    ],
)
def test_corrections_are_found_wherever_they_stand(place: str) -> None:
    text = REGISTRY + corrections(place) + "}\n" * place.count("{")
    made = import_policy(text)
    assert cast(Any, made.policy.correction).WMSHistory["All"].max_global_correction_factor == 3
    assert made.section == "/".join(place.replace("{", "").split()) + "/ShareCorrections"


def test_several_that_differ_must_be_chosen_from() -> None:
    first, second = corrections("Operations"), corrections("Other", 4)
    error = refused(REGISTRY + first + second)
    assert "several" in error.message
    assert "Operations/ShareCorrections" in error.hint
    assert "Other/ShareCorrections" in error.hint
    assert error.line == line_of(REGISTRY + first + second, "Other") + 2
    for name, factor in (("Operations", 3), ("/Other/ShareCorrections", 4), ("Other//ShareCorrections", 4)):
        made = import_policy(REGISTRY + first + second, section=name)
        assert cast(Any, made.policy.correction).WMSHistory["All"].max_global_correction_factor == factor
        [left] = [one for one in made.omissions if one.path.endswith("ShareCorrections")]
        assert "not selected" in left.reason
    assert "there are: Operations/ShareCorrections" in refused(REGISTRY + first, "Nowhere").hint
    assert "none" in refused(REGISTRY, "Nowhere").hint


def test_identical_sections_are_imported_once() -> None:
    made = import_policy(REGISTRY + corrections("Operations") + corrections("Other"))
    assert made.section == "Operations/ShareCorrections"
    assert ["identical to" in one.reason for one in made.omissions if "Other" in one.path] == [True]


def test_invalid_values_are_listed_as_omissions_or_refused_with_their_line() -> None:
    sharing = DOCUMENT.replace("lhcb_user\n", "prod\n")
    made = import_policy(REGISTRY + sharing)
    assert list(cast(Any, made.policy.correction).WMSHistory) == ["GroupsInstance"]
    assert any("JobSharing" in one.reason for one in made.omissions)
    idle = import_policy(REGISTRY + DOCUMENT.replace("ToStart = WMSHistory", "ToStart = Other"))
    assert idle.policy.correction.correctors == ()
    assert {one.value for one in idle.omissions if "Corrections" in one.path} == {"Other", "15 options"}
    long = import_policy(REGISTRY + DOCUMENT.replace("TimeSpan = 604800", "TimeSpan = 40000000"))
    assert long.policy.accounting.history == 40000000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("JobShare = 4000", "JobShare = -1", "share of group prod"),
        ("JobShare = 4000", "JobShare = nan", "share of group prod"),
        ("JobShare = 4000", "JobShare = inf", "share of group prod"),
        ("JobShare = 4000", "JobShare = much", "must be a number"),
        ("JobShare = 4000", "JobShare = 4000 # a lot", "must be a number"),
        ("JobShare = 4000", "JobShare =", "must be a number"),
        ("TimeSpan = 3600", "TimeSpan = 1", "time_span must be"),
        ("TimeSpan = 3600", "TimeSpan = 1 h", "must be a number"),
        ("Weight = 20", "Weight = -20", "weight must be"),
        ("Weight = 20", "Weight = nan", "weight must be"),
        ("MaxCorrection = 5", "MaxCorrection = 0", "max_correction must be"),
        (
            "MaxGlobalCorrectionFactor = 3",
            "MaxGlobalCorrectionFactor = 0.5",
            "max_global_correction_factor must",
        ),
        ("MaxRAM = 16000", "MaxRAM = -1", "memory must be"),
        ("MaxRAM = 16000", "MaxRAM = inf", "must be a number"),
        ("MaxRAM = 16000", "MaxRAM = 1.5", "ces.local-short.memory"),
        ("maxCPUTime = 60\n", "maxCPUTime = 0\n", "wall must be"),
    ],
)
def test_bad_values_are_refused_with_their_line(old: str, new: str, message: str) -> None:
    text = REGISTRY + SITES + DOCUMENT
    assert old in text
    bad = text.replace(old, new, 1)
    error = refused(bad)
    assert message in error.message
    assert error.line == line_of(text, old.strip())


def test_both_names_of_the_global_factor() -> None:
    both = DOCUMENT.replace("Factor = 3\n", "Factor = 3\nMaxGlobalCorrection = 4\n", 1)
    error = refused(both)
    assert "differ" in error.message
    assert error.line == line_of(both, "MaxGlobalCorrection = 4")
    assert cast(Any, import_policy(both.replace("= 4", "= 3")).policy.correction).WMSHistory[
        "GroupsInstance"
    ].max_global_correction_factor == pytest.approx(3)


def test_two_instances_for_the_same_are_both_taken() -> None:
    correction = import_policy(REGISTRY + DOCUMENT.replace("Group = lhcb_user\n", "")).policy.correction
    assert [instance.name for instance in correction.instances] == ["GroupsInstance", "lhcb_userInstance"]
    assert len(correction.between("")) == 2


def test_shares_that_are_all_nothing() -> None:
    text = REGISTRY.replace("JobShare = 4000", "JobShare = 0").replace(
        "Users = bob", "JobShare = 0\nUsers = bob"
    )
    error = refused(text)
    assert "all shares are 0" in error.message
    assert error.line == line_of(text, "Groups")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "empty"),
        ("# nothing\n\n", None, "empty"),
        ("A = 1\n", None, "no group"),
        ("A\n{\n", 1, "section A is never closed"),
        ("A\n{\nB\n{\n}\n", 1, "section A is never closed"),
        ("A\n{\n}\n}\n", 4, "without an open section"),
        ("A\n{\n}\nA\n{\n}\n", 4, "section A is given twice: first on line 1"),
        ("A\n{\nB = 1\nB = 2\n}\n", 4, "option A/B is given twice: first on line 3"),
        ("A\n{\nB = 1\nB\n{\n}\n}\n", 4, "A/B is given twice"),
        ("A\n{\n}\nA = 1\n", 4, "A is given twice"),
        ("A { B = 1 }\n", 1, "on the same line as a bracket"),
        ("A\n{\n} B = 1\n", 3, "on the same line as a bracket"),
        ("A\nB\n{\n}\n", 1, "'A' is neither"),
        ("A\nB = 1\n", 1, "'A' is neither"),
        ("A\n{\nstray\n}\n", 3, "'stray' is neither"),
        ("A = 1\nstray", 2, "'stray' is neither"),
        ("{\n}\n", 1, "without a name"),
        ("= 1\n", 1, "without a name"),
        ("A { # not a comment\n}\n", 1, "'# not a comment' is neither"),
        ("A/B = 1\n", 1, "contains a /"),
        ("A/B\n{\n}\n", 1, "contains a /"),
        ("A += 1\n", 1, "to be set above"),
        ("A = 1\n\0", 2, "a character that is not text"),
        ("A\n{\n" * 65 + "}\n" * 65, 129, "nested more than 64"),
        ("A\n{\n" * 5000, 129, "nested more than 64"),
    ],
)
def test_bad_text_is_refused_with_its_line(text: str, line: int | None, message: str) -> None:
    error = refused(text)
    assert message in error.message
    assert error.line == line


def test_deep_but_not_too_deep() -> None:
    made = import_policy(REGISTRY + "A\n{\n" * 64 + "}\n" * 64)
    assert [one.path for one in made.omissions if one.path == "A"] == ["A"]


def test_brackets_on_a_line_comments_windows_ends_and_odd_names() -> None:
    text = 'Registry\n{\nGroups { a"b\\c { \n#x {\nVO = t\to = {x}\n} } }\n'
    made = import_policy(text.replace("\n", "\r\n"))
    assert made.policy.groups['a"b\\c'].vo == "t\to = {x}"
    assert made.omissions == ()


def test_a_missing_diraccfg_is_refused_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diraccfg", None)
    error = refused(DOCUMENT)
    assert "diraccfg" in error.message
    assert "pilotage[dirac]" in error.hint


KNOWN_SECTIONS = (
    "Registry Groups Users Resources Sites CEs Queues Operations ShareCorrections WMSHistory lhcb_user alice"
)
KNOWN_OPTIONS = (
    "JobShare Properties Users VO DN Suspended DefaultGroup CE CEType MaxRAM maxCPUTime Tag ShareCorrectorsToStart"
    " Group MaxGlobalCorrection MaxGlobalCorrectionFactor TimeSpan Weight MaxCorrection"
)
NAMES = st.one_of(st.sampled_from(KNOWN_SECTIONS.split()), st.text(max_size=6))
OPTIONS = st.one_of(st.sampled_from(KNOWN_OPTIONS.split()), st.text(max_size=6))
VALUES = st.one_of(
    st.sampled_from(
        ["1000", "-1", "nan", "inf", "Local", "alice, bob", "WMSHistory", "lhcb_user", '"', '"x"', ""]
    ),
    st.text(max_size=12),
    st.floats().map(str),
)
TREES = st.recursive(
    st.dictionaries(OPTIONS, VALUES, max_size=4),
    lambda below: st.dictionaries(NAMES, st.one_of(VALUES, below), max_size=4),
    max_leaves=20,
)
REAL = st.fixed_dictionaries(
    {},
    optional={
        "Registry": st.fixed_dictionaries(
            {"Groups": st.dictionaries(NAMES, st.dictionaries(OPTIONS, VALUES, max_size=4), max_size=3)},
            optional={"Users": TREES},
        ),
        "Resources": st.fixed_dictionaries({"Sites": st.dictionaries(NAMES, TREES, max_size=3)}),
        "Operations": TREES,
        "ShareCorrections": st.fixed_dictionaries(
            {"ShareCorrectorsToStart": st.just("WMSHistory"), "WMSHistory": TREES}
        ),
    },
)


def written(tree: object, indent: str = "") -> str:
    assert isinstance(tree, dict)
    lines = []
    for name, value in tree.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{name}\n{indent}{{\n{written(value, indent + ' ')}{indent}}}\n")
        else:
            lines.append(f"{indent}{name} = {value}\n")
    return "".join(lines)


@settings(deadline=None, max_examples=6 * settings().max_examples)
@given(st.one_of(TREES, REAL).map(written))
def test_any_tree_is_taken_or_refused_in_words(text: str) -> None:
    with suppress(InvalidInput):
        made = import_policy(text)
        assert parse(made.text) == made.policy


@settings(deadline=None, max_examples=4 * settings().max_examples)
@given(st.text(alphabet='AB{}=+#/ \n"\t\x0b\x85,', max_size=60))
def test_any_text_is_taken_or_refused_in_words(text: str) -> None:
    with suppress(InvalidInput):
        import_policy(text)


def test_a_list_of_groups_makes_an_instance_for_each() -> None:
    text = DOCUMENT.replace("Group = lhcb_user\n", "Group = lhcb_user, lhcb_prod, lhcb_data\n") + (
        "Registry\n{\nGroups\n{\nlhcb_prod\n{\nProperties = NormalUser, JOB_SHARING\n}\n}\n}\n"
    )
    found = import_policy(text)
    history = cast(Any, parse(found.text).correction).WMSHistory
    assert {name: one.group for name, one in history.items()} == {
        "GroupsInstance": "",
        "lhcb_userInstance_lhcb_user": "lhcb_user",
        "lhcb_userInstance_lhcb_data": "lhcb_data",
    }
    assert history["lhcb_userInstance_lhcb_user"].slices == history["lhcb_userInstance_lhcb_data"].slices
    assert [(one.value, one.reason) for one in found.omissions] == [
        ("lhcb_prod", "lhcb_prod has JobSharing, so its owners have no shares of their own")
    ]


def test_a_policy_may_name_properties_as_DIRAC_does() -> None:
    text = '[groups.a]\nproperties = ["NormalUser", "JobSharing", "JOB_SHARING"]\n[users.u]\ngroups = ["a"]\n'
    policy = parse(text)
    assert policy.groups["a"].properties == (NORMAL_USER, JOB_SHARING)
    assert policy.sharing("a")
