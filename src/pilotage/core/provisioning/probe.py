"""The steps of a probe of a CE, from the request to the findings on the node: computed from the rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pilotage.core.pilots import clocks


class StepState(StrEnum):
    """How far a step has come."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    WAITING = "waiting"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One line of the account."""

    name: str
    state: StepState
    text: str = ""


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """The rows that tell of one probe."""

    unreachable: str = ""
    """Why the last listing of the batch system failed."""
    looked_again: bool = True
    """There was time for a listing since the probe was ordered."""
    listed: bool = True
    """There was a complete listing of the batch system, or there is none to list."""
    is_local: bool = False
    submitted: bool = False
    """The director has stored its intent."""
    batch_id: str = ""
    wait_reason: str = ""
    """Why the batch job waits, in the batch system's words."""
    started: bool = False
    """It has called home."""
    hostname: str = ""
    waited: float = 0.0
    """Seconds from its intent until it called home, or until now."""
    ended: bool = False
    reason: str = ""
    """Why the pilot ended."""
    log: str = ""
    """The end of its own output."""
    checks: Sequence[ProbeStep] = ()
    """Its findings; empty: it has not reported."""


NODE_STEPS = ("Python", "server", "scratch", "cores", "memory", "time left", "offer", "clock")

NO_PYTHON = "no Python 3.9"
"""Begins the message of the batch script where it finds no interpreter."""


def explain(facts: ProbeFacts) -> tuple[ProbeStep, ...]:
    """All steps in order. After the first one that waits or failed the rest is pending."""
    steps = [_batch_system(facts), _submission(facts), _start(facts)]
    stopped = next((index for index, step in enumerate(steps) if step.state is not StepState.OK), None)
    if stopped is not None:
        steps = steps[: stopped + 1] + [
            ProbeStep(step.name, StepState.PENDING) for step in steps[stopped + 1 :]
        ]
    if facts.checks:
        return (*steps, *facts.checks)
    return (*steps, *_missing_report(facts, stopped is None))


def clock_step(offset: float) -> ProbeStep:
    """Compare the node's clock with the server's. `offset`: seconds that the node is ahead."""
    state = StepState.WARNING if clocks.is_off(offset) else StepState.OK
    return ProbeStep("clock", state, clocks.describe(offset))


def _batch_system(facts: ProbeFacts) -> ProbeStep:
    if facts.unreachable and not facts.started:
        state = StepState.FAILED if facts.looked_again else StepState.WAITING
        return ProbeStep("batch system", state, facts.unreachable)
    if not facts.listed and not facts.started:
        return ProbeStep("batch system", StepState.WAITING, "for the first listing")
    return ProbeStep("batch system", StepState.OK, "this machine" if facts.is_local else "it answers")


def _submission(facts: ProbeFacts) -> ProbeStep:
    if not facts.submitted:
        return ProbeStep("submission", StepState.WAITING, "for the next cycle of the director")
    if facts.batch_id or facts.started:
        return ProbeStep("submission", StepState.OK, f"batch job {facts.batch_id}" if facts.batch_id else "")
    if facts.ended:
        return ProbeStep("submission", StepState.FAILED, facts.reason)
    return ProbeStep("submission", StepState.WAITING, facts.wait_reason or "for the batch system's answer")


def _start(facts: ProbeFacts) -> ProbeStep:
    if facts.started:
        return ProbeStep("start", StepState.OK, f"on {facts.hostname}, after {facts.waited:.0f} s")
    if not facts.ended:
        text = f"for {facts.waited:.0f} s" + (f": {facts.wait_reason}" if facts.wait_reason else "")
        return ProbeStep("start", StepState.WAITING, text)
    if facts.log:
        return ProbeStep("start", StepState.OK, "it has written output, but never called home")
    return ProbeStep("start", StepState.FAILED, facts.reason)


def _missing_report(facts: ProbeFacts, reached: bool) -> list[ProbeStep]:
    """The steps on the node while the probe has not reported. `reached`: it was started there."""
    pending = [ProbeStep(name, StepState.PENDING) for name in NODE_STEPS]
    if not reached:
        return pending
    if not facts.ended:
        return [ProbeStep(NODE_STEPS[0], StepState.WAITING, "for its report"), *pending[1:]]
    if NO_PYTHON in facts.log:
        line = next(line for line in facts.log.splitlines() if NO_PYTHON in line)
        return [ProbeStep("Python", StepState.FAILED, line.partition("pilotage: ")[2] or line), *pending[1:]]
    if facts.started:
        return [ProbeStep("report", StepState.FAILED, facts.reason), *pending]
    python = ProbeStep("Python", StepState.OK)
    return [python, ProbeStep("server", StepState.FAILED, facts.reason), *pending[2:]]
