"""The jobs of each step of a request, as they are submitted to the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import NamedTuple

from pilotage.core.jobs.description import JobDescription
from pilotage.core.queues.identity import cpu_bucket, wall_bucket
from pilotage.core.requests.json_format import stored_steps
from pilotage.core.requests.retries import FailureClass, PauseRule, RetryRules
from pilotage.core.requests.specification import Retry
from pilotage.core.splitting.algorithm import Algorithm
from pilotage.services.pool.lru_cache import LruCache
from pilotage.services.pool.state import Pool
from pilotage.services.submission.accept import identity_of
from pilotage.services.submission.of_requests import RequestJobs
from pilotage.services.workqueue.planned_elements import algorithm_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import requests
from pilotage.wire.pilot import Input

MAX_PROGRAMS = 4096
TIME_PER_EVENT = "time_per_event"
"""The parameter of a splitting."""
LONGEST_ESTIMATE = 10**8
"""Seconds; an estimate beyond it says nothing more."""


@dataclass(frozen=True, slots=True)
class StepProgram:
    """The facts of a step that never change."""

    owner: str
    group: str
    description: JobDescription
    inputs: tuple[Input, ...]
    retry: Retry
    """Stands above the rules of the policy."""
    algorithm: Algorithm
    has_time: bool
    """The request gives the time of an event."""


@dataclass(slots=True)
class ProgramCache:
    """Reads the specification of a request when the program of a step is not in memory."""

    _programs: LruCache[tuple[int, int], StepProgram] = field(default_factory=lambda: LruCache(MAX_PROGRAMS))
    _jobs: LruCache[tuple[object, ...], RequestJobs] = field(default_factory=lambda: LruCache(MAX_PROGRAMS))

    def get(self, connection: Connection, request: int, step: int) -> StepProgram | None:
        """The program of a step; None: there is no such request."""
        program = self._programs.use((request, step))
        if program is None:
            row = requests.by_id(connection, request)
            if row is None:
                return None
            for planned in stored_steps(row.specification, request):
                description, inputs = JobDescription(executable=planned.action or "true"), tuple[Input, ...]()
                if planned.program is not None:
                    description = planned.program.description
                    inputs = tuple(
                        Input(file.name, "copy", file.digest, file.size, file.executable)
                        for file in planned.program.inputs
                    )
                own = replace(
                    description,
                    job_name=f"{row.name}/{planned.name}".replace("%", "_"),
                    job_group=row.name,
                    job_type=planned.type,
                    retries=0,
                )
                self._programs[request, planned.position] = StepProgram(
                    *(row.owner, row.group, own, inputs, planned.retry),
                    algorithm_of(planned),
                    has_time=TIME_PER_EVENT in dict(planned.splitting.parameters),
                )
            program = self._programs.use((request, step))
        return program

    def jobs(
        self,
        connection: Connection,
        request: int,
        step: int,
        priority: int,
        sites: frozenset[str],
        pool: Pool,
        time: TimeBucket,
    ) -> RequestJobs | None:
        """The jobs of a step that may run at `sites`, as the policy and the request have it now.

        `time` decides which pilots have enough time left, and is no limit for the jobs.
        """
        program = self.get(connection, request, step)
        if program is None:
            return None
        policy = pool.policy
        user_priority = policy.requests.user_priority(priority)
        key = (request, step, user_priority, sites, pool.server.policy_version, time)
        jobs = self._jobs.use(key)
        if jobs is None:
            description = replace(
                program.description,
                user_priority=user_priority,
                sites=tuple(sorted(sites)),
                banned_sites=(),
            )
            needs = replace(description, cpu_time=time.cpu_time, wall_time=time.wall_time)
            identity = identity_of(needs, program.owner, program.group, policy)
            jobs = self._jobs[key] = RequestJobs.of(
                request, program.owner, program.group, description, program.inputs, identity
            )
        return jobs


class TimeBucket(NamedTuple):
    """The time that a pilot needs to have left for a job, as fine as task queues are told apart."""

    cpu_time: int
    wall_time: int


def time_bucket(description: JobDescription, seconds: float, buckets: Sequence[int]) -> TimeBucket:
    """The time that pilots need for a job of this estimate. The request's own numbers stand above the estimate."""
    each = ceil(min(seconds / max(description.processors, 1), LONGEST_ESTIMATE))
    cpu_time = description.cpu_time or cpu_bucket(each, buckets)
    # Beyond the last bucket only the wall time tells pilots apart.
    long = wall_bucket(each) if each > buckets[-1] and not description.cpu_time else 0
    return TimeBucket(cpu_time, description.wall_time or long)


def retry_rules(retry: Retry, defaults: RetryRules) -> RetryRules:
    """The rules of a step: the word of its request stands above the defaults."""
    rules = replace(
        defaults,
        fatal_exit_codes=frozenset(retry.fatal_exit_codes),
        pass_exit_codes=frozenset(retry.pass_exit_codes),
    )
    if retry.max_retries is not None:
        rules = replace(rules, retries=retry.max_retries, of_type={})
    if retry.cooloff is not None:
        rules = replace(rules, bases=dict.fromkeys(FailureClass, float(retry.cooloff)))
    if retry.growth:
        rules = replace(rules, rule=PauseRule(retry.growth))
    return rules
