"""Selection of jobs by ids and conditions: options that several commands share."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.option_groups import OptionGroup
from pilotage.cli.parser import OMIT, CommandArgument, CommandOption
from pilotage.cli.time_format import format_instant, parse_instant
from pilotage.client.selections import parse_ids, single_ids
from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.jobs.states import JobState

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.jobs import Selection

RANGES_SHOWN = 20

IdsArgument = Annotated[list[str] | None, CommandArgument("Job ids: 12, 12-40 or 12,15", "IDS")]
SubmissionOption = Annotated[
    int | None, CommandOption("Jobs of this submission", "N", names="-s --submission", min=1)
]
OwnerOption = Annotated[str | None, CommandOption("Jobs of this user", "USER")]


@dataclass(frozen=True, kw_only=True)
class LastingConditions(OptionGroup):
    """Conditions that a job meets for all of its life."""

    submission: SubmissionOption = None
    owner: OwnerOption = None
    group: Annotated[str | None, CommandOption("Jobs of this group", "GROUP")] = None
    job_group: Annotated[str | None, CommandOption("Jobs of this job group", "NAME")] = None

    def selection(self, ids: list[str] | None) -> Selection:
        """The jobs that meet all conditions, among these if ids are given. Raises InvalidInput."""
        return build_selection(ids, **asdict(self))


@dataclass(frozen=True, kw_only=True)
class JobConditions(LastingConditions):
    """All conditions that choose jobs."""

    state: Annotated[list[str] | None, CommandOption("Jobs in this state; may be repeated", "STATE")] = None
    site: Annotated[str | None, CommandOption("Jobs at this site", "SITE")] = None
    name: Annotated[str | None, CommandOption("Jobs with this name", "NAME")] = None
    since: Annotated[
        str | None, CommandOption("Jobs that ended at or after this time: 2d (ago) or 2026-11-05", "WHEN")
    ] = None
    before: Annotated[
        str | None, CommandOption("Jobs that ended before this time: 30d (ago) or 2026-11-05", "WHEN")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ListConditions(JobConditions):
    """All conditions that choose jobs to be shown. A pattern must not choose jobs to be changed."""

    name: Annotated[
        str | None,
        CommandOption("Jobs with this name; * stands for any text, ? for any one character", "NAME"),
    ] = None

    def selection(self, ids: list[str] | None) -> Selection:
        """The jobs that meet all conditions, among these if ids are given. Raises InvalidInput."""
        return wire.jobs.ListedJobs.by(super().selection(ids))


def build_selection(
    ids: list[str] | None,
    submission: int | None = None,
    state: list[str] | None = None,
    owner: str | None = None,
    group: str | None = None,
    job_group: str | None = None,
    site: str | None = None,
    name: str | None = None,
    since: str | None = None,
    before: str | None = None,
) -> Selection:
    """The selection that the options describe; the parser refuses empty values. Raises InvalidInput for wrong ones."""
    wanted = parse_ids(ids) if ids else None
    states = [parse_state(name) for word in state for name in word.split(",") if name] if state else None
    if wanted == []:
        raise InvalidInput("no job id is given", hint="write ids as 12, 12-40 or 12,15")
    if states == []:
        raise InvalidInput("--state is empty", hint=OMIT)
    return wire.jobs.Selection(
        ids=wanted,
        submission=submission,
        states=states,
        owner=owner,
        group=group,
        job_group=job_group,
        site=site,
        name=name,
        ended_since=parse_instant(since, time.time()) if since is not None else None,
        ended_before=parse_instant(before, time.time()) if before is not None else None,
    )


def parse_state(word: str) -> str:
    """The job state with this name, in its canonical spelling; case is ignored."""
    names = {str(state).lower(): str(state) for state in JobState}
    if word.lower() in names:
        return names[word.lower()]
    import difflib

    alike = difflib.get_close_matches(word.lower(), list(names), n=1)
    hint = f"did you mean {names[alike[0]]}?" if alike else "one of " + ", ".join(names.values())
    raise InvalidInput(f"there is no job state {word!r}", hint=hint)


def require_selection(selection: Selection, command: str) -> Selection:
    """Return `selection`; raise InvalidInput if it has no condition."""
    if selection == wire.jobs.Selection():
        raise InvalidInput(
            "no jobs are selected", hint=f"`pilotage {command} 12-40` or `pilotage {command} -s SUBMISSION`"
        )
    return selection


def describe_selection(selection: Selection) -> str:
    """The selection as text for a message."""
    words: list[str] = []
    if selection.ids:
        words.append(
            f"job {selection.ids[0]}" if len(selection.ids) == 1 else f"{len(selection.ids):,} named jobs"
        )
    if selection.submission is not None:
        words.append(f"submission {selection.submission}")
    if selection.request is not None:
        words.append(f"request {selection.request}")
    if selection.states:
        words.append("state " + " or ".join(selection.states))
    for name in ("owner", "group", "job_group", "site", "name"):
        if value := getattr(selection, name):
            words.append(f"{name.replace('_', ' ')} {value}")
    for name in ("ended_since", "ended_before"):
        if (instant := getattr(selection, name)) is not None:
            words.append(f"{name.replace('_', ' ')} {format_instant(instant, instant, exact=True)}")
    return ", ".join(words) or "all jobs"


def selection_as_options(selection: Selection, *more: str) -> str:
    """The selection as command-line options, to be copied into another command."""
    words = _ranges(selection.ids or [])
    if selection.submission is not None:
        words.append(f"-s {selection.submission}")
    if selection.request is not None:
        words.append(f"--request {selection.request}")
    for name in ("owner", "group", "job_group", "site", "name"):
        if value := getattr(selection, name):
            words.append(f"--{name.replace('_', '-')} {shlex.quote(value)}")
    if pattern := getattr(selection, "name_pattern", None):
        words.append(f"--name {shlex.quote(pattern)}")
    if selection.states:
        words.append(f"--state {','.join(selection.states)}")
    return " ".join([*words, *more])


def _ranges(ids: Sequence[int]) -> list[str]:
    """Ids as ranges, such as 3 5-9; at most RANGES_SHOWN."""
    words: list[str] = []
    for _, run in groupby(enumerate(sorted(ids)), lambda pair: pair[1] - pair[0]):
        members = [id_ for _, id_ in run]
        words.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return words if len(words) <= RANGES_SHOWN else [*words[:RANGES_SHOWN], "..."]


def require_named_jobs(client: Client, words: list[str] | None) -> None:
    """Raise NotFound for unknown jobs among several named ones: the command would act on the others only.

    A single unknown job needs no question: the command itself finds no job.
    """
    named = single_ids(words or ())
    if words is None or words == [str(number) for number in named[:1]]:
        return
    selection = wire.jobs.Selection(ids=named)
    if not named or client.counts(selection).total == len(named):
        return
    known = {job.id for job in client.jobs(selection)}
    missing = " ".join(_ranges([number for number in named if number not in known]))
    raise NotFound(f"there is no job {missing}", hint="or it belongs to another user; nothing was done")


def no_jobs_error(client: Client, selection: Selection) -> NotFound:
    """The error for a selection that matches no job; names the submission or ids if they are unknown."""
    number, name = selection.submission, selection.name
    if name is not None and wire.jobs.ListedJobs.by(selection) != selection:
        hint = f"only lists take patterns: `pilotage status --name {shlex.quote(name)}`"
        return NotFound(f"no job of yours has the name {name}", hint=hint)
    if number is not None and not client.counts(wire.jobs.Selection(submission=number)).total:
        return NotFound(f"there is no submission {number}", hint="or it belongs to another user")
    if selection == wire.jobs.Selection(ids=selection.ids) and selection.ids:
        return NotFound(
            f"there is no job {selection_as_options(selection)}", hint="or it belongs to another user"
        )
    return NotFound("no job of yours matches the selection")
