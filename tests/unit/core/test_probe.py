"""The account of a probe at every moment of its life."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.core.provisioning.probe import NODE_STEPS, ProbeFacts, ProbeStep, StepState, clock_step, explain

NAMES = ["batch system", "submission", "start", *NODE_STEPS]
FINDINGS = tuple(ProbeStep(name, StepState.OK, "fine") for name in NODE_STEPS)
SUBMITTED = ProbeFacts(submitted=True, batch_id="7_0")
STARTED = replace(SUBMITTED, started=True, hostname="n1", waited=3.0)


@pytest.mark.parametrize(
    ("facts", "step", "state", "text"),
    [
        (ProbeFacts(unreachable="no answer"), "batch system", StepState.FAILED, "no answer"),
        (
            ProbeFacts(unreachable="no answer", looked_again=False),
            "batch system",
            StepState.WAITING,
            "no answer",
        ),
        (ProbeFacts(listed=False), "batch system", StepState.WAITING, "first listing"),
        (ProbeFacts(), "submission", StepState.WAITING, "next cycle"),
        (ProbeFacts(submitted=True), "submission", StepState.WAITING, "answer"),
        (
            ProbeFacts(submitted=True, ended=True, reason="invalid partition"),
            "submission",
            StepState.FAILED,
            "invalid partition",
        ),
        (
            replace(SUBMITTED, waited=90.0, wait_reason="PENDING: Priority"),
            "start",
            StepState.WAITING,
            "for 90 s: PENDING: Priority",
        ),
        (replace(SUBMITTED, ended=True, reason="CANCELLED"), "start", StepState.FAILED, "CANCELLED"),
        (STARTED, "Python", StepState.WAITING, "report"),
        (
            replace(SUBMITTED, ended=True, reason="gone", log="pilotage: no Python 3.9 or newer on n1"),
            "Python",
            StepState.FAILED,
            "no Python 3.9 or newer on n1",
        ),
        (
            replace(SUBMITTED, ended=True, reason="gone", log="server unavailable"),
            "server",
            StepState.FAILED,
            "gone",
        ),
        (replace(STARTED, ended=True, reason="lease over"), "report", StepState.FAILED, "lease over"),
    ],
)
def test_the_first_step_that_is_not_done(facts: ProbeFacts, step: str, state: StepState, text: str) -> None:
    steps = explain(facts)
    reached = [step for step in steps if step.state is not StepState.OK]
    assert (reached[0].name, reached[0].state) == (step, state)
    assert text in reached[0].text
    assert {step.state for step in reached[1:]} <= {StepState.PENDING}


def test_all_steps_of_a_probe_that_reported() -> None:
    steps = explain(replace(STARTED, ended=True, reason="probe", checks=FINDINGS))
    assert [step.name for step in steps] == NAMES
    assert {step.state for step in steps} == {StepState.OK}
    assert steps[2].text == "on n1, after 3 s"


@given(
    st.builds(
        ProbeFacts,
        unreachable=st.sampled_from(["", "no answer"]),
        submitted=st.booleans(),
        batch_id=st.sampled_from(["", "7_0"]),
        started=st.booleans(),
        ended=st.booleans(),
        log=st.text(max_size=30) | st.just("pilotage: no Python 3.9"),
        checks=st.sampled_from([(), FINDINGS]),
    )
)
def test_the_account_never_hides_a_step(facts: ProbeFacts) -> None:
    names = [step.name for step in explain(facts) if step.name != "report"]
    assert names == NAMES


@pytest.mark.parametrize(
    ("offset", "state"), [(0.2, StepState.OK), (-59.0, StepState.OK), (61.0, StepState.WARNING)]
)
def test_a_clock_that_is_off_is_worth_a_warning(offset: float, state: StepState) -> None:
    assert clock_step(offset).state is state
