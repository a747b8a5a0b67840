"""Jobs of a workload log in the Standard Workload Format of the Parallel Workloads Archive."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from benchmarks.shapes import Absent

SUBMIT, RUN, PROCESSORS, REQUESTED, USER, GROUP = 1, 3, 4, 8, 11, 12
"""Places of the fields in a row; -1 means that a value is not known."""
FIELDS = 18


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """A job for one core. All times in seconds."""

    submitted: float
    """Since the first job of the window."""
    run: float
    requested: float
    """Its run time if the log has no request."""
    owner: str
    group: str


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive jobs of a log."""

    jobs: Sequence[LoggedJob]
    left_out: int
    """Rows before the end of the window that are no job for one core with a run time."""


def read_window(path: Path, skip: int, most: int) -> Window:
    """The jobs of the log after the first `skip`. Raises `Absent` where there is no log, or no such job."""
    if not path.is_file():
        raise Absent(f"the workload log is not here ({path.name}): skipped")
    refused = _Refused()
    with _open(path) as lines:
        jobs = sorted(islice(_jobs(lines, refused), skip, skip + most), key=lambda job: job.submitted)
    if not jobs:
        raise Absent(f"{path.name} has no job after the first {skip:,}: skipped")
    begin = jobs[0].submitted
    shifted = [LoggedJob(job.submitted - begin, job.run, job.requested, job.owner, job.group) for job in jobs]
    return Window(shifted, refused.rows)


@dataclass(slots=True)
class _Refused:
    rows: int = 0


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def _jobs(lines: TextIO, refused: _Refused) -> Iterator[LoggedJob]:
    for line in lines:
        if line.startswith(";") or not line.strip():
            continue
        job = _job(line.split())
        if job is None:
            refused.rows += 1
        else:
            yield job


def _job(fields: Sequence[str]) -> LoggedJob | None:
    """The job of a row; None if it needs several cores, or if the row has no submission or run time."""
    if len(fields) < FIELDS:
        return None
    try:
        submitted, run, requested = (float(fields[place]) for place in (SUBMIT, RUN, REQUESTED))
        processors = int(fields[PROCESSORS])
    except ValueError:
        return None
    if submitted < 0 or run < 0 or processors > 1:
        return None
    owner, group = f"u{fields[USER]}", f"g{fields[GROUP]}"
    return LoggedJob(submitted, run, requested if requested > 0 else run, owner, group)
