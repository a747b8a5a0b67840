"""A short run of the fuzz with a fixed seed."""

from __future__ import annotations

import pytest

from tests.fuzz.runner import run
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_texts_to_begin_from_are_read(name: str) -> None:
    for text in TARGETS[name].corpus:
        TARGETS[name].read(text)


@pytest.mark.slow
def test_nothing_but_invalid_input_comes_out_of_any_parser() -> None:
    outcome = run(list(TARGETS), seed=12, cases=60)
    assert [f"--replay {target}:12:{number}\n{why}" for target, number, why in outcome.failures] == []
    assert dict(outcome.cases) == dict.fromkeys(TARGETS, 60)
