"""Documents with several named jobs that depend on each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pilotage.core.errors import InvalidInput, TooLarge
from pilotage.core.jobs.dependencies import EACH, RunAfter, order_of, parse_parent

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
    return NamedJob(
        name, {"job_name": name, **own}, {field: given for field, given in parents.items() if given}
    )


def read_names(field: str, value: Any) -> tuple[str, ...]:
    """A name, an id, or several, as a list or a text with commas."""
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in items):
        raise InvalidInput(f"{field} must be a name, an id, or a list of them", field=field)
    return tuple(dict.fromkeys(text for item in items if (text := str(item).strip())))


def _parents(job: NamedJob) -> list[str]:
    return [parent for given in job.parents.values() for parent in given]


def _is_id(text: str) -> bool:
    try:
        parse_parent(text, "")
    except InvalidInput:
        return False
    return True


def with_ids(job: NamedJob, submissions: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """The parents by field, with the submissions of named jobs in place of their names, as far as they are known."""
    return {
        field: tuple(f"s:{submissions[parent]}" if parent in submissions else parent for parent in given)
        for field, given in job.parents.items()
    }
