"""Which jobs a command means: numbers, users, states and the other conditions that Slurm's commands share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pilotage import wire
from pilotage.cli.slurm.job_numbers import JobNumber, parse_numbers
from pilotage.cli.slurm.job_view import SlurmJob, SlurmJobs, users_group
from pilotage.cli.slurm.states import SlurmState, job_states
from pilotage.core.errors import InvalidInput


def words_of(values: Mapping[str, str], *names: str) -> list[str]:
    """The words of options with lists: `-u alice,bob`."""
    return [part.strip() for name in names for part in values.get(name, "").split(",") if part.strip()]


@dataclass
class JobFilter:
    """Conditions that all must hold; an empty list is none."""

    owners: Sequence[str] = ()
    names: Sequence[str] = ()
    partitions: Sequence[str] = ()
    accounts: Sequence[str] = ()
    hosts: Sequence[str] = ()
    states: frozenset[SlurmState] = frozenset()

    def takes(self, job: SlurmJob) -> bool:
        summary = job.summary
        if self.states and job.state not in self.states:
            return False
        if (self.owners and summary.owner not in self.owners) or (
            self.names and summary.name not in self.names
        ):
            return False
        if self.hosts and not {summary.hostname, summary.hostname.partition(".")[0]} & set(self.hosts):
            return False
        if self.accounts and users_group(job) not in self.accounts:
            return False
        return not self.partitions or bool(set(job.partition.split(",")) & set(self.partitions))


def filter_of(values: Mapping[str, str], own_name: str, states: Iterable[SlurmState] = ()) -> JobFilter:
    """The conditions of a command line. `own_name`: the user that --me means."""
    owners = words_of(values, "user")
    return JobFilter(
        owners=[own_name] if "me" in values else owners,
        names=words_of(values, "name", "jobname"),
        partitions=words_of(values, "partition"),
        accounts=words_of(values, "account", "accounts"),
        hosts=words_of(values, "nodelist"),
        states=frozenset(states),
    )


def find_listed(
    book: SlurmJobs, conditions: JobFilter, states: set[SlurmState], *, ended_since: float | None
) -> list[SlurmJob]:
    """Jobs in one of `states`. Ended ones only if they have ended since then."""
    owner = conditions.owners[0] if len(conditions.owners) == 1 else None
    name = conditions.names[0] if len(conditions.names) == 1 else None
    active = job_states({state for state in states if not state.ended})
    ended = job_states({state for state in states if state.ended})
    listed: list[SlurmJob] = []
    if active:
        listed += book.jobs(wire.jobs.Selection(states=active, owner=owner, name=name))
    if ended and ended_since is not None:
        listed += book.jobs(
            wire.jobs.Selection(states=ended, owner=owner, name=name, ended_since=ended_since)
        )
    # A job may end between the two questions.
    once = {job.summary.id: job for job in listed}
    return [job for job in once.values() if conditions.takes(job)]


def named_jobs(book: SlurmJobs, words: Iterable[str]) -> tuple[list[SlurmJob], list[JobNumber]]:
    """(jobs, numbers without one). Raises InvalidInput if no number is given."""
    numbers = parse_numbers(words)
    if not numbers:
        raise InvalidInput("no job is named")
    return book.named(numbers)
