"""Rules of forward tables against the names that a batch system has."""

from __future__ import annotations

import pytest

from pilotage.core.forwarding.rules import Rule, parse_rule
from pilotage.outside.batch.adapter import unknown_hosts
from pilotage.outside.batch.sge import rules as sge_rules
from pilotage.outside.batch.sge.queues import read_complexes
from pilotage.outside.batch.slurm import rules as slurm_rules

COMPLEXES = read_complexes("""\
#name  shortcut  type     relop  requestable  consumable  default  urgency
si00   s         INT      <=     YES          NO          0        0
fast   f         DOUBLE   <=     YES          NO          0        0
ram    r         MEMORY   <=     YES          NO          0        0
arch   a         STRING   ==     YES          NO          NONE     0
gpu    g         INT      <=     YES          YES         0        0
load   l         DOUBLE   >=     NO           NO          0        0
""")


def rule(text: str) -> Rule:
    parsed = parse_rule(text)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("complex si00 <=", ""),
        ("complex fast <= real", ""),
        ("complex fast <=", ""),
        ("complex ram <= megabytes", ""),
        ("complex arch == string", ""),
        ("wall", ""),
        ("complex si0 <=", "the cell has no complex si0; did you mean si00?"),
        ("complex s <=", "the cell has no complex s; did you mean si00?"),
        ("complex nosuch <=", "the cell has no complex nosuch"),
        ("complex si00 >=", "has the relation <=, not >="),
        ("complex gpu <=", "is a consumable"),
        ("complex load >=", "is not requestable"),
        ("complex arch ==", "is of type STRING: its rule ends with string"),
        ("complex si00 <= megabytes", "is of type INT: its rule ends with integer"),
    ],
)
def test_a_rule_names_a_complex_as_the_cell_has_it(text: str, expected: str) -> None:
    told = list(sge_rules.mistakes_in_rules({"X": rule(text)}, COMPLEXES))
    assert [text.startswith("forward.X: ") and expected in text for text in told] == [True] * bool(expected)


@pytest.mark.parametrize(
    ("attribute", "text", "expected"),
    [
        ("GlueHostBenchmarkSI00", "feature si00_{}", ""),
        ("HasGpu", "feature gpu", ""),
        ("SlurmFeatures", "feature {}", ""),
        ("GlueHostBenchmarkSI00", "feature si_{}", "no node has a feature si_{}; features: gpu, si00_400"),
        # Its value is no number.
        ("GlueHostBenchmarkSI00", "feature g{}", "no node has a feature g{}"),
        ("HasGpu", "feature gpus", "no node has a feature gpus"),
    ],
)
def test_a_rule_names_features_that_nodes_have(attribute: str, text: str, expected: str) -> None:
    told = list(slurm_rules.mistakes_in_rules({attribute: rule(text)}, {"gpu", "si00_400"}))
    assert [expected in text for text in told] == [True] * bool(expected)


def test_hosts_are_compared_without_queue_and_case() -> None:
    assert unknown_hosts(["N1", "all.q@n1", "n2", "q@n3"], ["n1"]) == [
        "hosts: the batch system has no host n2",
        "hosts: the batch system has no host q@n3",
    ]
