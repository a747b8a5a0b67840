"""`sacct`: list jobs, also ended ones, with their use of resources."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Final

from pilotage.cli.session import session_of_environment
from pilotage.cli.slurm.amounts import parse_moment
from pilotage.cli.slurm.columns import FormatPiece, TableColumn, find_column, print_table
from pilotage.cli.slurm.job_json import print_document, record_document
from pilotage.cli.slurm.job_numbers import JobNumber, parse_numbers
from pilotage.cli.slurm.job_view import SlurmJob, SlurmJobs
from pilotage.cli.slurm.options import ReadOptions
from pilotage.cli.slurm.query_options import SACCT_OPTIONS
from pilotage.cli.slurm.rows import SlurmJobRow, make_rows
from pilotage.cli.slurm.sacct_columns import BRIEF_FIELDS, COLUMNS, DEFAULT_FIELDS, LONG_FIELDS
from pilotage.cli.slurm.selection import JobFilter, filter_of, find_listed
from pilotage.cli.slurm.states import ALL_STATES, parse_states
from pilotage.cli.slurm.usage import note, show_usage
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping


def sacct(words: list[str]) -> int:
    """List jobs, also ended ones."""
    read = SACCT_OPTIONS.read_with_variables(words, os.environ, ("format", "brief", "long"))
    values = read.values
    if show_usage(SACCT_OPTIONS, read, "sacct [OPTIONS]"):
        return 0
    if "helpformat" in values:
        print("\n".join(column.title for column in COLUMNS))
        return 0
    if read.rest:
        raise InvalidInput(f"unexpected word: {read.rest[0]}", hint="sacct -j 12")
    pieces = _pieces(values)
    with session_of_environment().client() as client:
        rows = _rows(SlurmJobs(client), read)
        if not {"parsable", "parsable2", "noheader", "json"} & values.keys():
            for text in SACCT_OPTIONS.ignored_notes(read):
                note("sacct", text)
        _print(values, pieces, rows)
    return 0


def _rows(book: SlurmJobs, read: ReadOptions) -> list[SlurmJobRow]:
    values, now = read.values, time.time()
    states = parse_states(values["state"]) if values.get("state") else set(ALL_STATES)
    conditions = filter_of(values, "", states)
    # As in Slurm, jobs that are named by number are found whenever they ended.
    since = parse_moment(
        values.get("starttime", "0:00" if "jobs" not in values else "1970-01-02"), "--starttime", now
    )
    until = parse_moment(values.get("endtime", "now"), "--endtime", now)
    if since > until:
        raise InvalidInput("the time of --starttime is after the time of --endtime")
    numbers = parse_numbers([values.get("jobs", "")])
    if numbers:
        jobs = _named(book, numbers, "", conditions)
    elif "jobs" in values:
        raise InvalidInput("no job is named")
    else:
        if not conditions.owners and "allusers" not in values:
            conditions.owners = [book.client.whoami().user]
        jobs = find_listed(book, conditions, states, ended_since=max(since, 0.0))
    chosen = [job for job in jobs if _in_time(job, since, until)]
    rows = make_rows(chosen, now, each_task="array" in values or "json" in values)
    if "allocations" in values or "json" in values:
        return rows
    # As in Slurm, `-j 12.batch` has the row of this step alone, and a step that is not recorded has none.
    named = {job.summary.id for job in jobs}
    alone = [job for job in _named(book, numbers, "batch", conditions) if job.summary.id not in named]
    with_steps = [row for job_row in rows for row in (job_row, *_batch_rows(job_row.job, now))]
    return [*with_steps, *(row for job in alone for row in _batch_rows(job, now))]


def _in_time(job: SlurmJob, since: float, until: float) -> bool:
    ended = job.summary.ended
    return job.summary.submitted <= until and (ended is None or ended >= since)


def _named(book: SlurmJobs, numbers: list[JobNumber], step: str, conditions: JobFilter) -> list[SlurmJob]:
    """The jobs of the numbers with this step; "": of the numbers without one."""
    named, _ = book.named([number._replace(step="") for number in numbers if number.step == step])
    return [job for job in named if conditions.takes(job)]


def _batch_rows(job: SlurmJob, now: float) -> list[SlurmJobRow]:
    """The row of its batch step, if it has started."""
    return [] if job.summary.started is None else [SlurmJobRow(job, now, step="batch")]


_LEFT: Final = ("jobid", "jobidraw")
"""Columns that begin at the left, unless the format says otherwise."""


def _pieces(values: Mapping[str, str]) -> list[FormatPiece[SlurmJobRow]]:
    default = BRIEF_FIELDS if "brief" in values else LONG_FIELDS if "long" in values else DEFAULT_FIELDS
    pieces = []
    for part in _fields(values.get("format") or default):
        # As in Slurm, a width that is no number counts as none.
        match = re.fullmatch(r"([A-Za-z_]+)(?:%(-?)(\d*).*)?", part)
        if match is None:
            raise InvalidInput(f"--format: {part} is not a field")
        column: TableColumn[SlurmJobRow] = find_column(match[1], COLUMNS, "--format")
        width = int(match[3]) if match[3] else column.width
        left = match[2] if match[3] else column.name in _LEFT
        pieces.append(FormatPiece(column, width, right=not left, after=" ", cut="+"))
    return pieces


def _fields(text: str) -> list[str]:
    """The fields of `--format`, as Slurm reads them: commas may follow each other, and `all` names each field."""
    named = [field for part in text.split(",") if (field := part.strip())]
    return [name for field in named for name in (_ALL if field.lower() == "all" else (field,))]


_ALL: Final = tuple(column.name for column in COLUMNS)


def _print(
    values: Mapping[str, str], pieces: list[FormatPiece[SlurmJobRow]], rows: list[SlurmJobRow]
) -> None:
    if "json" in values:
        print_document({"jobs": [record_document(row) for row in rows]})
        return
    header = "noheader" not in values
    if {"parsable", "parsable2"} & values.keys():
        between = values.get("delimiter") or "|"
        last = "" if "parsable2" in values else between
        columns = [piece.column for piece in pieces if piece.column]
        if header:
            print(between.join(column.title for column in columns) + last)
        for row in rows:
            print(between.join(column.text(row) for column in columns) + last)
        return
    if header:
        print_table(pieces, [], header=True)
        print("".join("-" * piece.width + " " for piece in pieces))
    print_table(pieces, rows, header=False)
