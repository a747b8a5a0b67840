"""Applies a change that `why` proposes: the job is submitted again with it, and ends."""

from __future__ import annotations

from typing import Any

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.parametric import uses_job_number
from pilotage.core.jobs.per_job_inputs import RERUN_COLUMN
from pilotage.server.web.visit import Visit
from pilotage.wire.jobs import ACT_ON_JOBS, SHOW_JOB, ActionRequest, Selection
from pilotage.wire.submissions import (
    SHOW_SOURCE,
    SUBMIT,
    Parameters,
    SourceQuery,
    SubmissionSource,
    SubmitRequest,
)
from pilotage.wire.why import WHY_JOB, Opening

_NUMBERS = frozenset({"memory", "disk", "processors", "cpu_time", "wall_time"})
_ADDED = frozenset({"sites", "grid_ces", "pilot_types"})
_REMOVED = frozenset({"banned_sites"})
_TEXTS = frozenset({"requirements", "host_requirements", "output_se", "setup", "job_type"})
_DECIDED = ("after", "after_ok", "after_fail", "after_each", "hold")
"""Conditions that a waiting job has passed: its successor depends on nothing."""


def changed_attribute(opening: Opening) -> str:
    """The attribute that a button changes; "": there is no button."""
    known = _NUMBERS | _ADDED | _REMOVED | _TEXTS | {"platforms", "tags", "force_generic"}
    return opening.attribute if opening.attribute in known else ""


def change_description(description: dict[str, Any], attribute: str, value: str) -> dict[str, Any]:
    """A description with a change of `why`: another number or text, or a set with a member more or less."""
    changed = {name: given for name, given in description.items() if name not in _DECIDED}
    given = changed.get(attribute)
    members = given if isinstance(given, list) else []
    if attribute in _NUMBERS:
        changed[attribute] = int(value)
    elif attribute in _REMOVED or (attribute == "tags" and value in members):
        changed[attribute] = [member for member in members if member != value]
    elif attribute in _ADDED or attribute in ("platforms", "tags"):
        changed[attribute] = [*members, value] if value else []
    elif attribute == "force_generic":
        changed[attribute] = False
    else:
        changed[attribute] = value
    if attribute == "processors":
        changed.pop("max_processors", None)
    return changed


async def proposed(visit: Visit, job: int, attribute: str, value: str) -> Opening:
    """The change, if `why` proposes it now. Raises Conflict."""
    why = await visit.ask(WHY_JOB, job=job)
    for opening in why.openings:
        if (changed_attribute(opening), opening.value) == (attribute, value):
            return opening
    raise Conflict(f"this change would no longer help job {job}", hint="load the page of the job again")


async def apply_change(visit: Visit, job: int, opening: Opening) -> int:
    """Submit the job again with the change and kill the old one; returns the new one.

    The old job is held first. So it cannot start meanwhile, and is there if the submission is refused.
    """
    summary = (await visit.ask(SHOW_JOB, job=job)).job
    selection = Selection(ids=[job])
    source = await visit.ask(SHOW_SOURCE, SourceQuery(ids=[job]), submission_id=summary.submission)
    request = changed_submission(source, opening)
    held = await visit.ask(
        ACT_ON_JOBS, ActionRequest(selection, reason=f"to be submitted with {opening.text}"), verb="hold"
    )
    if not held.done:
        raise Conflict(held.refused[0].message if held.refused else f"job {job} does not wait any more")
    try:
        answer = await visit.ask(SUBMIT, request)
    except BaseException:
        await visit.ask(
            ACT_ON_JOBS, ActionRequest(selection, reason="its change was refused"), verb="release"
        )
        raise
    reason = f"submitted as job {answer.first} with {opening.text}"
    await visit.ask(ACT_ON_JOBS, ActionRequest(selection, reason=reason), verb="kill")
    return answer.first


def changed_submission(source: SubmissionSource, opening: Opening) -> SubmitRequest:
    """The submission of the one job of a source with a change."""
    [values] = source.jobs
    columns = [place for place, name in enumerate(source.names) if name != RERUN_COLUMN]
    names = [source.names[place] for place in columns]
    old: JobDescription = description_from_json(source.description)
    if names and uses_job_number(old):
        raise InvalidInput(
            "this job has a number of its submission in its description (%n), and would get another one",
            hint="submit it with a parameter instead of %n",
        )
    return SubmitRequest(
        description=change_description(source.description, opening.attribute, opening.value),
        parameters=Parameters(
            [*names, RERUN_COLUMN], [[*(values.values[place] for place in columns), values.job]]
        ),
        inputs=source.inputs,
        group=source.group,
        key=f"change of job {values.job}: {opening.attribute} {opening.value}"[:255],
    )
