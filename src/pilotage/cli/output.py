"""`pilotage output`: download the outputs of jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Advance
from pilotage.cli.job_selection import (
    IdsArgument,
    JobConditions,
    no_jobs_error,
    require_named_jobs,
    require_selection,
)
from pilotage.cli.option_groups import with_option_groups
from pilotage.cli.outcome import JOB_FAILED, OUTPUT_MISSING, SHOWN, report_incomplete
from pilotage.cli.output_folders import folders_of, has_placeholders
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected
from pilotage.core.jobs.states import FINAL
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.jobs import JobSummary


@dataclass
class FetchReport:
    """The JSON of `output`."""

    folder: str
    jobs: list[int] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    not_done: dict[str, str] = field(default_factory=dict)
    """State by job id."""
    outputs_incomplete: list[int] = field(default_factory=list)
    """Done jobs with a missing output."""
    failed: dict[str, str] = field(default_factory=dict)
    """Reason by "<job id>/<name>" for outputs that could not be downloaded."""


@connected
@with_option_groups
def output(
    session: Session,
    conditions: JobConditions,
    ids: IdsArgument = None,
    folder: Annotated[
        str,
        CommandOption(
            "Target folder; the outputs of a job go to DIR/<id>, or to a folder such as 'out/{name}':"
            " {id}, {name}, {submission}, a parameter's {NAME}, {param} for the unnamed one",
            "DIR",
            names="--dir -d",
        ),
    ] = ".",
    force: Annotated[bool, CommandOption("Overwrite existing files")] = False,
) -> int | None:
    """Download the outputs of jobs that have ended.

    The exit code is 1 if a job is not Done or a download failed.
    It is 8 if all jobs are Done but an output is missing.
    """
    selection = require_selection(conditions.selection(ids), "output")
    report = FetchReport(folder)
    by_name = has_placeholders(folder)
    with session.client() as client:
        require_named_jobs(client, ids)
        jobs = list(client.jobs(selection))
        if not jobs:
            raise no_jobs_error(client, selection)
        with session.screen.progress("outputs") as advance:
            if by_name:  # a job and the one that ran it again may have one name
                jobs = [job for job in jobs if job.state != "Superseded"]
            target = folders_of(folder, jobs) if by_name else Path(folder)
            _fetch(client, jobs, target, force, report, advance)
    incomplete = [job for job in jobs if job.outputs_incomplete and job.state == "Done"]
    report.outputs_incomplete = [job.id for job in incomplete]
    _report(session, report)
    if incomplete:
        report_incomplete(session.screen, incomplete[:SHOWN], len(incomplete))
    if report.not_done or report.failed:
        return JOB_FAILED
    return OUTPUT_MISSING if incomplete else None


def _fetch(
    client: Client,
    jobs: list[JobSummary],
    target: Path | dict[int, Path],
    force: bool,
    report: FetchReport,
    advance: Advance,
) -> None:
    for job in jobs:
        if job.state not in ("Done", "Superseded"):
            report.not_done[str(job.id)] = job.state
    ended = [job.id for job in jobs if job.state in FINAL]
    for number, download in enumerate(client.download_many(ended, target, force=force), 1):
        report.jobs.append(download.job)
        report.files += map(str, download.written)
        report.kept += map(str, download.kept)
        for name, why in download.failed.items():
            report.failed[f"{download.job}/{name}".rstrip("/")] = why
        advance(number, len(ended), "")


def _report(session: Session, report: FetchReport) -> None:
    screen = session.screen
    if session.as_json:
        screen.json(report)
        return
    files, jobs = plural(len(report.files), "file"), plural(len(report.jobs), "job")
    screen.line(f"{files} of {jobs} in {report.folder}")
    if not (report.files or report.kept or report.failed or report.not_done):
        screen.note("there is no output: these jobs printed nothing and stored no file")
    if report.kept:
        screen.note(f"{len(report.kept):,} existing files were kept (--force overwrites them)")
    for place, why in list(report.failed.items())[:10]:
        screen.note(f"not downloaded: {place}: {why}")
    if len(report.failed) > 10:
        screen.note(f"... and {len(report.failed) - 10:,} more were not downloaded")
    for job, state in list(report.not_done.items())[:10]:
        screen.note(f"job {job} is {state}: see `pilotage status {job}`")
    if len(report.not_done) > 10:
        screen.note(f"... and {len(report.not_done) - 10:,} more are not Done")
