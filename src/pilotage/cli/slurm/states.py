"""States and reasons of jobs in the words of Slurm."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.states import JobState
from pilotage.wire.jobs import JobSummary


class SlurmState(NamedTuple):
    name: str
    code: str
    ended: bool = False


PENDING: Final = SlurmState("PENDING", "PD")
RUNNING: Final = SlurmState("RUNNING", "R")
COMPLETING: Final = SlurmState("COMPLETING", "CG")
COMPLETED: Final = SlurmState("COMPLETED", "CD", True)
FAILED: Final = SlurmState("FAILED", "F", True)
CANCELLED: Final = SlurmState("CANCELLED", "CA", True)
TIMEOUT: Final = SlurmState("TIMEOUT", "TO", True)
OUT_OF_MEMORY: Final = SlurmState("OUT_OF_MEMORY", "OOM", True)
NODE_FAIL: Final = SlurmState("NODE_FAIL", "NF", True)

ALL_STATES: Final = (
    PENDING, RUNNING, COMPLETING, COMPLETED, FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL,
)  # fmt: skip
_NEVER: Final = {
    "BF": "BOOT_FAIL", "CF": "CONFIGURING", "DL": "DEADLINE", "PR": "PREEMPTED", "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED", "RH": "REQUEUE_HOLD", "RQ": "REQUEUED", "RS": "RESIZING", "RV": "REVOKED",
    "S": "SUSPENDED", "SE": "SPECIAL_EXIT", "SI": "SIGNALING", "SO": "STAGE_OUT", "ST": "STOPPED",
}  # fmt: skip
"""States of Slurm that no job has here. A query may name them."""

BY_JOB_STATE: Final[dict[JobState, SlurmState]] = {
    JobState.SUBMITTING: PENDING,
    JobState.RECEIVED: PENDING,
    JobState.CHECKING: PENDING,
    JobState.SCOUTING: PENDING,
    JobState.STAGING: PENDING,
    JobState.BLOCKED: PENDING,
    JobState.HELD: PENDING,
    JobState.WAITING: PENDING,
    JobState.MATCHED: PENDING,
    JobState.TAKEN: PENDING,
    JobState.RESCHEDULED: PENDING,
    JobState.RUNNING: RUNNING,
    JobState.STALLED: RUNNING,
    JobState.COMPLETING: COMPLETING,
    JobState.COMPLETED: COMPLETING,
    JobState.DONE: COMPLETED,
    JobState.FAILED: FAILED,
    JobState.KILLED: CANCELLED,
    JobState.SKIPPED: CANCELLED,
    JobState.SUPERSEDED: FAILED,
    JobState.DELETED: CANCELLED,
}
"""FAILED stands for the states that `state_of` tells apart by the reason."""
_BY_FAILURE: Final = (("limit-wall", TIMEOUT), ("limit-cpu", TIMEOUT), ("limit-memory", OUT_OF_MEMORY))
_EXIT: Final = re.compile(r"(?:exit code (\d+)|signal (\d+))")


def state_of(job: JobSummary) -> SlurmState:
    state = BY_JOB_STATE[JobState(job.state)]
    if state is not FAILED:
        return state
    for failure, named in _BY_FAILURE:
        if job.reason.startswith(failure):
            return named
    return FAILED if job.exit_code is not None or _EXIT.match(job.reason) else NODE_FAIL


def exit_of(job: JobSummary) -> tuple[int, int]:
    """(exit code, signal) of an ended job."""
    match = _EXIT.match(job.reason)
    if match is not None:
        return int(match[1] or 0), int(match[2] or 0)
    state = state_of(job)
    if state is OUT_OF_MEMORY:
        return 0, 125
    if state is NODE_FAIL:
        return 1, 0
    return (job.exit_code or 0, 0) if state in (COMPLETED, FAILED) else (0, 0)


def reason_of(job: JobSummary, *, depends: bool) -> str:
    """Why a job is pending or has failed, in one word. `depends`: it was submitted to run after others."""
    state = state_of(job)
    if state is PENDING:
        if job.state == JobState.BLOCKED:
            return "Dependency" if depends else "JobArrayTaskLimit"
        if job.state == JobState.HELD:
            return "JobHeldUser"
        if job.state == JobState.RESCHEDULED:
            return "BeginTime"
        return "Priority" if job.state == JobState.WAITING else "None"
    if job.state == JobState.SKIPPED:
        return "DependencyNeverSatisfied"
    return {
        FAILED: "NonZeroExitCode",
        TIMEOUT: "TimeLimit",
        OUT_OF_MEMORY: "OutOfMemory",
        NODE_FAIL: "NodeDown",
    }.get(state, "None")


def parse_states(text: str) -> set[SlurmState]:
    """The states of `-t PD,RUNNING`; `all` is every state. States that no job has here select nothing."""
    listed: set[SlurmState] = set()
    for part in text.split(","):
        word = part.strip().upper()
        if word == "ALL":
            return set(ALL_STATES)
        known = [state for state in ALL_STATES if word in (state.name, state.code)]
        if not known and word not in _NEVER and word not in _NEVER.values():
            raise InvalidInput(f"{part.strip() or 'nothing'} is not a state of a job")
        listed.update(known)
    return listed


def job_states(states: set[SlurmState]) -> list[str]:
    """The states of Pilotage in which a job may have one of these states."""
    ends = {FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL}
    return [
        str(state)
        for state, named in BY_JOB_STATE.items()
        if named in states or (named is FAILED and ends & states)
    ]
