"""Finds the stored outputs of a job: standard output and error in the store, files in the sandbox."""

from __future__ import annotations

from pilotage.core.jobs.states import FINAL, JobState
from pilotage.outside.sandbox.directory import DirectorySandbox
from pilotage.services.jobs.payload import stored_description
from pilotage.store.tables import attempts
from pilotage.store.tables.listing import JobFacts
from pilotage.wire.jobs import OutputFile


def has_applied_result(facts: JobFacts) -> bool:
    """Whether the outputs of the last attempt are the outputs of the job. `facts`: from `listing.job_facts`."""
    return facts.state in FINAL and facts.state not in (JobState.KILLED, JobState.SKIPPED, JobState.DELETED)


STREAMS = ("stdout", "stderr")


def stream_names(facts: JobFacts, job: int) -> tuple[str, str]:
    """The names of the files for standard output and error; equal if both go to the same file."""
    description = stored_description(facts, job)
    return description.std_output, description.std_error


def _killed(facts: JobFacts) -> bool:
    """Whether the job was killed: then only the received standard output and error are kept."""
    return facts.state == JobState.KILLED


def inline_streams(facts: JobFacts, job: int, result: attempts.Result | None) -> dict[str, bytes]:
    """Standard output and error as kept in the store, by their file names."""
    if result is None or not (has_applied_result(facts) or _killed(facts)):
        return {}
    output, error = stream_names(facts, job)
    # Where both go to one file, the pilot sends it as standard output.
    pairs = ((error, result.stderr), (output, result.stdout))
    return {name: data for name, data in pairs if data is not None and (data or error != output)}


def stored_files(
    sandbox: DirectorySandbox, facts: JobFacts, job: int, result: attempts.Result | None
) -> dict[str, int]:
    """The sizes in bytes of the job's files in the sandbox, by name."""
    if _killed(facts):
        names = set(stream_names(facts, job))
    elif not has_applied_result(facts) or result is None or not result.outputs:
        return {}
    else:
        names = {name for name, _ in result.outputs}
    return {name: size for name, size in sandbox.outputs(job, facts.finished_epoch) if name in names}


def listed_outputs(
    sandbox: DirectorySandbox, facts: JobFacts, job: int, result: attempts.Result | None
) -> list[OutputFile]:
    """All outputs of a job, ordered by name."""
    inline = {name: len(data) for name, data in inline_streams(facts, job, result).items()}
    stored = stored_files(sandbox, facts, job, result)
    return [OutputFile(name, size) for name, size in sorted({**inline, **stored}.items())]
