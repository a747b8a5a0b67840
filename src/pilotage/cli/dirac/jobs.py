"""Which jobs a command of DIRAC means: ids, files of ids, and job groups."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.job_selection import no_jobs_error, require_named_jobs
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.client.selections import parse_ids
from pilotage.client.text_files import read_text
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.client import Client

FAILED = 2
"""The exit code of DIRAC's commands when they could not do their work for each job."""
RECENT = 30 * 86_400.0
"""DIRAC chooses no jobs of a job group that were submitted longer ago, in seconds."""
MAX_ID_FILE = 16 << 20

JobIds = Annotated[list[str] | None, CommandArgument("Job ids, separated by spaces or commas", "JobID")]
RequiredJobIds = Annotated[list[str], CommandArgument("Job ids, separated by spaces or commas", "JobID")]
IdFile = Annotated[
    Path | None, CommandOption("Also jobs whose ids are in this file", "FILE", names="-f --File")
]
JobGroup = Annotated[
    str | None,
    CommandOption("Also jobs of this group of the last 30 days", "NAME", names="-g --JobGroup"),
]


def ids_of_file(path: Path) -> list[int]:
    """The job ids in a file, as `dirac-wms-job-submit -f` writes it."""
    return parse_ids(read_text(path, "a list of job ids", MAX_ID_FILE).split())


def chosen_ids(
    client: Client,
    words: Iterable[str] | None,
    file: Path | None,
    group: str | None,
    states: list[str] | None = None,
) -> list[int]:
    """The named ids, the ids of a file, and the jobs of a job group in one of `states`; each once."""
    ids = parse_ids(words or ())
    if file is not None:
        ids += ids_of_file(file)
    if group is not None:
        if not group.strip():
            raise InvalidInput("-g is empty", hint="name a job group")
        since = time.time() - RECENT
        selection = wire.jobs.Selection(job_group=group, states=states)
        ids += [job.id for job in client.jobs(selection) if job.submitted >= since]
    return list(dict.fromkeys(ids))


def require_jobs(client: Client, ids: list[int]) -> None:
    """Raise NotFound if one of these jobs is unknown, or belongs to another user."""
    require_named_jobs(client, list(map(str, ids)))
    selection = wire.jobs.Selection(ids=ids)
    if len(ids) == 1 and not client.counts(selection).total:
        raise no_jobs_error(client, selection)
