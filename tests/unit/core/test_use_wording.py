"""The use of a running job in words: each figure is told, and whether the job may be stuck."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from pilotage.core.jobs.use_wording import OLD, full_use, may_be_stuck, short_use, verdict
from pilotage.wire.payload_use import JobUse

USE = JobUse(at=10_000.0, ran=600.0, cpu=180.0, busy=0.5, memory=210, peak=250, output_at=9_460.0)
NOW = USE.at + 20.0


def test_the_texts() -> None:
    assert short_use(USE, NOW) == "3 min CPU in 10 min, 210 MB, last output 9 min ago"
    assert full_use(USE, 500, NOW) == (
        "3 min CPU in 10 min (lately 0.50 cores), 210 MB of memory (at most 250 MB of 500 MB),"
        " last output 9 min before; measured 20 s ago"
    )
    assert "no output yet" in short_use(replace(USE, output_at=None), NOW)
    assert "at most 250 MB)" in full_use(USE, 0, NOW)


def test_old_figures_tell_their_age() -> None:
    told = short_use(USE, USE.at + OLD + 600.0)
    assert told == "12 min ago: 3 min CPU in 10 min, 210 MB, last output 9 min before"


@pytest.mark.parametrize("fact", [field.name for field in fields(JobUse)])
def test_each_fact_is_told(fact: str) -> None:
    """A fact that is measured, and that no text tells, would be of no use to a person."""
    changes: dict[str, Any] = {fact: getattr(USE, fact) / 3}
    assert full_use(replace(USE, **changes), 500, NOW) != full_use(USE, 500, NOW)


@pytest.mark.parametrize(
    ("busy", "silent", "words", "stuck"),
    [
        (1.0, 5.0, "it computes", False),
        (1.0, 900.0, "it computes", False),
        (1.0, None, "it computes", False),
        (0.0, 5.0, "it hardly uses a processor, and may wait for something", False),
        (0.0, 900.0, "it neither computes nor writes, so it may be stuck", True),
        (0.0, None, "it neither computes nor writes, so it may be stuck", True),
    ],
)
def test_whether_it_may_be_stuck(busy: float, silent: float | None, words: str, stuck: bool) -> None:
    use = replace(USE, ran=1000.0, busy=busy, output_at=None if silent is None else USE.at - silent)
    assert (verdict(use), may_be_stuck(use)) == (words, stuck)


def test_a_job_that_has_just_begun_is_not_stuck() -> None:
    assert not may_be_stuck(replace(USE, ran=5.0, busy=0.0, output_at=None))
