"""The table `requests` of the policy: how requests become jobs, how fast, and by which agents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal

from pilotage.core.policy.table import PolicyTable
from pilotage.core.queues.limits import Limit
from pilotage.core.requests.retries import FailureClass, PauseRule, RetryRules
from pilotage.core.setting import BYTES, YEAR, Setting

MAX_REQUEST_PRIORITY: Final = 999_999
Growth = Literal["default", "linear", "squared", "exponential"]
"""The values of `PauseRule`."""
MAX_BANDS: Final = 9
"""One less than the values of UserPriority that a band may have, 1 to 10."""


class Threshold(PolicyTable, frozen=True):
    """Fixed numbers in place of the thresholds that follow from the slots of a site."""

    site: Annotated[str, Setting("the site where the threshold applies; empty: each site")] = ""
    type: Annotated[
        str, Setting("the type of step, such as Processing or Merge; empty: all jobs of the site together")
    ] = ""
    pending: Annotated[
        int | None, Setting("maximum number of jobs that wait in the pool; absent: from the slots", 0, 10**9)
    ] = None
    running: Annotated[
        int | None, Setting("maximum number of jobs that run; absent: from the slots", 0, 10**9)
    ] = None


class Requests(PolicyTable, frozen=True):
    priority_bands: Annotated[
        tuple[int, ...],
        Setting(
            "lowest request priorities of the UserPriorities 2, 3, ...; the jobs of a request below the first have"
            " UserPriority 1 in the pool",
            1,
            MAX_REQUEST_PRIORITY,
        ),
    ] = (10_000, 20_000, 50_000, 80_000, 110_000, 150_000, 200_000, 300_000, 500_000)
    queue_depth: Annotated[
        float, Setting("an agent holds work for a site up to its slots times this number", 1e-3, 1000)
    ] = 1.0
    site_floor: Annotated[
        int, Setting("slots of a site that each agent may count on, however many agents share it", 1, 10**6)
    ] = 1
    pending_fraction: Annotated[
        float, Setting("pending threshold of a site, as a fraction of its slots", 0, 1000)
    ] = 0.5
    overflow: Annotated[
        float,
        Setting(
            "part of the pending threshold by which jobs of a higher priority than all active ones may exceed it",
            0,
            1000,
        ),
    ] = 0.2
    max_jobs_per_owner: Annotated[
        int, Setting("unfinished jobs in the pool that count as the full load of one agent", 1, 10**9)
    ] = 100_000
    owner_limit_factor: Annotated[
        float, Setting("part of max_jobs_per_owner at which an agent gets no more work", 0, 1000)
    ] = 0.75
    elements_per_pull: Annotated[int, Setting("elements that one pull offers at most", 1, 10_000)] = 200
    intake_slice: Annotated[
        int, Setting("elements of a request that one transaction creates at most", 1, 100_000)
    ] = 1000
    max_elements_per_request: Annotated[
        int, Setting("elements that a request has at most, of all its steps", 1, 10**9)
    ] = 1_000_000
    elements_ahead: Annotated[
        int,
        Setting(
            "elements of a step that generates events, made before agents take them; further ones follow as agents"
            " take these",
            1,
            100_000,
        ),
    ] = 1000
    confirm_jobs: Annotated[
        int, Setting("a request that would make as many jobs needs a confirmation (`--yes`)", 1, 10**12)
    ] = 1_000_000
    max_requests_per_owner: Annotated[int, Setting("unfinished requests of an owner at most", 0, 10**6)] = (
        10_000
    )
    max_retries: Annotated[
        int, Setting("how often a failed job is made again; `retry` of a step replaces this number", 0, 100)
    ] = 3
    max_retries_merge: Annotated[int, Setting("the same for jobs of the types Merge and Harvest", 0, 100)] = 4
    max_retries_cleanup: Annotated[int, Setting("the same for jobs of the type Cleanup", 0, 100)] = 2
    max_retries_log_collect: Annotated[int, Setting("the same for jobs of the type LogCollect", 0, 100)] = 1
    cooloff_payload: Annotated[
        float, Setting("seconds of pause before a job is made again whose program failed", 0, YEAR)
    ] = 600.0
    cooloff_data: Annotated[
        float, Setting("the same, if input could not be read or output not be stored", 0, YEAR)
    ] = 300.0
    cooloff_place: Annotated[
        float, Setting("the same, if the pilot, its node or its batch job failed", 0, YEAR)
    ] = 60.0
    cooloff_growth: Annotated[
        Growth, Setting("how the pause grows with the number of tries: `squared` is pause × tries²")
    ] = "squared"
    longest_run: Annotated[
        float, Setting("seconds; a job that ran for longer and failed is not made again", 1, YEAR)
    ] = 120_000.0
    max_output_size: Annotated[
        int,
        Setting(
            "bytes of all files that one job writes to its output data set; holes in files count", 1, BYTES[1]
        ),
    ] = 20_000_000_000
    output_block_files: Annotated[
        int, Setting("files of a block of an output data set; a full block is closed", 1, 100_000)
    ] = 500
    output_block_size: Annotated[
        int, Setting("bytes at which a block of an output data set is closed", 1, BYTES[1])
    ] = 500_000_000_000
    output_block_age: Annotated[
        float, Setting("seconds after which a block of an output data set is closed", 1, YEAR)
    ] = 3600.0
    agent_lease: Annotated[
        float, Setting("seconds for which a silent agent keeps its elements", 1e-3, YEAR)
    ] = 300.0
    agent_period: Annotated[
        float, Setting("seconds between two reports of an agent; at most a third of agent_lease", 1e-3, YEAR)
    ] = 5.0
    agent_team: Annotated[
        str, Setting("team of the agent that `pilotage up` starts; empty: it starts none")
    ] = "home"
    thresholds: tuple[Threshold, ...] = ()

    @property
    def owner_limit(self) -> int:
        """Unfinished pool jobs of an agent at which it gets no more work and its jobs are not released."""
        return int(self.max_jobs_per_owner * self.owner_limit_factor)

    def retry_rules(self) -> RetryRules:
        """The rules for failed jobs of steps that name none."""
        return RetryRules(
            retries=self.max_retries,
            of_type={
                "Merge": self.max_retries_merge,
                "Harvest": self.max_retries_merge,
                "Cleanup": self.max_retries_cleanup,
                "LogCollect": self.max_retries_log_collect,
            },
            rule=PauseRule(self.cooloff_growth),
            bases={
                FailureClass.PAYLOAD: self.cooloff_payload,
                FailureClass.DATA: self.cooloff_data,
                FailureClass.PLACE: self.cooloff_place,
            },
            longest_run=self.longest_run,
        )

    def user_priority(self, priority: int) -> int:
        """The UserPriority in the pool of the jobs of a request with this priority."""
        return 1 + bisect_right(self.priority_bands, priority)

    def threshold(self, site: str, type_: str) -> Threshold:
        """The fixed numbers for a site and a type; an entry of the site stands above one of all sites."""
        pending: int | None = None
        running: int | None = None
        for wanted in (site, ""):
            for entry in self.thresholds:
                if (entry.site, entry.type) == (wanted, type_):
                    pending = entry.pending if pending is None else pending
                    running = entry.running if running is None else running
        return Threshold(site=site, type=type_, pending=pending, running=running)

    def running_limits(self, sites: Iterable[str]) -> Iterator[Limit]:
        """The maxima of running jobs, as limits of the match: a released job runs as soon as a pilot takes it."""
        types = sorted({entry.type for entry in self.thresholds if entry.running is not None})
        for site in sites:
            for type_ in types:
                running = self.threshold(site, type_).running
                if running is not None:
                    yield Limit("job_type", type_, site=site, running=running)
