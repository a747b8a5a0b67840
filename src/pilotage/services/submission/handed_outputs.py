"""Checks that jobs have the outputs that are inputs of other jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from pilotage.core.errors import InvalidInput
from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.dependencies import Outlook, Parent
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.job_binding import bound_description
from pilotage.core.jobs.job_outputs import FIELD
from pilotage.core.jobs.json_format import description_from_json
from pilotage.core.jobs.states import JobState
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import attempts, handed_outputs, listing
from pilotage.store.tables.handed_outputs import HandedOutput
from pilotage.store.tables.listing import JobFacts
from pilotage.store.writer.transaction import Transaction


def check_outputs(
    connection: Connection, description: JobDescription, outlooks: Iterable[tuple[Parent, Outlook]]
) -> None:
    """Refuse outputs that jobs lack which have ended as the description needs it."""
    ended = {parent.job for parent, outlook in outlooks if outlook is Outlook.MET}
    for output in description.job_outputs:
        if output.number in ended and (reason := _lacking(connection, output.number, output.path)):
            raise InvalidInput(f"{FIELD}: {reason}", hint=_hint(output.number), field=FIELD)


def _hint(job: int) -> str:
    return f"`pilotage reschedule --done {job}` runs it again in its place, if it is to write the file then"


def hold_outputs(tx: Transaction, description: JobDescription) -> None:
    """Let the retention of another server delete no output that a new submission reads, from the look at it on."""
    if description.job_outputs:
        handed_outputs.hold(tx.connection, [JobId(output.number) for output in description.job_outputs])


def insert_outputs(tx: Transaction, submission: SubmissionId, description: JobDescription) -> None:
    """Let the retention keep the outputs that a new submission reads."""
    handed_outputs.add(
        tx.connection,
        [
            HandedOutput(submission, number, JobId(output.number), output.path)
            for number, output in enumerate(description.job_outputs)
        ],
    )


def lacking_outputs(connection: Connection, submissions: Sequence[int]) -> dict[int, str]:
    """Why these submissions cannot run, by submission: the first output that a job has not written."""
    reasons: dict[int, str] = {}
    for row in handed_outputs.of_submissions(connection, submissions):
        if row.submission not in reasons and (reason := _lacking(connection, row.job, row.name)):
            reasons[row.submission] = reason
    return reasons


def _lacking(connection: Connection, job: int, name: str) -> str:
    """The reason why an ended job does not have an output; "": it has."""
    facts = listing.job_facts(connection, job)
    result = None if facts is None else attempts.result_of(connection, JobId(job), facts.finished_epoch)
    if facts is None or result is None:
        return f"job {job} has no output {name}: it has none any more"
    stdout, stderr = _stream_names(facts, job)
    streams = {stderr: result.stderr, stdout: result.stdout}
    names = {stream for stream, data in streams.items() if data is not None}
    if facts.state != JobState.KILLED:
        names |= {output for output, _ in result.outputs}
    return "" if name in names else f"job {job} has no output {name}"


def _stream_names(facts: JobFacts, job: int) -> tuple[str, str]:
    """The names of the files for standard output and error."""
    description = description_from_json(json.loads(facts.description))
    values = json.loads(facts.parameters) if facts.parameters else []
    names = json.loads(facts.names)
    bound = bound_description(description, names, values, job, facts.first_job, facts.job_count)
    return bound.std_output, bound.std_error
