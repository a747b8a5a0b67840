"""Whether a failed job of an element is tried again, and when: limits by type, a pause by the class of the failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from types import MappingProxyType

from pilotage.core.handover import THE_PAYLOADS_OWN


class PauseRule(StrEnum):
    """How the pause of a cool-off grows with the number of retries."""

    DEFAULT = "default"
    LINEAR = "linear"
    SQUARED = "squared"
    EXPONENTIAL = "exponential"


class FailureClass(StrEnum):
    """Failures that need equal patience."""

    PAYLOAD = "payload"
    """The program failed, or exceeded a limit."""
    DATA = "data"
    """Input could not be read, or output not be stored or registered."""
    PLACE = "place"
    """The pilot, its node or its batch job failed."""


INPUT_FAILURE = "input"
DATA_FAILURES = frozenset({INPUT_FAILURE, "output"})
"""The failures that pilots and the registration of outputs report."""


def class_of(failure: str) -> FailureClass:
    """The class of a failure as a pilot or a lease reports it."""
    if failure in THE_PAYLOADS_OWN:
        return FailureClass.PAYLOAD
    return FailureClass.DATA if failure in DATA_FAILURES else FailureClass.PLACE


def pause(rule: PauseRule, base: float, retry: int) -> float:
    """Seconds of cool-off before retry number `retry`, counted from 1.

    >>> [pause(rule, 10.0, 3) for rule in PauseRule]
    [10.0, 30.0, 90.0, 1000.0]
    """
    if rule is PauseRule.LINEAR:
        return base * retry
    if rule is PauseRule.SQUARED:
        return base * retry**2
    if rule is PauseRule.EXPONENTIAL:
        try:
            return base**retry
        except OverflowError:
            return inf
    return base


@dataclass(frozen=True, slots=True)
class RetryRules:
    """From the policy, or from the request."""

    retries: int = 3
    of_type: Mapping[str, int] = field(
        default_factory=lambda: MappingProxyType({"Merge": 4, "Harvest": 4, "Cleanup": 2, "LogCollect": 1})
    )
    """The number of retries of a type that differs from `retries`."""
    rule: PauseRule = PauseRule.SQUARED
    bases: Mapping[FailureClass, float] = field(
        default_factory=lambda: MappingProxyType(
            {FailureClass.PAYLOAD: 600.0, FailureClass.DATA: 300.0, FailureClass.PLACE: 60.0}
        )
    )
    """Seconds: the base of the pause for each class of failure."""
    fatal_exit_codes: frozenset[int] = frozenset()
    """The job is not tried again."""
    pass_exit_codes: frozenset[int] = frozenset()
    """The job is tried again without a pause."""
    longest_run: float = 120_000.0
    """Seconds: a job that failed after more is not tried again."""

    def most(self, job_type: str) -> int:
        """The number of retries of a job of this type."""
        return self.of_type.get(job_type, self.retries)


@dataclass(frozen=True, slots=True)
class FailedTry:
    job_type: str
    retries: int
    """The number of retries before this failure."""
    failure: str
    exit_code: int | None = None
    wall: float = 0.0
    """Seconds that it ran."""


@dataclass(frozen=True, slots=True)
class RetryVerdict:
    """`pause` in seconds; None: it is exhausted, for the reason `why`."""

    pause: float | None
    why: str = ""


def after_failed_try(failed: FailedTry, rules: RetryRules) -> RetryVerdict:
    """Whether the job is tried again, and after which pause."""
    if failed.exit_code is not None and failed.exit_code in rules.fatal_exit_codes:
        return RetryVerdict(None, f"exit code {failed.exit_code} is fatal")
    if failed.wall > rules.longest_run:
        return RetryVerdict(None, f"it ran for more than {rules.longest_run:g} s")
    most = rules.most(failed.job_type)
    if failed.retries >= most:
        return RetryVerdict(None, f"it failed {failed.retries + 1} times")
    if failed.exit_code is not None and failed.exit_code in rules.pass_exit_codes:
        return RetryVerdict(0.0)
    base = rules.bases[class_of(failed.failure)]
    return RetryVerdict(pause(rules.rule, base, failed.retries + 1))
