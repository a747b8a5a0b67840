"""`sbatch`: submit a batch script."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pilotage import wire
from pilotage.cli.session import LONG_PATIENCE, PATIENCE, session_of_environment
from pilotage.cli.slurm.batch_job import DescribedBatchJob, make_batch_job
from pilotage.cli.slurm.job_numbers import parse_number
from pilotage.cli.slurm.job_view import SlurmJobs
from pilotage.cli.slurm.options import ReadOptions
from pilotage.cli.slurm.sbatch_options import SBATCH_OPTIONS
from pilotage.cli.slurm.script import BatchScript, read_script
from pilotage.cli.slurm.states import CANCELLED
from pilotage.cli.slurm.usage import note, show_usage
from pilotage.client.description import from_mapping
from pilotage.client.submission import SubmissionUpload, prepare
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.client import Client


def sbatch(words: list[str]) -> int:
    """Submit a batch script; print the number of the job or array."""
    line = SBATCH_OPTIONS.read(words)
    if show_usage(SBATCH_OPTIONS, line, "sbatch [OPTIONS] SCRIPT [ARGUMENTS]"):
        return 0
    script = read_script(line.rest, line.values.get("wrap"))
    options = batch_options(line, script)
    values = options.values
    with session_of_environment().client(patience=LONG_PATIENCE if "wait" in values else PATIENCE) as client:
        job = described(client, options, script, line.rest[1:])
        prepared = prepared_job(job)
        if not {"quiet", "parsable"} & values.keys():
            for text in (*SBATCH_OPTIONS.ignored_notes(options), *job.notes):
                note("sbatch", text)
        if "verbose" in values:
            note("sbatch", f"description: {job.description | {'arguments': ['...']}}")
        if "test-only" in values:
            for text in client.check(prepared).warnings:
                note("sbatch", text)
            note("sbatch", "the job would be accepted")
            return 0
        first = client.send(prepared).first
        if "quiet" not in values:
            print(first if "parsable" in values else f"Submitted batch job {first}", flush=True)
        return wait_for(client, first) if "wait" in values else 0


def batch_options(line: ReadOptions, script: BatchScript) -> ReadOptions:
    """The command line over variables over the lines of the script, as in Slurm."""
    lines = ReadOptions()
    for number, words in script.directives():
        read = SBATCH_OPTIONS.read(words, place=f"line {number}: ")
        if read.rest:
            raise InvalidInput(
                f"line {number}: invalid directive found in batch script: {read.rest[0]}",
                hint="--name=value has no spaces, and a comment begins with #",
            )
        lines = read.over(lines)
    return line.over(SBATCH_OPTIONS.read_variables(os.environ)).over(lines)


def described(
    client: Client, options: ReadOptions, script: BatchScript, arguments: list[str]
) -> DescribedBatchJob:
    book = SlurmJobs(client)
    return make_batch_job(
        options.values,
        script,
        arguments,
        parent=lambda number: book.parent(parse_number(number)),
        namesakes=book.namesakes,
        partitions=book.partitions,
    )


def prepared_job(job: DescribedBatchJob) -> SubmissionUpload:
    mapping = dict(job.description)
    if job.values is not None:
        mapping["parameters"] = job.values
    return prepare(from_mapping(mapping), group=job.group)


def wait_for(client: Client, first: int) -> int:
    """Wait for the end of a job or array. The exit code is the highest one of its jobs; 1 for a killed one."""
    [summary] = client.jobs(wire.jobs.Selection(ids=[first]))
    selection = wire.jobs.Selection(submission=summary.submission)
    client.wait(selection)
    ends = [(job.state, *job.exit_code) for job in SlurmJobs(client).jobs(selection)]
    return max((1 if signal or state is CANCELLED else code for state, code, signal in ends), default=0)


def exit_status(code: int, signal: int) -> int:
    return 128 + signal if signal else code
