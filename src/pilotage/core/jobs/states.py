"""The state machine of jobs, as a table.

Sixteen states and their transitions come from DIRAC (JobStatus of 9.1). Pilotage adds the transitions of the
hand-over: a lost offer returns the job to Waiting, and an expired lease moves it to Rescheduled. A late result is
applied in any state that is not final, as long as no newer attempt exists. Pilotage also adds the states Superseded,
Blocked, Held, Skipped and Taken.
"""

from __future__ import annotations

from enum import StrEnum

from pilotage.core.handover import Custody
from pilotage.core.state_table import UNUSED, Row, StateTable


class JobState(StrEnum):
    SUBMITTING = "Submitting"
    RECEIVED = "Received"
    CHECKING = "Checking"
    SCOUTING = "Scouting"
    STAGING = "Staging"
    BLOCKED = "Blocked"
    HELD = "Held"
    WAITING = "Waiting"
    MATCHED = "Matched"
    TAKEN = "Taken"
    RESCHEDULED = "Rescheduled"
    RUNNING = "Running"
    STALLED = "Stalled"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    DONE = "Done"
    FAILED = "Failed"
    KILLED = "Killed"
    SKIPPED = "Skipped"
    SUPERSEDED = "Superseded"
    DELETED = "Deleted"


S = JobState


JOB_STATES: StateTable[JobState] = StateTable(
    "job",
    S.SUBMITTING,
    {
        S.SUBMITTING: Row(
            "submission",
            f"part of a bulk submission that is not complete yet; {UNUSED}",
            {S.RECEIVED, S.CHECKING, S.BLOCKED, S.HELD, S.WAITING, S.DELETED, S.KILLED},
        ),
        S.RECEIVED: Row(
            "submission",
            f"accepted, not yet checked; {UNUSED}",
            {S.SCOUTING, S.CHECKING, S.STAGING, S.WAITING, S.FAILED, S.DELETED, S.KILLED},
        ),
        S.CHECKING: Row(
            "submission",
            f"its description is being checked; {UNUSED}",
            {S.SCOUTING, S.STAGING, S.WAITING, S.RESCHEDULED, S.FAILED, S.DELETED, S.KILLED},
        ),
        S.SCOUTING: Row(
            "submission",
            f"waits for scout jobs of its set; {UNUSED}",
            {S.CHECKING, S.FAILED, S.STALLED, S.KILLED},
        ),
        S.STAGING: Row(
            "data placement",
            f"waits for its input data; {UNUSED}",
            {S.CHECKING, S.WAITING, S.FAILED, S.KILLED},
        ),
        S.BLOCKED: Row(
            "dependency duty",
            "waits for the end of other jobs, in no task queue",
            {S.HELD, S.WAITING, S.SKIPPED, S.DELETED, S.KILLED},
        ),
        S.HELD: Row(
            "owner",
            "kept from running until a person releases it, in no task queue",
            {S.BLOCKED, S.WAITING, S.TAKEN, S.RUNNING, S.DONE, S.FAILED, S.DELETED, S.KILLED},
        ),
        S.WAITING: Row(
            "matcher",
            "in a task queue",
            {
                *(S.BLOCKED, S.HELD, S.MATCHED, S.TAKEN, S.RUNNING, S.RESCHEDULED),
                *(S.DONE, S.FAILED, S.DELETED, S.KILLED),
            },
        ),
        S.MATCHED: Row(
            "pilot",
            "offered to a pilot that has not confirmed yet",
            {S.TAKEN, S.RUNNING, S.WAITING, S.DONE, S.FAILED, S.RESCHEDULED, S.KILLED},
        ),
        S.TAKEN: Row(
            "pilot",
            "taken ahead by a pilot, which starts it as earlier jobs end; it uses no core yet",
            {S.RUNNING, S.WAITING, S.DONE, S.FAILED, S.RESCHEDULED, S.KILLED},
        ),
        S.RESCHEDULED: Row(
            "retry duty",
            "returns to its queue after the retry delay, or to its pilot if that comes back before",
            {
                *(S.BLOCKED, S.HELD, S.WAITING, S.TAKEN, S.RUNNING, S.RECEIVED),
                *(S.DONE, S.DELETED, S.FAILED, S.KILLED),
            },
        ),
        S.RUNNING: Row(
            "pilot",
            "its payload runs",
            {S.STALLED, S.DONE, S.FAILED, S.RESCHEDULED, S.COMPLETING, S.KILLED, S.RECEIVED},
        ),
        S.STALLED: Row(
            "lease duty",
            "its pilot is silent; the lease has not expired",
            {S.RUNNING, S.DONE, S.FAILED, S.RESCHEDULED, S.KILLED},
        ),
        S.COMPLETING: Row(
            "pilot",
            "its payload has ended; outputs are being uploaded",
            {S.DONE, S.FAILED, S.COMPLETED, S.STALLED, S.RESCHEDULED, S.KILLED},
        ),
        S.COMPLETED: Row(
            "nobody",
            "done except for the registration of its outputs; unused, since a finish registers them",
            {S.DONE, S.FAILED},
        ),
        S.DONE: Row(
            "owner",
            "its result is applied; can be redone by hand",
            {S.RESCHEDULED, S.SUPERSEDED, S.DELETED},
        ),
        S.FAILED: Row(
            "owner",
            "its failure is applied; can be rescheduled by hand",
            {S.RESCHEDULED, S.SUPERSEDED, S.DELETED},
        ),
        S.KILLED: Row(
            "owner", "ended by its owner or an administrator", {S.RESCHEDULED, S.SUPERSEDED, S.DELETED}
        ),
        S.SKIPPED: Row(
            "owner",
            "the condition under which it was to run cannot come true; blocked again if its parent is rescheduled",
            {S.BLOCKED, S.SUPERSEDED, S.DELETED},
        ),
        S.SUPERSEDED: Row(
            "owner", "it failed or lacks an output, and a later submission runs it again", {S.DELETED}
        ),
        S.DELETED: Row("nobody", "its outputs are deleted; the history is kept"),
    },
)

FINAL = frozenset({S.DONE, S.FAILED, S.KILLED, S.SKIPPED, S.SUPERSEDED, S.DELETED})
"""Every job ends in one of these states."""

RUNS = frozenset({S.RUNNING, S.STALLED, S.COMPLETING})
"""Its payload has started: the job holds cores."""

WITH_USE = RUNS - {S.COMPLETING}
"""Its payload may still run, so its pilot tells its use."""

CONFIRMED = RUNS | {S.TAKEN}
"""Confirmed by a pilot: custody *held* in the hand-over."""

TAKEN_AHEAD, GIVEN_BACK = "taken ahead", "given back before its start"
"""The outcomes that people see of attempts whose payloads have not started. No time of them counts."""

FREE = frozenset(JobState) - FINAL - CONFIRMED - {S.MATCHED}
"""Held by no pilot: custody *free* in the hand-over. Only Waiting jobs are offered."""


def custody_of(state: JobState) -> Custody:
    """The custody that a job in this state has in the hand-over."""
    if state in CONFIRMED:
        return Custody.HELD
    if state is JobState.MATCHED:
        return Custody.OFFERED
    return Custody.FINAL if state in FINAL else Custody.FREE
