"""The life of a pilot, as a table (DIRAC's pilot states, with the moves of the director's hand-over)."""

from __future__ import annotations

from enum import StrEnum

from pilotage.core.state_table import Row, StateTable


class PilotState(StrEnum):
    SUBMITTED = "Submitted"
    WAITING = "Waiting"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    DONE = "Done"
    FAILED = "Failed"
    ABORTED = "Aborted"
    DELETED = "Deleted"


S = PilotState


PILOT_STATES: StateTable[PilotState] = StateTable(
    "pilot",
    S.SUBMITTED,
    {
        S.SUBMITTED: Row(
            "director",
            "its intent is stored; the batch system has not been heard yet",
            {S.WAITING, S.RUNNING, S.ABORTED, S.DELETED, S.UNKNOWN},
        ),
        S.WAITING: Row(
            "batch system",
            "queued in the batch system",
            {S.RUNNING, S.ABORTED, S.DELETED, S.UNKNOWN, S.FAILED},
        ),
        S.RUNNING: Row("pilot", "has called home", {S.DONE, S.FAILED, S.ABORTED, S.DELETED, S.UNKNOWN}),
        S.UNKNOWN: Row(
            "director",
            "neither it nor its batch system can be heard",
            {S.RUNNING, S.WAITING, S.DONE, S.FAILED, S.ABORTED, S.DELETED},
        ),
        S.DONE: Row("nobody", "left in good order"),
        S.FAILED: Row("pilot", "its lease ran out, or it ended without a word", {S.RUNNING}),
        S.ABORTED: Row("nobody", "never called home; the batch system no longer has it"),
        S.DELETED: Row("nobody", "cancelled"),
    },
)

FINAL = frozenset({S.DONE, S.FAILED, S.ABORTED, S.DELETED})
LIVE = frozenset(PilotState) - FINAL
