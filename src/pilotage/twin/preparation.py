"""Leaves out the jobs that could never start, and refuses policies that cannot serve a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pilotage.core.errors import InvalidInput
from pilotage.core.pilots.wall_time import wall_of_new_pilot
from pilotage.core.policy import Policy
from pilotage.twin.ces import TwinCe
from pilotage.twin.columns import Array
from pilotage.twin.workload import TraceJobs

SHOWN = 5
LONGEST_GAP = 366 * 86400.0
"""Seconds between two submissions."""


@dataclass(frozen=True, slots=True)
class PilotSize:
    """The largest job that a pilot of one CE takes."""

    processors: int
    memory: int
    """MB; 0: no limit."""
    seconds: float
    cpu: float
    """Seconds of a reference core."""


@dataclass(frozen=True, slots=True)
class PreparedJobs:
    jobs: TraceJobs
    notes: tuple[str, ...]
    """A sentence for each kind of jobs that is left out."""


def prepare_jobs(
    jobs: TraceJobs, policies: Mapping[str, Policy], ces: Sequence[TwinCe], until: float | None
) -> PreparedJobs:
    """The jobs that can start with each of the policies, by their names.

    Raises `InvalidInput` if a policy lacks a CE of the twin, does not admit the owner of a job, or no job is left.
    """
    notes: list[str] = []
    jobs = before(jobs, until, notes)
    for name, policy in policies.items():
        _check_ces(name, policy, ces)
        _check_owners(name, policy, jobs)
    return startable(jobs, policies, ces, notes)


def before(jobs: TraceJobs, until: float | None, notes: list[str]) -> TraceJobs:
    """The jobs that are submitted before the end of the run. Raises `InvalidInput` if there is none."""
    if until is not None:
        jobs = without(jobs, jobs.rows["submit"] < until, "are submitted after the end of the run", notes)
        if not len(jobs):
            raise InvalidInput("no job is submitted before the end of the run", hint="give a later --until")
    _check_gaps(jobs)
    return jobs


def _check_gaps(jobs: TraceJobs) -> None:
    """Raise if no job comes for years: a wrong time in one line would let a run last for hours."""
    submits = jobs.rows["submit"]
    gaps = np.diff(submits)
    if len(gaps) and gaps.max() > LONGEST_GAP:
        place = int(gaps.argmax())
        days = int(submits[place] / 86400) + 1
        raise InvalidInput(
            f"after job {jobs[place].number} no job is submitted for {gaps[place] / 86400:,.0f} days, until job"
            f" {jobs[place + 1].number}",
            hint=f"correct or remove the wrong line; --until {days}d ends the run before the gap",
        )


def startable(
    jobs: TraceJobs, policies: Mapping[str, Policy], ces: Sequence[TwinCe], notes: list[str]
) -> PreparedJobs:
    """The jobs that some pilot of each policy has room and time for. Raises `InvalidInput` if there is none."""
    total = len(jobs)
    for name, policy in policies.items():
        sizes = [_pilot_size(policy, ce) for ce in ces if ce.name in policy.ces]
        of = f" of {name}" if len(policies) > 1 else ""
        jobs = without(jobs, _fits(jobs, sizes), f"are larger than every pilot{of}", notes)
        jobs = without(
            jobs,
            _in_time(jobs, sizes, policy.matching.cpu_buckets),
            f"ask for more time than every pilot{of} has",
            notes,
        )
        if too_long := int(np.count_nonzero(jobs.rows["run"] > _longest_lives(jobs, sizes))):
            notes.append(
                f"{too_long:,} of {len(jobs):,} jobs run longer than every pilot{of} lives: they are tried, and fail"
            )
    if not len(jobs):
        hint = "compare the nodes of --ces and `pilot_processors`, `pilot_memory` and `wall` of the policy"
        raise InvalidInput(f"none of the {total:,} jobs can start: {'; '.join(notes)}", hint=hint)
    return PreparedJobs(jobs, tuple(notes))


def without(jobs: TraceJobs, kept: Array, reason: str, notes: list[str]) -> TraceJobs:
    """The jobs for which `kept` is true; `notes` gets a sentence about the others."""
    left_out = len(jobs) - int(np.count_nonzero(kept))
    if not left_out:
        return jobs
    notes.append(f"{left_out:,} of {len(jobs):,} jobs {reason}")
    return jobs.where(kept)


def _pilot_size(policy: Policy, ce: TwinCe) -> PilotSize:
    """The size of pilots: the demand of the policy, as far as a node has it."""
    settings = policy.ces[ce.name]
    seconds = wall_of_new_pilot(min(settings.wall, ce.wall))
    if not ce.fits(settings.pilot_processors, settings.pilot_memory):
        return PilotSize(0, 0, 0.0, 0.0)
    room = [kind.memory for kind in ce.nodes if kind.processors >= settings.pilot_processors]
    memory = settings.pilot_memory or (0 if 0 in room else max(room))
    return PilotSize(settings.pilot_processors, memory, seconds, seconds * settings.cpu_power)


def _fits(jobs: TraceJobs, sizes: Sequence[PilotSize]) -> Array:
    fits = np.zeros(len(jobs), bool)
    for size in sizes:
        fits |= _fits_one(jobs, size)
    return fits


def _fits_one(jobs: TraceJobs, size: PilotSize) -> Array:
    rows, memory = jobs.rows, size.memory or np.inf
    fits: Array = (rows["processors"] <= size.processors) & (rows["memory"] <= memory)
    return fits


def _in_time(jobs: TraceJobs, sizes: Sequence[PilotSize], cpu_buckets: Sequence[int]) -> Array:
    """Whether a pilot that has room for the job also has the time that its task queue asks for."""
    buckets = np.array(cpu_buckets)
    cpu = buckets[np.minimum(np.searchsorted(buckets, jobs.rows["cpu"]), len(buckets) - 1)]
    in_time = np.zeros(len(jobs), bool)
    for size in sizes:
        in_time |= _fits_one(jobs, size) & (jobs.rows["wall"] <= size.seconds) & (cpu <= size.cpu)
    return in_time


def _longest_lives(jobs: TraceJobs, sizes: Sequence[PilotSize]) -> Array:
    """The seconds that the longest pilot with room for each job lives."""
    longest = np.zeros(len(jobs))
    for size in sizes:
        longest = np.maximum(longest, np.where(_fits_one(jobs, size), size.seconds, 0.0))
    return longest


def _check_ces(name: str, policy: Policy, ces: Sequence[TwinCe]) -> None:
    for ce in ces:
        if ce.name not in policy.ces:
            known = ", ".join(list(policy.ces)[:SHOWN]) or "none"
            raise InvalidInput(
                f"{name} has no CE {ce.name}, so its jobs could not run there",
                hint=f"its CEs: {known}; `pilotage twin policy` writes a policy with the CEs of --ces",
            )
        settings = policy.ces[ce.name]
        if not settings.serves_everybody:
            raise InvalidInput(
                f"{name}: CE {ce.name} serves only the owner of the home",
                hint=f'set owners = "any" in [ces.{ce.name}]',
            )


def _check_owners(name: str, policy: Policy, jobs: TraceJobs) -> None:
    """Raise if the policy does not admit jobs of an owner and group of the trace."""
    refused = {pair for pair in jobs.memberships() if not policy.admits(*pair)}
    if not refused:
        return
    groups = Counter(group for _, group in refused)
    owners, named = sorted(owner for owner, _ in refused), ", ".join(list(groups)[:SHOWN])
    hint = "`pilotage twin policy --trace FILE` writes a policy with all groups and users of a trace"
    missing = [group for group in groups if group not in policy.groups]
    if missing:
        raise InvalidInput(
            f"{name} has no group {', '.join(missing[:SHOWN])}{_more(len(missing))}, which the trace has",
            hint=hint,
        )
    shown = ", ".join(owners[:SHOWN])
    raise InvalidInput(
        f"{name} does not admit {shown}{_more(len(owners))} in {named}{_more(len(groups))}", hint=hint
    )


def _more(count: int) -> str:
    return f" and {count - SHOWN:,} more" if count > SHOWN else ""
