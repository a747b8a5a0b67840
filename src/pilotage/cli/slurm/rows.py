"""Rows of squeue and sacct: one job, or the pending tasks of an array together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from pilotage.cli.slurm.amounts import format_ranges
from pilotage.cli.slurm.job_view import SlurmJob, arrays_first
from pilotage.cli.slurm.states import PENDING


@dataclass
class SlurmJobRow:
    """`tasks` are the numbers of several pending tasks, of which `job` is the first; empty: `job` alone."""

    job: SlurmJob
    now: float
    tasks: tuple[int, ...] = ()
    step: str = ""
    """`batch`: the row of the batch script in sacct."""

    @property
    def number(self) -> str:
        """`12`, `12_3` or `12_[4-9%2]`."""
        if not self.tasks:
            return self.job.number + (f".{self.step}" if self.step else "")
        return f"{self.job.array}_[{self.task_text}]"

    @property
    def task_text(self) -> str:
        """The task numbers: `3`, or `4-9%2`; "" for a job that is no task."""
        if self.tasks:
            limit = f"%{self.job.parallel}" if self.job.parallel else ""
            return format_ranges(list(self.tasks)) + limit
        return "" if self.job.task is None else str(self.job.task)


def make_rows(jobs: Iterable[SlurmJob], now: float, *, each_task: bool) -> list[SlurmJobRow]:
    """Rows by number. Pending tasks of an array with the same reason share one, unless `each_task`."""
    rows: list[SlurmJobRow] = []
    ordered = arrays_first(jobs)
    if each_task:
        return [SlurmJobRow(job, now) for job in ordered]
    for array, tasks in itertools.groupby(ordered, key=lambda job: job.array):
        if array is None:
            rows += [SlurmJobRow(job, now) for job in tasks]
            continue
        listed = list(tasks)
        waiting = [job for job in listed if job.state is PENDING and job.summary.started is None]
        if waiting:
            rows.append(SlurmJobRow(waiting[0], now, tuple(job.task or 0 for job in waiting)))
        gathered = {job.summary.id for job in waiting}
        rows += [SlurmJobRow(job, now) for job in listed if job.summary.id not in gathered]
    return rows
