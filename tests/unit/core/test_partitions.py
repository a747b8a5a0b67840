"""Partitions of the policy: their CEs, and what is refused."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.policy import parse
from pilotage.core.policy.partitions import partitions_of

POLICY = """\
[groups.home]
[users.ada]
groups = ["home"]
[sites.here]
[sites.far]
[ces.local]
site = "here"
[ces.cluster]
site = "far"
type = "slurm"
[ces.other]
site = "far"
type = "slurm"
"""
SHORT = '[partitions.short]\nces = ["local"]\nsites = ["far"]\ndefault = true\n'


def members(text: str) -> dict[str, list[str]]:
    policy = parse(text)
    return {name: partition.all_ces(policy) for name, partition in partitions_of(policy).items()}


def test_without_a_table_each_ce_and_site_is_a_partition_of_the_pool() -> None:
    assert members(POLICY) == {
        "all": ["local", "cluster", "other"],
        "cluster": ["cluster"],
        "other": ["other"],
        "local": ["local"],
        "far": ["cluster", "other"],
        "here": ["local"],
    }
    assert [name for name, one in partitions_of(parse(POLICY)).items() if one.default] == ["all"]


def test_a_table_names_all_partitions() -> None:
    text = POLICY + SHORT + '[partitions.long]\nsites = ["*"]\n[partitions.one]\nces = ["other", "other"]\n'
    whole = ["local", "cluster", "other"]
    assert members(text) == {"short": whole, "long": whole, "one": ["other"]}


@pytest.mark.parametrize(
    ("table", "said", "line"),
    [
        ('[partitions."a,b"]\nces = ["local"]\n', "'a,b' of a partition cannot be used", 14),
        ("[partitions.a]\ndefault = true\n", "partition a has no CE and no site", 14),
        ('[partitions.a]\nces = ["nowhere"]\n', "partition a: there is no CE nowhere", 15),
        ('[partitions.a]\nsites = ["nowhere"]\n', "partition a: there is no site nowhere", 15),
        ('[partitions.a]\nces = "local"\n', "must be a list, not a text", 15),
        ('[partitions.a]\nce = ["local"]\n', "unknown key ce", 15),
        (SHORT + SHORT.replace("short", "long"), "partitions short and long are both the default", 21),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(table: str, said: str, line: int) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        parse(POLICY + table)
    assert refused.value.line == line
