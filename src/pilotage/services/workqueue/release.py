"""The release of made jobs to the pool: in slices, in order, and within the limits of sites and types.

A slice decides and stores in one transaction. It submits one closed submission for the jobs of a step that may run at
equal sites. Priority, lists of sites and the state of a request are read in this transaction, so a change acts at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from pilotage.core.sites import SiteState
from pilotage.core.splitting.algorithm import Estimate
from pilotage.core.workqueue.release import (
    JobRelease,
    ReleaseGroup,
    ReleasePass,
    SiteLoad,
    usable_sites,
)
from pilotage.core.workqueue.roll_up import is_working
from pilotage.services.submission.of_requests import submit_element_jobs
from pilotage.services.workqueue.programs import PilotNeeds, ProgramCache, given_time, pilot_needs
from pilotage.services.workqueue.pull import MEASURED_JOBS
from pilotage.services.workqueue.release_loads import counted_agent, loads_of_team, loads_together
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_jobs, event_times, queued_requests, releasing
from pilotage.store.tables.element_jobs import MadeGroup, ReleasedCount, ReleasedJob
from pilotage.store.tables.queued_requests import QueuedRequest, QueuedStep
from pilotage.store.writer.transaction import Transaction

GROUPS = 100
"""Groups of made jobs read by one transaction."""


@dataclass(frozen=True, slots=True)
class SiteGroup:
    """A group of made jobs, and the sites where they may run now."""

    made: MadeGroup
    request: QueuedRequest
    sites: frozenset[str]


@dataclass(slots=True)
class ReleaseRun:
    """One pass over all made jobs. Only requests of the writer use it."""

    work_queue: WorkQueue
    programs: ProgramCache
    counts: Sequence[ReleasedCount]
    """The unfinished pool jobs when the pass begins."""
    rng: Random
    only: frozenset[int]
    """The requests whose jobs are released."""
    connection: Connection | None = None
    """The connection of the transaction that uses the run now."""
    groups: list[SiteGroup] = field(default_factory=list)
    _after: MadeGroup = element_jobs.BEFORE_ALL
    _requests: dict[int, QueuedRequest] = field(default_factory=dict)
    _steps: dict[tuple[int, int], QueuedStep] = field(default_factory=dict)
    _live: Mapping[str, list[int]] = field(default_factory=dict)
    _uses: Mapping[str, SiteState] = field(default_factory=dict)
    _passes: dict[str, ReleasePass] = field(default_factory=dict)
    _together: dict[str, SiteLoad] | None = None
    """The pool jobs of all teams by site, with the released ones; None: they are not counted yet."""
    _returned: list[JobRelease] = field(default_factory=list)
    """The jobs that a transaction took which was rolled back."""
    _measured: dict[tuple[int, int], float] = field(default_factory=dict)
    """Seconds of an event of each step, measured by its done jobs; 0: nothing is measured."""

    def read_groups(self, tx: Transaction, now: float) -> bool:
        """Read the next groups of made jobs. Returns whether all are read."""
        self.connection = connection = tx.connection
        if not self._uses:
            self._uses = self.work_queue.site_states()
            self._live = releasing.live_agents(connection, now)
            self._load_requests(connection, [count.request for count in self.counts])
        groups = element_jobs.made_groups(connection, self._after, GROUPS)
        self._load_requests(connection, [group.request for group in groups])
        self.work_queue.load_location_sets(connection, [group.location_set for group in groups])
        for group in groups:
            self._after = group
            if group.request not in self.only:
                continue
            request, step = self._requests.get(group.request), self._steps.get((group.request, group.step))
            if request is not None and step is not None and is_working(request.state, step.type):
                self._add(connection, group, request, step, now)
        return len(groups) < GROUPS

    def release(self, tx: Transaction, most: int, now: float) -> int:
        """Release at most `most` jobs; returns the number taken from the groups. 0: the pass is over."""
        self.connection = tx.connection
        taken: list[JobRelease] = []
        # If the transaction is not committed, the next one begins with the same jobs.
        tx.on_rollback(lambda: self._returned.extend(taken))
        taken += self._returned[:most]
        del self._returned[:most]
        for one_pass in self._passes.values():
            taken += one_pass.take(most - len(taken))
            if len(taken) == most:
                break
        if taken:
            self._store(tx, taken, now)
        return len(taken)

    # --- steps

    def _load_requests(self, connection: Connection, ids: Sequence[int]) -> None:
        missing = sorted(set(ids) - self._requests.keys())
        self._requests |= queued_requests.by_ids(connection, missing)
        for step in queued_requests.steps_of(connection, missing):
            self._steps[step.request_id, step.position] = step

    def _add(
        self, connection: Connection, group: MadeGroup, request: QueuedRequest, step: QueuedStep, now: float
    ) -> None:
        eligible = self.work_queue.eligible(connection, request, step, group.location_set, now)
        sites = usable_sites(eligible - element_jobs.avoided(group.avoided_sites), self._uses)
        if not sites:
            return
        jobs = element_jobs.made_jobs(self._connect, group)
        agent = counted_agent(group.agent, self._live.get(request.team, []))
        made = ReleaseGroup(step.type, request.priority, agent, sites, jobs)
        self._pass_of(request.team).add(len(self.groups), made)
        self.groups.append(SiteGroup(group, request, sites))

    def _connect(self) -> Connection:
        assert self.connection is not None
        return self.connection

    def _pass_of(self, team: str) -> ReleasePass:
        """The pass over the requests of a team. Its agents share the slots of each site."""
        one_pass = self._passes.get(team)
        if one_pass is None:
            live = self._live.get(team, [])
            facts = self.counts, self._requests, self._steps
            if self._together is None:
                self._together = loads_together(*facts)
            loads = loads_of_team(self.work_queue, team, live, *facts, self._together)
            one_pass = self._passes[team] = ReleasePass(loads, self.rng)
        return one_pass

    def _store(self, tx: Transaction, taken: Sequence[JobRelease], now: float) -> None:
        """Submit the jobs that are still made, and whose requests are still as they were."""
        made = element_jobs.still_made(tx.connection, [release.job for release in taken])
        current = releasing.share(
            tx.connection, sorted({self._group(release).request.id for release in taken})
        )
        batches: dict[tuple[int, int, frozenset[str], PilotNeeds], list[JobRelease]] = {}
        for release in taken:
            group = self._group(release)
            job = made.get(release.job)
            if job is None or job.group != group.made:
                # It was released, or has other sites: its input has moved, or it avoids a further site.
                continue
            if current.get(group.request.id) == group.request:
                step = group.made.step
                needs = self._needs_of(tx.connection, group, job.events)
                key = group.made.request, step, group.sites, needs
                batches.setdefault(key, []).append(release)
        for (request, step, sites, needs), releases in batches.items():
            pool, priority = self.work_queue.pool, self._requests[request].priority
            jobs = self.programs.jobs(tx.connection, request, step, priority, sites, pool, needs)
            if jobs is None:
                continue
            first = submit_element_jobs(pool, tx, jobs, [release.job for release in releases], now)
            element_jobs.save_released(
                tx.connection,
                [
                    ReleasedJob(release.site, first + place, release.job)
                    for place, release in enumerate(releases)
                ],
            )

    def _needs_of(self, connection: Connection, group: SiteGroup, events: int) -> PilotNeeds:
        """The needs of a job. Its time is by the request's time of an event, else by the step's done jobs."""
        request, step, pool = group.made.request, group.made.step, self.work_queue.pool
        program = self.programs.get(connection, request, step)
        if program is None:
            return PilotNeeds()
        seconds, kilobytes = program.algorithm.estimate(events)
        if not program.has_time:
            if (request, step) not in self._measured:
                measured = event_times.time_per_event(connection, request, step, MEASURED_JOBS)
                self._measured[request, step] = measured or 0.0
            seconds = events * self._measured[request, step]
        estimate = Estimate(seconds, kilobytes if program.has_size else 0.0)
        given = given_time(program, group.sites, pool.policy, pool.server.home_owner)
        return pilot_needs(program.description, estimate, pool.policy.matching, given)

    def _group(self, release: JobRelease) -> SiteGroup:
        return self.groups[release.group]
