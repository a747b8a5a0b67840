"""The job description: its fields, and the conditions that hold between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pilotage.core.errors import InvalidInput, check_mistakes
from pilotage.core.jobs.dependencies import (
    MAX_NAMED,
    Dependency,
    Parent,
    RunAfter,
    dependencies_of,
    parse_parent,
)
from pilotage.core.jobs.in_place import folders_of, in_place_mistakes
from pilotage.core.jobs.job_outputs import JobOutput, job_output
from pilotage.core.jobs.stream_names import stream_mistakes
from pilotage.core.mail import is_mail_address, mail_addresses

Scalar: TypeAlias = int | float | str | bool

MAX_JOBS: Final = 100_000
COPY, SHARED, URL, OF_JOB = "copy", "shared", "url", "job"
PRIVATE: Final = "private"
TRUNCATE, APPEND = "truncate", "append"
WHOLE_NODE_TAG: Final = "WholeNode"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that the payload finds as `name` in its folder.

    `copy`: `source` is a path on the submitting machine, and the file is uploaded. `shared`: `source` is a path on
    a file system that the node mounts too. `url`: the node downloads `source`. `job`: `source` is an output of another
    job, as in `12/result.json`.
    """

    name: str
    mode: str
    source: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class JobDescription:
    """One job, or the common part of all jobs of a submission. `fields.FIELDS` explains each field."""

    executable: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    setup_lines: tuple[str, ...] = ()
    container: str = ""
    input_sandbox: tuple[InputFile, ...] = ()
    output_sandbox: tuple[str, ...] = ()
    std_output: str = "stdout"
    std_error: str = "stderr"
    job_name: str = ""
    job_group: str = ""
    job_type: str = "User"
    user_priority: int = 1
    cpu_time: int = 0
    wall_time: int = 0
    warn: int = 0
    memory: int = 0
    disk: int = 0
    processors: int = 1
    max_processors: int = 0
    whole_node: bool = False
    tags: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    banned_sites: tuple[str, ...] = ()
    grid_ces: tuple[str, ...] = ()
    grid_middlewares: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    pilot_types: tuple[str, ...] = ()
    submit_pools: tuple[str, ...] = ()
    force_generic: bool = False
    setup: str = ""
    requirements: str = ""
    host_requirements: str = ""
    output_se: str = ""
    log_level: str = "INFO"
    on_cutoff: str = "continue"
    retries: int = 0
    after: tuple[str, ...] = ()
    after_ok: tuple[str, ...] = ()
    after_fail: tuple[str, ...] = ()
    after_each: tuple[str, ...] = ()
    hold: bool = False
    parallel: int = 0
    folder: str = ""
    stdout_file: str = ""
    stderr_file: str = ""
    open_mode: str = TRUNCATE
    folder_mark: str = ""
    umask: str = ""
    mail_type: tuple[str, ...] = ()
    mail_user: str = ""

    @property
    def dependencies(self) -> list[Dependency]:
        """The conditions that all jobs of the submission share."""
        named = {
            RunAfter.ENDED: self.after,
            RunAfter.SUCCEEDED: self.after_ok,
            RunAfter.FAILED: self.after_fail,
        }
        conditions = dependencies_of(named)
        given = {dependency.parent for dependency in conditions}
        parents = dict.fromkeys(Parent(source.number, 0) for source in self.job_outputs)
        implied = [Dependency(RunAfter.SUCCEEDED, parent) for parent in parents if parent not in given]
        return [*conditions, *implied]

    @property
    def job_outputs(self) -> tuple[JobOutput, ...]:
        """Its inputs that are outputs of other jobs. Without a condition on such a job, it must be Done first."""
        return tuple(job_output(file.source) for file in self.input_sandbox if file.mode == OF_JOB)

    @property
    def is_dependent(self) -> bool:
        """Whether its jobs wait for the end of other jobs."""
        named = self.after or self.after_ok or self.after_fail or self.after_each
        return bool(named or any(file.mode == OF_JOB for file in self.input_sandbox))

    @property
    def begins_blocked(self) -> bool:
        """Whether its jobs may begin outside of the task queues."""
        return self.is_dependent or self.hold or bool(self.parallel)

    @property
    def needed_folders(self) -> frozenset[str]:
        """The folders that a node must share to run it in place."""
        return folders_of(self.folder, (self.stdout_file, self.stderr_file))

    @property
    def required_tags(self) -> tuple[str, ...]:
        """The tags used for matching: `tags`, plus `WholeNode` if the job requests a whole node."""
        extra = (WHOLE_NODE_TAG,) if self.whole_node and WHOLE_NODE_TAG not in self.tags else ()
        return self.tags + extra


@dataclass(frozen=True, slots=True)
class Submission:
    """One description, and the parameter values that make one or many jobs from it.

    `names` are the names of the parameters ("" is the unnamed parameter). `parameters` has one row of values per job,
    in the order of `names`. Without parameters the submission is one job.
    """

    description: JobDescription
    names: tuple[str, ...] = ()
    parameters: tuple[tuple[Scalar, ...], ...] = ()

    @property
    def count(self) -> int:
        return len(self.parameters) if self.names else 1


