"""Jobs of Pilotage as jobs of Slurm: their numbers, and facts that a description holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pilotage import wire
from pilotage.cli.slurm.job_numbers import JobNumber
from pilotage.cli.slurm.partitions import VARIABLE, Partitions
from pilotage.cli.slurm.states import (
    ALL_STATES,
    PENDING,
    SlurmState,
    exit_of,
    job_states,
    reason_of,
    state_of,
)
from pilotage.core.errors import Forbidden, InvalidInput, NotFound, PilotageError

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.jobs import Attempt, JobDetail, JobSummary, Selection

CLUSTER: Final = "pilotage"
"""The name of the cluster that the commands show."""
CONDITIONS: Final = ("after", "after_ok", "after_fail", "after_each")


@dataclass
class SlurmJob:
    """One job, or one task of an array. Facts that the list lacks are asked for when they are used."""

    summary: JobSummary
    array: int | None
    """The number of its array."""
    task: int | None
    book: SlurmJobs

    @property
    def number(self) -> str:
        """`12`, or `12_3` for a task."""
        return str(self.summary.id) if self.array is None else f"{self.array}_{self.task}"

    @property
    def state(self) -> SlurmState:
        return state_of(self.summary)

    @property
    def reason(self) -> str:
        return reason_of(self.summary, depends=self.depends)

    @property
    def exit_code(self) -> tuple[int, int]:
        return exit_of(self.summary)

    @cached_property
    def description(self) -> dict[str, Any]:
        """The description of its submission; empty if it belongs to somebody else."""
        return self.book.description(self.summary.submission)

    @property
    def facts(self) -> dict[str, str]:
        """The variables that sbatch has given the job."""
        listed: dict[str, str] = self.description.get("environment") or {}
        return listed

    @property
    def depends(self) -> bool:
        return any(self.description.get(name) for name in CONDITIONS)

    @property
    def waits_for_user(self) -> bool:
        """Whether it is held, or depends on others: then it has not been eligible yet."""
        return self.state is PENDING and self.reason in ("JobHeldUser", "Dependency")

    @property
    def partition(self) -> str:
        """`short`, or `short,long` while it may start in both."""
        named = self.facts.get(VARIABLE, "")
        if named and "," not in named:
            return named
        return self.book.partitions.of_job(named, self.summary.ce, ended=self.state.ended)

    @property
    def cpus(self) -> int:
        return int(self.description.get("processors") or 1)

    @property
    def time_limit(self) -> int:
        """Seconds; 0: none."""
        return int(self.description.get("wall_time") or 0)

    @property
    def memory(self) -> int:
        """MB; 0: not named."""
        return int(self.description.get("memory") or 0)

    @property
    def parallel(self) -> int:
        return int(self.description.get("parallel") or 0)

    @cached_property
    def detail(self) -> JobDetail | None:
        try:
            return self.book.client.job(self.summary.id)
        except (NotFound, Forbidden):
            return None

    @property
    def last_attempt(self) -> Attempt | None:
        return self.detail.attempts[-1] if self.detail is not None and self.detail.attempts else None

    def elapsed(self, now: float) -> float:
        """Seconds of its last attempt."""
        started = self.summary.started
        return 0.0 if started is None else (self.summary.ended or now) - started


class SlurmJobs:
    """Finds jobs by their numbers. Facts that were read once are not asked for again."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._first: dict[int, int] = {}
        self._descriptions: dict[int, dict[str, Any]] = {}
        self._open_parents: dict[str, str] = {}

    @cached_property
    def partitions(self) -> Partitions:
        return Partitions(self.client.partitions())

    def jobs(self, selection: Selection) -> Iterator[SlurmJob]:
        for summary in self.client.jobs(selection):
            if summary.state != "Deleted":
                yield self.view(summary)

    def view(self, summary: JobSummary) -> SlurmJob:
        task = summary.parameters.get("")
        if isinstance(task, bool) or not isinstance(task, int):
            return SlurmJob(summary, None, None, self)
        return SlurmJob(summary, self._first_of(summary.submission), task, self)

    def named(self, numbers: Sequence[JobNumber]) -> tuple[list[SlurmJob], list[JobNumber]]:
        """(the jobs that these numbers name, each once; numbers that name no job).

        Raises InvalidInput for a step, which must never be taken for its job.
        """
        for number in numbers:
            if number.step:
                raise InvalidInput(
                    f"{number.number}.{number.step} is a step, and steps are in sacct only",
                    hint=f"name the job: {number.number}",
                )
        listed: dict[int, SlurmJob] = {}
        missing: list[JobNumber] = []
        ids = sorted({number.number for number in numbers})
        heads = {job.summary.id: job for job in self.jobs(wire.jobs.Selection(ids=ids))} if ids else {}
        arrays: dict[int, list[SlurmJob]] = {}
        for number in numbers:
            head = heads.get(number.number)
            chosen = [] if head is None else self._chosen(head, number, arrays)
            if not chosen:
                missing.append(number)
            listed |= {job.summary.id: job for job in chosen}
        return list(listed.values()), missing

    def parent(self, number: JobNumber) -> str:
        """How a dependency names it: `12`, or `s:4` for a whole array. Raises NotFound."""
        jobs, _ = self.named([number])
        if not jobs:
            raise NotFound(f"there is no job {number.number}", hint="squeue lists the jobs")
        if number.tasks is None and jobs[0].array == number.number:
            return f"s:{jobs[0].summary.submission}"
        if len(jobs) > 1:
            raise NotFound("a dependency names an array or one task of it")
        return str(jobs[0].summary.id)

    def open_parent(self, name: str) -> str:
        """`12`, or `12_*` of an array, for a name that `parent` gave; "" if it has ended, or is out of sight."""
        if name not in self._open_parents:
            of_array, digits = name.startswith("s:"), name.removeprefix("s:")
            if not digits.isdigit():
                # A name inside of a document with several jobs.
                return name
            number = int(digits)
            chosen = wire.jobs.Selection(submission=number) if of_array else wire.jobs.Selection(ids=[number])
            jobs = list(self.jobs(chosen))
            text = ""
            if not all(job.state.ended for job in jobs):
                text = f"{jobs[0].array or jobs[0].summary.id}_*" if of_array else jobs[0].number
            self._open_parents[name] = text
        return self._open_parents[name]

    def namesakes(self, name: str) -> list[str]:
        """The caller's jobs of this name that have not ended, as a dependency names them."""
        active = job_states({state for state in ALL_STATES if not state.ended})
        owner = self.client.whoami().user
        listed = self.jobs(wire.jobs.Selection(states=active, owner=owner, name=name))
        return list(
            dict.fromkeys(
                str(job.summary.id) if job.array is None else f"s:{job.summary.submission}" for job in listed
            )
        )

    def description(self, submission: int) -> dict[str, Any]:
        if submission not in self._descriptions:
            asked = wire.submissions.SourceQuery(limit=1)
            try:
                source = self.client.call(wire.submissions.SHOW_SOURCE, asked, submission_id=submission)
                self._descriptions[submission] = source.description
            except PilotageError:
                self._descriptions[submission] = {}
        return self._descriptions[submission]

    def _chosen(self, head: SlurmJob, number: JobNumber, arrays: dict[int, list[SlurmJob]]) -> list[SlurmJob]:
        if head.array != number.number:
            return [head] if number.tasks is None else []
        if head.array not in arrays:
            arrays[head.array] = list(self.jobs(wire.jobs.Selection(submission=head.summary.submission)))
        tasks = arrays[head.array]
        return tasks if number.tasks is None else [job for job in tasks if job.task in number.tasks]

    def _first_of(self, submission: int) -> int:
        if submission not in self._first:
            first = next(iter(self.client.jobs(wire.jobs.Selection(submission=submission), page=1)))
            self._first[submission] = first.id
        return self._first[submission]


def users_group(job: SlurmJob) -> str:
    return job.facts.get("SLURM_JOB_ACCOUNT") or job.summary.group


def arrays_first(jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
    """Sort by the number of the job or array, then by task."""
    return sorted(jobs, key=lambda job: (job.array or job.summary.id, job.task or 0))
