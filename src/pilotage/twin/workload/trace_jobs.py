"""One job of a trace, and all of them in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from pilotage.twin.columns import Array, NameIndex, RowBuffer

_ROW = np.dtype(
    [
        ("number", "i8"),
        ("submit", "f8"),
        ("run", "f8"),
        ("wall", "f8"),
        ("cpu", "f4"),
        ("memory", "i8"),
        ("processors", "i4"),
        ("owner", "i4"),
        ("group", "i4"),
    ]
)


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job as the trace has it: its submission, its demands, its run time."""

    number: int
    submit: float
    """Seconds from the begin of the trace."""
    run: float
    """Seconds of its payload."""
    processors: int
    memory: int
    """MB (2^20 bytes) of all its processors together; 0: unknown."""
    wall: float
    """Seconds that it asked for; 0: unknown."""
    owner: str
    group: str
    cpu: float = 0.0
    """Seconds of a reference core that it asked for; 0: unknown."""


class TraceJobs(Sequence[TraceJob]):
    """Jobs in the order of their submission.

    A job takes 56 bytes; its `TraceJob` is made when it is asked for.
    """

    def __init__(self, jobs: Iterable[TraceJob] = ()) -> None:
        self.owners = NameIndex()
        self.groups = NameIndex()
        self._buffer = RowBuffer(_ROW)
        for job in jobs:
            self.append(job)
        self.sort()

    def append(self, job: TraceJob) -> None:
        """Add a job at the end. `sort` afterwards, if the order is not that of submission."""
        owner, group = self.owners.place(job.owner), self.groups.place(job.group)
        self._buffer.append(
            (job.number, job.submit, job.run, job.wall, job.cpu, job.memory, job.processors, owner, group)
        )

    def sort(self) -> None:
        """Put the jobs into the order of submission; jobs of one second keep their order."""
        submits = self.rows["submit"]
        if np.any(submits[1:] < submits[:-1]):
            self._buffer.replace(self.rows[np.argsort(submits, kind="stable")])

    @property
    def rows(self) -> Array:
        """The columns number, submit, run, wall, cpu, memory, processors, owner, group (places of names)."""
        return self._buffer.rows

    def where(self, chosen: Array) -> TraceJobs:
        """The jobs for which the array of truth values has True."""
        jobs = TraceJobs()
        jobs.owners, jobs.groups = self.owners, self.groups
        jobs._buffer.replace(self.rows[chosen])
        return jobs

    def memberships(self) -> Iterator[tuple[str, str]]:
        """Each (owner, group) that has a job, in the order of names."""
        pairs = np.unique(np.stack([self.rows["owner"], self.rows["group"]]), axis=1).T
        yield from sorted((self.owners.names[owner], self.groups.names[group]) for owner, group in pairs)

    def __len__(self) -> int:
        return len(self._buffer)

    @overload
    def __getitem__(self, place: int) -> TraceJob: ...
    @overload
    def __getitem__(self, place: slice) -> TraceJobs: ...
    def __getitem__(self, place: int | slice) -> TraceJob | TraceJobs:
        if isinstance(place, slice):
            chosen = np.zeros(len(self), bool)
            chosen[place] = True
            return self.where(chosen)
        return self._job(self.rows[place].item())

    def __iter__(self) -> Iterator[TraceJob]:
        for begin in range(0, len(self), 4096):
            for row in self.rows[begin : begin + 4096].tolist():
                yield self._job(row)

    def _job(self, row: tuple[Any, ...]) -> TraceJob:
        number, submit, run, wall, cpu, memory, processors, owner, group = row
        return TraceJob(
            number,
            submit,
            run,
            processors,
            memory,
            wall,
            self.owners.names[owner],
            self.groups.names[group],
            cpu,
        )