def validate_description(description: JobDescription) -> JobDescription:
    """The description with the banned sites removed from `sites`; raises `InvalidInput` for contradictions."""
    check_mistakes(_mistakes(description))
    return _without_banned(description)


def _mistakes(description: JobDescription) -> Iterator[InvalidInput]:
    if not description.executable:
        yield InvalidInput("the executable must not be empty", field="executable")
    if not description.job_type:
        yield InvalidInput("the job type must not be empty", field="job_type")
    if description.pilot_types == (PRIVATE,) and description.force_generic:
        yield InvalidInput(
            "force_generic requires generic pilots, but pilot_types allows private pilots only",
            field="force_generic",
        )
    if 0 < description.max_processors < description.processors:
        yield InvalidInput(
            f"max_processors ({description.max_processors}) must be at least processors"
            f" ({description.processors})",
            field="max_processors",
        )
    if 0 < description.wall_time <= description.warn:
        yield InvalidInput(
            f"warn ({description.warn} s) must be shorter than wall_time ({description.wall_time} s)",
            hint="the program is warned this long before its end",
            field="warn",
        )
    yield from _dependency_mistakes(description)
    yield from path_mistakes(description)
    yield from _in_place_mistakes(description)
    yield from stream_mistakes(
        description.std_output,
        description.std_error,
        description.executable,
        [(item.name, item.mode == COPY) for item in description.input_sandbox],
    )
    yield from _mail_and_name_mistakes(description)
    if description.sites and set(description.sites) <= set(description.banned_sites):
        yield InvalidInput("all requested sites are also in banned_sites", field="sites")


def _mail_and_name_mistakes(description: JobDescription) -> Iterator[InvalidInput]:
    for address in mail_addresses(description.mail_user):
        if not is_mail_address(address):
            text = f"mail_user: {address!r:.100} is not an address of mail"
            yield InvalidInput(text, field="mail_user")
    names: set[str] = set()
    for file in description.input_sandbox:
        if file.name in names:
            yield InvalidInput(f"two input files have the name {file.name!r}", field="input_sandbox")
        names.add(file.name)


def _in_place_mistakes(description: JobDescription) -> Iterator[InvalidInput]:
    return in_place_mistakes(
        description.folder,
        (description.stdout_file, description.stderr_file),
        (description.folder_mark, description.umask),
        has_inputs=bool(description.input_sandbox),
    )


def _dependency_mistakes(description: JobDescription) -> Iterator[InvalidInput]:
    outputs = len(description.job_outputs)
    named = len(description.after) + len(description.after_ok) + len(description.after_fail) + outputs
    if named > MAX_NAMED:
        yield InvalidInput(
            f"the job waits for {named:,} jobs and submissions; the limit is {MAX_NAMED:,}",
            hint="name a submission, as in s:12, in place of its jobs",
            field="after_ok",
        )
    if not description.after_each:
        return
    if description.parallel:
        yield InvalidInput("parallel cannot be combined with after_each", field="parallel")
    if (
        len(description.after_each) > 1
        or not parse_parent(description.after_each[0], "after_each").submission
    ):
        yield InvalidInput("after_each names one submission, as in s:12", field="after_each")
    if named:
        yield InvalidInput(
            "after_each cannot be combined with after, after_ok, after_fail and inputs of jobs",
            field="after_each",
        )


def _without_banned(description: JobDescription) -> JobDescription:
    if not description.sites:
        return description
    allowed = tuple(site for site in description.sites if site not in description.banned_sites)
    return replace(description, sites=allowed, banned_sites=())


def path_mistakes(description: JobDescription) -> Iterator[InvalidInput]:
    """An error for each output or input name outside of the payload's folder."""
    paths = [(description.std_output, "std_output"), (description.std_error, "std_error")]
    paths += [(name, "output_sandbox") for name in description.output_sandbox]
    paths += [(file.name, "input_sandbox") for file in description.input_sandbox]
    paths += [(output.path, "input_sandbox") for output in description.job_outputs]
    for path, field in paths:
        try:
            check_relative_path(path, field)
        except InvalidInput as error:
            yield error


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def check_relative_path(path: str, field: str) -> None:
    if not path or path.endswith("/"):
        raise InvalidInput(f"{field}: {path!r} is not a file name", field=field)
    if path.startswith(("/", "~")):
        raise InvalidInput(
            f"{field}: {path!r} is an absolute path",
            hint="give a path relative to the job's folder",
            field=field,
        )
    if ".." in path.split("/"):
        raise InvalidInput(f"{field}: {path!r} is outside of the job's folder", hint="remove ..", field=field)
    if _CONTROL.search(path):
        raise InvalidInput(f"{field}: {path!r} contains control characters", field=field)
