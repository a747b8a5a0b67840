"""The jobs of each step of a request, as they are submitted to the pool."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import NamedTuple

from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.trace import with_trace
from pilotage.core.pilots.wall_time import cpu_time_of_new_pilot, wall_of_new_pilot
from pilotage.core.policy.model import Matching, Policy
from pilotage.core.queues.identity import cpu_bucket, size_bucket, wall_bucket, wall_floor
from pilotage.core.requests.json_format import specification_from_text, stored_steps
from pilotage.core.requests.retries import FailureClass, PauseRule, RetryRules
from pilotage.core.requests.specification import Retry
from pilotage.core.requests.trace import trace_of_request
from pilotage.core.splitting.algorithm import KILOBYTE, Algorithm, Estimate
from pilotage.services.pool.lru_cache import LruCache
from pilotage.services.pool.state import Pool
from pilotage.services.submission.accept import identity_of
from pilotage.services.submission.of_requests import RequestJobs
from pilotage.services.workqueue.planned_elements import algorithm_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import requests
from pilotage.wire.pilot import MB, Input

MAX_PROGRAMS = 4096
TIME_PER_EVENT, SIZE_PER_EVENT = "time_per_event", "size_per_event"
"""Parameters of a splitting."""
LONGEST_ESTIMATE, LARGEST_ESTIMATE = 10**8, 10**9
"""Seconds and MB; an estimate beyond them says nothing more."""


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
    has_size: bool
    """The request gives the output of an event."""


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
            trace = trace_of_request(specification_from_text(row.specification))
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
                if planned.program is None and trace is not None:
                    own = with_trace(own, trace.header)
                given = dict(planned.splitting.parameters)
                self._programs[request, planned.position] = StepProgram(
                    *(row.owner, row.group, own, inputs, planned.retry),
                    algorithm_of(planned),
                    has_time=TIME_PER_EVENT in given,
                    has_size=SIZE_PER_EVENT in given,
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
        needs: PilotNeeds,
    ) -> RequestJobs | None:
        """The jobs of a step that may run at `sites`, as the policy and the request have it now.

        `needs` decides which pilots have enough time and disk left, and is no limit for the jobs.
        """
        program = self.get(connection, request, step)
        if program is None:
            return None
        policy = pool.policy
        user_priority = policy.requests.user_priority(priority)
        key = (request, step, user_priority, sites, pool.server.policy_version, needs)
        jobs = self._jobs.use(key)
        if jobs is None:
            description = replace(
                program.description,
                user_priority=user_priority,
                sites=tuple(sorted(sites)),
                banned_sites=(),
                disk=needs.disk,
            )
            timed = replace(description, cpu_time=needs.cpu_time, wall_time=needs.wall_time)
            identity = identity_of(timed, program.owner, program.group, policy)
            jobs = self._jobs[key] = RequestJobs.of(
                request, program.owner, program.group, description, program.inputs, identity
            )
        return jobs


class PilotNeeds(NamedTuple):
    """The time and the MB of disk that a pilot needs to have left for a job, as fine as task queues are told apart."""

    cpu_time: int = 0
    wall_time: int = 0
    disk: int = 0


class GivenTime(NamedTuple):
    """The most time that a pilot of any known CE has left for a job when it first asks for work; 0: none is known."""

    cpu_time: float = 0.0
    wall_time: float = 0.0


def given_time(program: StepProgram, sites: frozenset[str], policy: Policy, home_owner: str) -> GivenTime:
    """The most time that the CEs of these sites give the jobs of a step."""
    ces = [
        ce
        for ce in policy.ces.values()
        if ce.site in sites and (ce.serves_everybody or program.owner == home_owner)
    ]
    return GivenTime(
        max((cpu_time_of_new_pilot(ce.wall, ce.cpu_power) for ce in ces), default=0.0),
        max((wall_of_new_pilot(ce.wall) for ce in ces), default=0.0),
    )


def pilot_needs(
    description: JobDescription, estimate: Estimate, matching: Matching, given: GivenTime
) -> PilotNeeds:
    """The needs of a job of this estimate. The request's own numbers stand above the estimate.

    An estimate may be wrong, so it never asks for more time than a pilot can be given.
    """
    buckets = matching.cpu_buckets
    each = ceil(min(estimate.seconds / max(description.processors, 1), LONGEST_ESTIMATE))
    # Beyond the last bucket only the wall time tells pilots apart.
    long = wall_bucket(each) if each > buckets[-1] else 0
    known = [bucket for bucket in buckets if not given.cpu_time or bucket <= given.cpu_time]
    cpu_time = description.cpu_time or cpu_bucket(each, known or buckets[:1])
    if given.wall_time:
        long = min(long, wall_floor(given.wall_time))
    wall_time = description.wall_time or (0 if description.cpu_time else long)
    written = ceil(min(estimate.kilobytes * KILOBYTE / MB, LARGEST_ESTIMATE))
    disk = description.disk or size_bucket(written, matching.disk_buckets)
    return PilotNeeds(cpu_time, wall_time, disk)


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
