"""Runs in which jobs wait for ever: they end, with the reason as `why` gives it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from pilotage.core.policy import parse
from pilotage.twin import standstill
from pilotage.twin.ces import TwinCe, TwinNodes
from pilotage.twin.measures import measure_run
from pilotage.twin.plan import TwinPlan
from pilotage.twin.result import TwinOutcome, TwinResult
from pilotage.twin.run import run_twin
from pilotage.twin.standstill import longest_pause
from pilotage.twin.trace_policy import policy_of_trace
from tests.unit.twin.test_run import CE, small_trace

JOBS = small_trace(12)


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "PATIENCE", 600.0)


def run(edit: Callable[[str], str], ce: TwinCe = CE, until: float | None = None) -> TwinResult:
    text = edit(policy_of_trace(JOBS, [ce], {}))
    return run_twin(TwinPlan(JOBS, parse(text), text, (ce,), 1, until), lambda progress: None)


def setting(key: str, value: str) -> Callable[[str], str]:
    return lambda text: re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", text)


def test_a_limit_of_zero_ends_the_run_with_its_reason() -> None:
    limit = '\n[[limits]]\nattribute = "group"\nvalue = "one"\nrunning = 0\n'
    result = run(lambda text: text + limit)
    assert re.match(
        "no job has started or ended for .*, and 8 jobs still wait. 8 jobs of ", result.standstill
    )
    assert "at most 0 running" in result.standstill
    ended = result.jobs.rows["outcome"] == TwinOutcome.DONE
    assert np.count_nonzero(ended) == 4
    last = np.nanmax(result.jobs.rows["end"])
    assert result.until - last == pytest.approx(
        longest_pause(parse(policy_of_trace(JOBS, [CE], {})), [CE]), abs=30
    )
    text = policy_of_trace(JOBS, [CE], {})
    assert measure_run(result, parse(text), [CE]).standstill == result.standstill


def test_a_ce_that_gets_no_pilot_ends_the_run() -> None:
    result = run(setting("max_running", "0"))
    assert "12 jobs still wait" in result.standstill
    assert not result.pilots.rows.size


def test_an_end_that_was_asked_for_is_no_standstill() -> None:
    result = run(setting("max_running", "0"), until=300.0)
    assert result.standstill == ""


def test_jobs_that_the_server_gives_up_have_failed() -> None:
    """Their pilots die before they can tell of an end."""
    result = run(lambda text: text, TwinCe("farm", (TwinNodes(4, 2),), start_delay=5.0, failure_rate=3600.0))
    rows = result.jobs.rows
    assert result.standstill == ""
    assert set(rows["outcome"]) == {TwinOutcome.FAILED}
    assert set(rows["attempts"]) == {4}
    assert np.all(rows["end"] > rows["start"])


def test_lawful_pauses_of_policy_and_ces_are_waited_for() -> None:
    slow = TwinCe("farm", (TwinNodes(4, 2),), waits=(0.0, 86400.0))
    text = policy_of_trace(JOBS, [CE], {})
    plain = longest_pause(parse(text), [CE])
    assert longest_pause(parse(text), [slow]) == plain + 86400
    budget = text.replace('site = "twin"', 'site = "twin"\nbudget = "9 core-h / 2 d"')
    assert longest_pause(parse(budget), [CE]) == plain + 2 * 86400
    limit = '\n[[limits]]\nattribute = "group"\nvalue = "one"\ndelay = 5000\n'
    assert longest_pause(parse(text + limit), [CE]) == plain + 5000
