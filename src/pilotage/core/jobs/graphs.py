"""Documents with several named jobs that depend on each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.jobs.dependencies import EACH, RunAfter, order_of, parse_parent
from pilotage.core.jobs.description import OF_JOB, InputFile
from pilotage.core.jobs.fields import BY_NAME
from pilotage.core.jobs.job_outputs import FIELD, job_output, source_of

JOBS: Final = "jobs"
"""The attribute with the named jobs."""
MAX_NAMED_JOBS: Final = 100_000
FIELDS: Final = (*(str(condition) for condition in RunAfter), EACH)
"""The fields that name parents."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}\Z")


@dataclass(frozen=True, slots=True)
class NamedJob:
    """A job of a document, or several with parameters."""

    name: str
    mapping: Mapping[str, Any]
    """Its fields. The fields that name parents are missing."""
    parents: Mapping[str, tuple[str, ...]]
    """The parents by field: names of the document, or ids as in `12` and `s:12`."""
    sources: tuple[str, ...] = ()
    """The jobs whose outputs are its inputs: names of the document, or ids."""


def is_graph(mapping: Mapping[str, Any]) -> bool:
    return JOBS in mapping


def read_graph(mapping: Mapping[str, Any]) -> list[NamedJob]:
    """The jobs of a document, each after its parents. The other attributes of the document are their defaults.

    Raises InvalidInput for unknown names, and for a cycle with its path.
    """
    jobs = mapping[JOBS]
    if not isinstance(jobs, Mapping) or not jobs:
        raise InvalidInput("jobs must be a mapping of names to job descriptions", field=JOBS)
    if len(jobs) > MAX_NAMED_JOBS:
        raise TooLarge(f"the document has {len(jobs):,} jobs; the limit is {MAX_NAMED_JOBS:,}")
    defaults = {name: value for name, value in mapping.items() if name != JOBS}
    named = {str(name): _named_job(str(name), job, defaults) for name, job in jobs.items()}
    return order_jobs(named)


def order_jobs(named: Mapping[str, NamedJob]) -> list[NamedJob]:
    """The jobs, each after its parents. Raises InvalidInput for unknown names, and for a cycle with its path."""
    within = {name: [parent for parent in _parents(job) if not _is_id(parent)] for name, job in named.items()}
    for name, parents in within.items():
        unknown = next((parent for parent in parents if parent not in named), None)
        if unknown is not None:
            raise InvalidInput(
                f"job {name} depends on {unknown!r:.120}, which the document does not have",
                hint="name a job of the document, or an existing job as 12 or submission as s:12",
                field=name,
            )
    return [named[name] for name in order_of(within)]


def _named_job(name: str, job: Any, defaults: Mapping[str, Any]) -> NamedJob:
    if not _NAME.match(name) or name.upper() == "ANY":
        raise InvalidInput(
            f"{name!r:.120} cannot be the name of a job",
            hint="use letters, digits, _, - and ., beginning with a letter",
            field=JOBS,
        )
    if not isinstance(job, Mapping):
        raise InvalidInput(f"job {name} must be a mapping of fields", field=name)
    fields = {**defaults, **job}
    parents = {field: read_names(field, fields[field]) for field in FIELDS if field in fields}
    own = {field: value for field, value in fields.items() if field not in FIELDS}
    given = {field: names for field, names in parents.items() if names}
    return NamedJob(name, {"job_name": name, **own}, given, _sources(own.get(FIELD, ())))


def _sources(inputs: Any) -> tuple[str, ...]:
    # Commands that read no document start without the expression language.
    from pilotage.core.jobs.value_readers import READERS

    field = BY_NAME[FIELD]
    return sources_of(READERS[field.kind](field, inputs))


def sources_of(inputs: Iterable[InputFile]) -> tuple[str, ...]:
    """The jobs whose outputs these inputs are, each once."""
    return tuple(dict.fromkeys(job_output(file.source).parent for file in inputs if file.mode == OF_JOB))


def read_names(field: str, value: Any) -> tuple[str, ...]:
    """A name, an id, or several, as a list or a text with commas."""
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in items):
        raise InvalidInput(f"{field} must be a name, an id, or a list of them", field=field)
    return tuple(dict.fromkeys(text for item in items if (text := str(item).strip())))


def _parents(job: NamedJob) -> list[str]:
    return [*(parent for given in job.parents.values() for parent in given), *job.sources]


def check_sources(jobs: Iterable[NamedJob], counts: Mapping[str, int]) -> None:
    """Refuse outputs of names that make several jobs. `counts`: the number of jobs by name."""
    for job in jobs:
        for source in job.sources:
            if counts.get(source, 1) != 1:
                raise InvalidInput(
                    f"job {job.name} takes an output of {source}, which makes {counts[source]:,} jobs",
                    hint="outputs are taken of single jobs: name one by its id",
                    field=FIELD,
                )


def _is_id(text: str) -> bool:
    try:
        parse_parent(text, "")
    except InvalidInput:
        return False
    return True


class AcceptedName(NamedTuple):
    """The submission that a name of a document has become."""

    submission: int
    first: int
    """The id of its first job."""


def with_ids(job: NamedJob, known: Mapping[str, AcceptedName]) -> dict[str, tuple[str, ...]]:
    """The parents by field, with ids in place of their names, as far as they are known."""

    def id_of(parent: str) -> str:
        if parent not in known:
            return parent
        # The condition on a single job whose output is taken is one on that job.
        return str(known[parent].first) if parent in job.sources else f"s:{known[parent].submission}"

    return {field: tuple(map(id_of, given)) for field, given in job.parents.items()}


def inputs_with_ids(inputs: Iterable[InputFile], known: Mapping[str, AcceptedName]) -> tuple[InputFile, ...]:
    """The inputs, with the ids of single jobs in place of their names, as far as they are known."""
    return tuple(
        replace(file, source=source_with_id(file.source, known)) if file.mode == OF_JOB else file
        for file in inputs
    )


def source_with_id(source: str, known: Mapping[str, AcceptedName]) -> str:
    parent, path = job_output(source)
    return source_of(str(known[parent].first), path) if parent in known else source
