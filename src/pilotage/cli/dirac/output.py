"""`dirac-wms-job-get-output`: download the outputs of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.dirac.jobs import (
    FAILED,
    IdFile,
    JobGroup,
    JobIds,
    chosen_ids,
    ids_of_file,
    require_jobs,
)
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import session_of_environment
from pilotage.client.selections import parse_ids
from pilotage.core.jobs.states import FINAL
from pilotage.core.printable import printable

if TYPE_CHECKING:
    from pilotage.client import Client


def get_output(
    jobs: JobIds = None,
    folder: Annotated[
        Path | None, CommandOption("Folder for the folders of the jobs", "DIR", names="-D --Dir")
    ] = None,
    file: IdFile = None,
    group: JobGroup = None,
) -> int:
    """Download outputs to a folder JobID for each job.

    A JobID may also be a file of job ids. A job whose folder exists is left out. The exit code is 2 if the output of
    a job could not be downloaded.
    """
    with session_of_environment().client() as client:
        ids = chosen_ids(client, (), file, group, ["Done", "Failed"])
        ids = list(dict.fromkeys(ids + _named(jobs or [])))
        if not ids:
            print("No jobs selected")
            return 0
        target = (folder or Path()) / (group or "")
        wanted = [job for job in ids if not (target / str(job)).exists()]
        return _download(client, wanted, target) if wanted else 0


def _named(words: list[str]) -> list[int]:
    ids: list[int] = []
    for word in (part for text in words for part in text.split(",") if part):
        if Path(word).is_dir():
            print(f"Output for job {word} already retrieved, remove the output directory to redownload")
        elif Path(word).is_file():
            ids += ids_of_file(Path(word))
        else:
            ids += parse_ids([word])
    return ids


def _download(client: Client, ids: list[int], target: Path) -> int:
    require_jobs(client, ids)
    states = {job.id: job.state for job in client.jobs(wire.jobs.Selection(ids=ids))}
    errors = {job: f"the job is {state}" for job, state in states.items() if state not in FINAL}
    for got in client.download_many([job for job in ids if job not in errors], target):
        if got.failed:
            name, reason = next(iter(got.failed.items()))
            errors[got.job] = f"{name}: {reason}" if name else reason
        elif got.written or got.kept:
            print(f"Job output sandbox retrieved in {got.folder}/")
        else:
            errors[got.job] = "the job has no output"
    for job, reason in errors.items():
        print(printable(f"ERROR {job}: {reason}"))
    return FAILED if errors else 0
