"""Dependencies between jobs: the conditions under which a job may wait for a pilot, and when they hold.

As between commands of a shell: `after` is `;`, `after_ok` is `&&`, and `after_fail` is `||`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.states import FINAL, JobState

MAX_NAMED: Final = 1000
"""Maximum number of jobs and submissions in the fields of a description."""

_NAME: Final = re.compile(r"(s:)?([1-9]\d{0,17})\Z")


class RunAfter(StrEnum):
    """The end of its parent that a dependent job needs. The values are names of fields of the job description."""

    ENDED = "after"
    SUCCEEDED = "after_ok"
    FAILED = "after_fail"


EACH: Final = "after_each"
"""The field of the job description that pairs jobs: job k is to run after job k of a submission has succeeded."""


class Outlook(StrEnum):
    """The knowledge about a condition, or about all conditions of a job."""

    OPEN = "open"
    """It may still come true."""
    MET = "met"
    NEVER = "never"
    """It cannot come true, unless its parent is tried again by a person."""


class Parent(NamedTuple):
    """A job, or all jobs of a submission; the other one is 0."""

    job: int
    submission: int

    def __str__(self) -> str:
        return f"job {self.job}" if self.job else f"submission {self.submission}"


class Dependency(NamedTuple):
    """A condition on the end of a parent."""

    condition: RunAfter
    parent: Parent


def parse_parent(text: str, field: str) -> Parent:
    """The job `12`, or the submission `s:12`."""
    match = _NAME.match(text.strip())
    if match is None:
        raise InvalidInput(
            f"{field}: {text!r:.100} is neither a job nor a submission",
            hint="write the id of a job as 12, and of a submission as s:12",
            field=field,
        )
    number = int(match[2])
    return Parent(0, number) if match[1] else Parent(number, 0)


def dependencies_of(named: Mapping[RunAfter, Iterable[str]]) -> list[Dependency]:
    """The dependencies of a description, without repetitions, in the order of its fields."""
    return list(
        dict.fromkeys(
            Dependency(condition, parse_parent(text, condition))
            for condition in RunAfter
            for text in named.get(condition, ())
        )
    )


def outlook_of_job(condition: RunAfter, state: JobState) -> Outlook:
    """Whether the state of the parent fulfils the condition. A job that is tried again has not ended."""
    if state not in FINAL:
        return Outlook.OPEN
    if condition is RunAfter.ENDED:
        return Outlook.MET
    return Outlook.MET if (state is JobState.DONE) is (condition is RunAfter.SUCCEEDED) else Outlook.NEVER


def outlook_of_submission(condition: RunAfter, *, unfinished: bool, failed: bool) -> Outlook:
    """Whether the jobs of a submission fulfil the condition.

    `unfinished`: a job has not ended. `failed`: a job has ended and is not Done.
    """
    if condition is RunAfter.SUCCEEDED and failed:
        return Outlook.NEVER
    if unfinished:
        return Outlook.OPEN
    if condition is RunAfter.FAILED and not failed:
        return Outlook.NEVER
    return Outlook.MET


def outlook_of_all(outlooks: Iterable[Outlook]) -> Outlook:
    """Whether a job may run: all of its conditions must come true."""
    distinct = set(outlooks)
    if Outlook.NEVER in distinct:
        return Outlook.NEVER
    return Outlook.OPEN if Outlook.OPEN in distinct else Outlook.MET


_ENDS: Final[Mapping[JobState, str]] = {
    JobState.DONE: "succeeded",
    JobState.FAILED: "failed",
    JobState.KILLED: "was killed",
    JobState.SKIPPED: "was skipped",
    JobState.SUPERSEDED: "was run again as another job",
    JobState.DELETED: "was deleted",
}


def describe_end(job: int, state: JobState, exit_code: int | None) -> str:
    """The end of a job as a reason to skip another one, such as "job 12 failed (exit 3)"."""
    end = _ENDS.get(state, f"is {state}")
    return (
        f"job {job} {end} (exit {exit_code})"
        if state is JobState.FAILED and exit_code
        else f"job {job} {end}"
    )


class _Graph:
    """Walks a graph of names depth first, without recursion, since a chain may be long."""

    def __init__(self, parents: Mapping[str, Iterable[str]]) -> None:
        self._parents = parents
        self.order: list[str] = []
        self._known: set[str] = set()

    def visit(self, start: str) -> None:
        path: dict[str, Any] = {}
        if start not in self._known:
            path[start] = iter(self._parents[start])
        while path:
            name = next(reversed(path))
            following = next((parent for parent in path[name] if parent not in self._known), None)
            if following is None:
                del path[name]
                self._known.add(name)
                self.order.append(name)
            elif following in path:
                names = list(path)
                raise _cycle([*names[names.index(following) :], following])
            else:
                path[following] = iter(self._parents[following])


def _cycle(names: list[str]) -> InvalidInput:
    shown = names if len(names) <= 12 else [*names[:10], "...", names[-1]]
    return InvalidInput(
        f"the jobs wait for each other: {' after '.join(shown)}", hint="remove one of these dependencies"
    )


def order_of(parents: Mapping[str, Iterable[str]]) -> list[str]:
    """The names in an order in which each comes after its parents. Raises InvalidInput with the path of a cycle."""
    graph = _Graph(parents)
    for name in parents:
        graph.visit(name)
    return graph.order
