"""`squeue`: list jobs that have not ended."""

from __future__ import annotations

import os
import time
from typing import Final

from pilotage.cli.session import session_of_environment
from pilotage.cli.slurm.columns import parse_letters, parse_names, print_table
from pilotage.cli.slurm.job_json import print_document, queue_document
from pilotage.cli.slurm.job_view import SlurmJobs
from pilotage.cli.slurm.options import ReadOptions
from pilotage.cli.slurm.query_options import SQUEUE_OPTIONS
from pilotage.cli.slurm.rows import SlurmJobRow, make_rows
from pilotage.cli.slurm.selection import filter_of, find_listed, named_jobs
from pilotage.cli.slurm.squeue_columns import COLUMNS, DEFAULT_FORMAT, LONG_FORMAT
from pilotage.cli.slurm.states import COMPLETING, PENDING, RUNNING, parse_states
from pilotage.cli.slurm.usage import note, show_usage
from pilotage.core.errors import InvalidInput, NotFound

MIN_JOB_AGE: Final = 3600
"""Seconds for which `-t all` lists ended jobs."""


def squeue(words: list[str]) -> int:
    """List jobs that have not ended, or jobs in the states that are named."""
    read = SQUEUE_OPTIONS.read_with_variables(words, os.environ, ("format", "Format", "json"))
    if show_usage(SQUEUE_OPTIONS, read, "squeue [OPTIONS]"):
        return 0
    for text in SQUEUE_OPTIONS.ignored_notes(read):
        note("squeue", text)
    with session_of_environment().client() as client:
        rows = _rows(SlurmJobs(client), read)
        _print(read, rows)
    return 0


def _rows(book: SlurmJobs, read: ReadOptions) -> list[SlurmJobRow]:
    values = read.values
    now = time.time()
    states = parse_states(values["states"]) if values.get("states") else {PENDING, RUNNING, COMPLETING}
    if "start" in values:
        states = {PENDING}
    conditions = filter_of(values, book.client.whoami().user if "me" in values else "", states)
    by_task = "array" in values or "json" in values
    if "jobs" in values:
        numbers = [values["jobs"]] if values["jobs"] else read.rest
        by_task = by_task or any("_" in word for word in numbers)
        jobs, missing = named_jobs(book, numbers)
        if missing and not jobs and len(missing) == 1:
            raise NotFound(f"Invalid job id: there is no job {missing[0].number}")
        jobs = [job for job in jobs if conditions.takes(job)]
    elif read.rest:
        raise InvalidInput(f"unexpected word: {read.rest[0]}", hint="squeue -j 12")
    else:
        jobs = find_listed(book, conditions, states, ended_since=now - MIN_JOB_AGE)
    rows = make_rows(jobs, now, each_task=by_task)
    return _ordered(rows, values.get("sort", ""))


def _ordered(rows: list[SlurmJobRow], text: str) -> list[SlurmJobRow]:
    """Sort by the letters of --sort; the first one is the most important. Numbers are compared as numbers."""
    by_letter = {column.letter: column for column in COLUMNS if column.letter}
    for part in reversed([part.strip() for part in text.split(",") if part.strip()]):
        letter = part.lstrip("+-")
        if letter not in by_letter:
            raise InvalidInput(f"--sort {text}: {letter or part} is not understood")
        rows = sorted(
            rows, key=lambda row: _sort_key(by_letter[letter].value(row)), reverse=part.startswith("-")
        )
    return rows


def _sort_key(text: str) -> tuple[float, str]:
    number = text.partition("_")[0]
    return (float(number), text) if number.isdigit() else (0.0, text)


def _print(read: ReadOptions, rows: list[SlurmJobRow]) -> None:
    values = read.values
    if "json" in values:
        print_document({"jobs": [queue_document(row) for row in rows]})
        return
    if "long" in values and "noheader" not in values:
        print(time.strftime("%a %b %d %H:%M:%S %Y"))
    if "Format" in values:
        pieces = parse_names(values["Format"], COLUMNS, "--Format")
    else:
        default = LONG_FORMAT if "long" in values else DEFAULT_FORMAT
        pieces = parse_letters(values.get("format") or default, COLUMNS, "--format")
    print_table(pieces, rows, header="noheader" not in values)
