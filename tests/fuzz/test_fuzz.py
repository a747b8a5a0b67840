"""A short run of the fuzz with a fixed seed, and that it would notice what it looks for."""

from __future__ import annotations

import os
import signal
import time

import pytest

from pilotage.core.errors import InvalidInput
from tests.fuzz import runner
from tests.fuzz.child import attempt, text_of
from tests.fuzz.runner import run
from tests.fuzz.targets import TARGETS, Target


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_texts_to_begin_from_are_read(name: str) -> None:
    for text in TARGETS[name].corpus:
        TARGETS[name].read(text)


@pytest.mark.slow
def test_nothing_but_invalid_input_comes_out_of_any_parser() -> None:
    outcome = run(list(TARGETS), seed=12, cases=60)
    assert [f"--replay {target}:12:{number}\n{why}" for target, number, why in outcome.failures] == []
    assert dict(outcome.cases) == dict.fromkeys(TARGETS, 60)


def test_a_case_is_the_same_whenever_it_is_asked_for() -> None:
    assert [text_of("jdl", 5, number) for number in range(50)] == [
        text_of("jdl", 5, number) for number in range(50)
    ]
    assert text_of("jdl", 5, 1) != text_of("jdl", 6, 1)


def test_most_cases_are_refused_and_some_are_read() -> None:
    refused = 0
    for number in range(100):
        try:
            TARGETS["expression"].read(text_of("expression", 3, number))
        except InvalidInput:
            refused += 1
    assert 20 < refused < 95


def _die(text: str) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang(text: str) -> None:
    time.sleep(3600)


def _fail(text: str) -> None:
    raise ValueError("a number")


def test_an_error_of_another_kind_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "broken", Target(_fail, ("a",)))
    assert "ValueError: a number" in attempt("broken", "a")


@pytest.mark.slow
@pytest.mark.parametrize(("read", "why"), [("_die", "status -11"), ("_hang", "more than 2 s")])
def test_a_process_that_dies_or_hangs_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, read: str, why: str
) -> None:
    # The child is another process: it is told to use a broken parser by a program of its own.
    program = (
        "from tests.fuzz import child, test_fuzz; from tests.fuzz.targets import TARGETS, Target; import sys;"
        f"TARGETS['span'] = Target(test_fuzz.{read}, ('a',));"
        "child.main(*map(int, sys.argv[1:4]), sys.argv[4].split(','))"
    )
    monkeypatch.setattr(runner, "PROGRAM", ("-c", program))
    monkeypatch.setattr(runner, "CASE_SECONDS", 2.0)
    outcome = run(["ids", "span"], seed=1, cases=2)
    assert [(target, number) for target, number, _ in outcome.failures] == [("span", 0), ("span", 1)]
    assert all(why in told for *_, told in outcome.failures)
    assert outcome.cases == {"ids": 2, "span": 2}
