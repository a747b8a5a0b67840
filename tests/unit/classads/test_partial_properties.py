"""Partial evaluation against the evaluator, over random expressions, ads and unknown attributes."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.classads.partial_triples import counterexample, draw


@pytest.mark.parametrize("part", range(4))
def test_residuals_are_true_for_the_same_full_ads(part: int) -> None:
    for number in range(200):
        rng = Random(f"{part} {number}")
        assert counterexample(draw(rng), rng) is None
