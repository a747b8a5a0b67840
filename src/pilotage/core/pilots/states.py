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


def _row(moved_by: str, meaning: str, *following: PilotState) -> Row[PilotState]:
    return Row(moved_by, meaning, frozenset(following))


PILOT_STATES: StateTable[PilotState] = StateTable(
    "pilot",
    S.SUBMITTED,
    {
        S.SUBMITTED: _row(
            "director",
            "its intent is stored; the batch system has not been heard yet",
            S.WAITING,
            S.RUNNING,
            S.ABORTED,
            S.DELETED,
            S.UNKNOWN,
        ),
        S.WAITING: _row(
            "batch system",
            "queued in the batch system",
            S.RUNNING,
            S.ABORTED,
            S.DELETED,
            S.UNKNOWN,
            S.FAILED,
        ),
        S.RUNNING: _row(
            "pilot",
            "has called home",
            S.DONE,
            S.FAILED,
            S.ABORTED,
            S.DELETED,
            S.UNKNOWN,
        ),
        S.UNKNOWN: _row(
            "director",
            "neither it nor its batch system can be heard",
            S.RUNNING,
            S.WAITING,
            S.DONE,
            S.FAILED,
            S.ABORTED,
            S.DELETED,
        ),
        S.DONE: _row("nobody", "left in good order"),
        S.FAILED: _row("pilot", "its lease ran out, or it ended without a word", S.RUNNING),
        S.ABORTED: _row("nobody", "never called home; the batch system no longer has it"),
        S.DELETED: _row("nobody", "cancelled"),
    },
)

FINAL = frozenset({S.DONE, S.FAILED, S.ABORTED, S.DELETED})
LIVE = frozenset(PilotState) - FINAL
