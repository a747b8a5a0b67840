"""Partial evaluation against the evaluator and HTCondor's, over random expressions, ads and unknown attributes.

`PILOTAGE_PARTIAL_TRIPLES=100000` draws more triples of the fast kind, and `--hypothesis-profile deep` of the other.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from pilotage.core.classads import ClassAd, Expression
from pilotage.core.classads.partial import Kind
from tests.unit.classads.classad_strategies import NAMES, ads, expressions
from tests.unit.classads.partial_triples import Triple, counterexample, draw

TRIPLES = int(os.environ.get("PILOTAGE_PARTIAL_TRIPLES", "800"))
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_residuals_are_true_for_the_same_full_ads(part: int) -> None:
    for number in range(TRIPLES // PARTS):
        rng = Random(f"{part} {number}")
        assert counterexample(draw(rng), rng) is None


def test_residuals_are_true_for_the_same_ads_without_undeclared_attributes() -> None:
    for number in range(TRIPLES // 2):
        rng = Random(f"undeclared {number}")
        assert counterexample(draw(rng, declared=0.3), rng) is None


calm = settings(
    derandomize=True,
    deadline=None,
    max_examples=4 * settings().max_examples,
    suppress_health_check=list(HealthCheck),
)


@calm
@given(
    expressions(leaves=10),
    ads(),
    ads(),
    st.dictionaries(st.sampled_from([name.lower() for name in NAMES]), st.sampled_from(Kind)),
    st.integers(0, 2**32),
)
def test_any_expression(
    expression: Expression, my: ClassAd, target: ClassAd, kinds: dict[str, Kind], seed: int
) -> None:
    triple = Triple(expression, my, target, kinds)
    note(str(triple))
    assert counterexample(triple, Random(seed), names=tuple(name.lower() for name in NAMES)) is None


def test_residuals_are_true_for_the_same_full_ads_in_htcondor() -> None:
    pytest.importorskip("classad2", reason="the oracle group is not installed: uv sync --group oracle")
    pytest.importorskip("htcondor2", reason="registers the stringList functions of classad2")
    from tests.unit.classads.test_classads_differential import oracle

    def judge(expression: Expression, my: ClassAd, target: ClassAd) -> bool:
        return oracle(expression, my, target) is True

    compared = 0
    for number in range(TRIPLES // 2):
        rng = Random(f"oracle {number}")
        triple = draw(rng, declared=rng.choice((0.3, 0.8)))
        # HTCondor's own clock and chance.
        if "time()" in str(triple) or "random()" in str(triple):
            continue
        compared += 1
        assert counterexample(triple, rng, ads=4, judge=judge) is None
    assert compared > TRIPLES // 4
