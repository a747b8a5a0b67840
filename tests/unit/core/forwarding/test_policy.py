"""The keys of a CE that direct the forwarding: good ones are kept, others are refused with their line."""

from __future__ import annotations

import pytest

from pilotage.core import policy
from pilotage.core.errors import InvalidInput
from pilotage.core.forwarding.rules import FeatureRule, WallRule

BASE = """\
[groups.users]
share = 1
[users.ada]
groups = ["users"]
[sites.here]
[ces.farm]
site = "here"
type = "slurm"
"""


def test_rules_of_a_ce_override_the_table_of_its_batch_system() -> None:
    text = BASE + '[ces.farm.forward]\nGlueHostBenchmarkSI00 = "feature si00_{}"\n'
    ce = policy.parse(text).ces["farm"]
    assert ce.forward_table.with_rules(ce.forward) == {
        "GlueCEPolicyMaxWallClockTime": WallRule(),
        "SlurmFeatures": FeatureRule("{}"),
        "GlueHostBenchmarkSI00": FeatureRule("si00_{}"),
    }
    without = policy.parse(BASE + '[ces.farm.forward]\ngluecepolicymaxwallclocktime = "none"\n').ces["farm"]
    assert set(without.forward_table.with_rules(without.forward)) == {"SlurmFeatures"}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ('X = "feature a|b"', "no pattern of a feature"),
        ('X = "complex x <="', "no flag"),
        ('X = "option --mem"', "no flag"),
        ('X = "--constraint=x"', "no forward rule"),
        ('GlueHostBenchmarkSI000 = "none"', "has no attribute GlueHostBenchmarkSI000"),
        ('GlueCEPolicyMaxCPUTime = "feature t_{}"', "is no attribute of hosts"),
        ('"a b" = "none"', "no name of an attribute"),
        ('"LD_PRELOAD=x" = "none"', "no name of an attribute"),
        ('X = "none"\nx = "none"', "two rules"),
    ],
)
def test_bad_rules_are_refused_with_their_line(rule: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        policy.parse(f"{BASE}[ces.farm.forward]\n{rule}\n")
    assert caught.value.line == 9 + rule.count("\n") + 1
    assert caught.value.hint


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ('residual = "perhaps"', "residual"),
        ('host_selection = "all"', "host_selection"),
        ('forward_hook = "hook.sh"', "forward_hook cannot be used"),
        ("forward = 3", "forward"),
    ],
)
def test_bad_values_of_the_other_keys_are_refused(key: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        policy.parse(f"{BASE}{key}\n")
    assert caught.value.line == 9


def test_a_local_ce_has_nothing_to_forward() -> None:
    local = BASE.replace('type = "slurm"\n', "")
    assert policy.parse(local).ces["farm"].forward_table.is_empty
    for more in ('forward_hook = "/bin/true"', '[ces.farm.forward]\nX = "feature x_{}"'):
        with pytest.raises(InvalidInput):
            policy.parse(f"{local}{more}\n")
