"""Failed jobs of elements: tried again after a pause, or exhausted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pilotage import pilot
from pilotage.core.requests.retries import (
    DATA_FAILURES,
    FailedTry,
    FailureClass,
    PauseRule,
    RetryRules,
    after_failed_try,
    class_of,
    pause,
)
from pilotage.services.jobs import stored_files

RULES = RetryRules(fatal_exit_codes=frozenset({65}), pass_exit_codes=frozenset({99}))


@pytest.mark.parametrize(
    ("job_type", "most"), [("Processing", 3), ("Skim", 3), ("Merge", 4), ("Cleanup", 2), ("LogCollect", 1)]
)
def test_the_limit_depends_on_the_type(job_type: str, most: int) -> None:
    verdicts = [after_failed_try(FailedTry(job_type, n, "payload", 1), RULES) for n in range(most + 1)]
    assert [verdict.pause is not None for verdict in verdicts] == [True] * most + [False]
    assert verdicts[-1].why == f"it failed {most + 1} times"


def test_the_pause_grows_with_the_square_and_depends_on_the_class() -> None:
    pauses = [after_failed_try(FailedTry("Merge", n, "payload", 1), RULES).pause for n in range(4)]
    assert pauses == [600.0, 2400.0, 5400.0, 9600.0]
    assert after_failed_try(FailedTry("Merge", 0, "lease-over"), RULES).pause == 60.0
    assert after_failed_try(FailedTry("Merge", 1, "input"), RULES).pause == 1200.0


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ("payload", FailureClass.PAYLOAD),
        ("limit-memory", FailureClass.PAYLOAD),
        ("output", FailureClass.DATA),
        ("lease-over", FailureClass.PLACE),
        ("node", FailureClass.PLACE),
        ("a failure of a later version", FailureClass.PLACE),
    ],
)
def test_each_failure_has_a_class(failure: str, expected: FailureClass) -> None:
    assert class_of(failure) is expected


def test_failures_of_data_are_named_as_their_reports_name_them() -> None:
    """A failure that is renamed there would get the pause of another class."""
    texts = [file.read_text() for file in (Path(pilot.__file__).parent).glob("*.py")]
    named = {name for text in texts for name in re.findall(r'failure(?:: str)? ?= ?"([a-z-]+)"', text)}
    assert named >= DATA_FAILURES
    assert stored_files.OutputRefusal("reason").failure in DATA_FAILURES


def test_some_exit_codes_are_fatal_and_some_are_tried_at_once() -> None:
    assert after_failed_try(FailedTry("Processing", 0, "payload", 65), RULES).why == "exit code 65 is fatal"
    assert after_failed_try(FailedTry("Processing", 2, "payload", 99), RULES).pause == 0.0
    assert after_failed_try(FailedTry("Processing", 3, "payload", 99), RULES).pause is None


def test_a_job_that_failed_after_a_long_run_is_not_tried_again() -> None:
    verdict = after_failed_try(FailedTry("Processing", 0, "payload", 1, wall=120_001.0), RULES)
    assert verdict.pause is None
    assert "120000 s" in verdict.why


def test_no_pause_overflows() -> None:
    assert pause(PauseRule.EXPONENTIAL, 1e9, 100) == float("inf")
