"""The state machine of requests, as a table, and the changes that each state allows.

States and moves are as in WMCore's request manager. `staging` and `staged` are for data placement.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pilotage.core.errors import Conflict
from pilotage.core.state_table import UNUSED, Row, StateTable


class RequestState(StrEnum):
    NEW = "new"
    ASSIGNMENT_APPROVED = "assignment-approved"
    ASSIGNED = "assigned"
    STAGING = "staging"
    STAGED = "staged"
    ACQUIRED = "acquired"
    RUNNING_OPEN = "running-open"
    RUNNING_CLOSED = "running-closed"
    FORCE_COMPLETE = "force-complete"
    COMPLETED = "completed"
    CLOSED_OUT = "closed-out"
    ANNOUNCED = "announced"
    NORMAL_ARCHIVED = "normal-archived"
    ABORTED = "aborted"
    ABORTED_COMPLETED = "aborted-completed"
    ABORTED_ARCHIVED = "aborted-archived"
    FAILED = "failed"
    REJECTED = "rejected"
    REJECTED_ARCHIVED = "rejected-archived"


R = RequestState


REQUEST_STATES: StateTable[RequestState] = StateTable(
    "request",
    R.NEW,
    {
        R.NEW: Row("production manager", "submitted, not yet approved", {R.ASSIGNMENT_APPROVED, R.REJECTED}),
        R.ASSIGNMENT_APPROVED: Row(
            "production manager", "approved, without a team", {R.ASSIGNED, R.REJECTED}
        ),
        R.ASSIGNED: Row(
            "intake",
            "has a team; its elements are not all made",
            {R.STAGING, R.ACQUIRED, R.ABORTED, R.FAILED},
        ),
        R.STAGING: Row(
            "data placement", f"its input is brought to the sites; {UNUSED}", {R.STAGED, R.ABORTED}
        ),
        R.STAGED: Row("intake", f"its input is at the sites; {UNUSED}", {R.ACQUIRED, R.ABORTED, R.FAILED}),
        R.ACQUIRED: Row(
            "roll-up", "its elements are in the global queue", {R.RUNNING_OPEN, R.ABORTED, R.FAILED}
        ),
        R.RUNNING_OPEN: Row(
            "roll-up",
            "elements or blocks are left that no agent has split",
            {R.RUNNING_CLOSED, R.FORCE_COMPLETE, R.ABORTED},
        ),
        R.RUNNING_CLOSED: Row(
            "roll-up", "all of its jobs are made", {R.FORCE_COMPLETE, R.COMPLETED, R.ABORTED}
        ),
        R.FORCE_COMPLETE: Row("roll-up", "being ended early; jobs that are done count", {R.COMPLETED}),
        R.COMPLETED: Row(
            "production manager",
            "all of its elements have ended; failed ones can be resubmitted",
            {R.CLOSED_OUT, R.REJECTED},
        ),
        R.CLOSED_OUT: Row("production manager", "its result is accepted", {R.ANNOUNCED, R.REJECTED}),
        R.ANNOUNCED: Row("production manager", "its result is made known", {R.REJECTED, R.NORMAL_ARCHIVED}),
        R.NORMAL_ARCHIVED: Row("production manager", "kept for the record", {R.REJECTED_ARCHIVED}),
        R.ABORTED: Row(
            "roll-up", "aborted; its elements and jobs are being cancelled", {R.ABORTED_COMPLETED}
        ),
        R.ABORTED_COMPLETED: Row(
            "production manager", "aborted, and all of its work has ended", {R.ABORTED_ARCHIVED}
        ),
        R.ABORTED_ARCHIVED: Row("nobody", "aborted, kept for the record"),
        R.FAILED: Row(
            "production manager", "no work could be made of it; see its reason", {R.REJECTED, R.ASSIGNED}
        ),
        R.REJECTED: Row("production manager", "refused", {R.REJECTED_ARCHIVED}),
        R.REJECTED_ARCHIVED: Row("nobody", "refused, kept for the record"),
    },
)

BEFORE_INTAKE: Final = (R.NEW, R.ASSIGNMENT_APPROVED)
ACTIVE: Final = (
    *(R.ASSIGNED, R.STAGING, R.STAGED, R.ACQUIRED),
    *(R.RUNNING_OPEN, R.RUNNING_CLOSED, R.FORCE_COMPLETE, R.ABORTED),
)
"""The work queue has something to do for them."""
UNFINISHED: Final = (*BEFORE_INTAKE, *ACTIVE)
"""They count for the limit of an owner."""
ENDED: Final = frozenset(RequestState) - frozenset(UNFINISHED)
"""Nothing happens any more by itself."""
SUCCESSFUL: Final = frozenset({R.COMPLETED, R.CLOSED_OUT, R.ANNOUNCED, R.NORMAL_ARCHIVED})

_BEFORE_FORCE_COMPLETE: Final = frozenset(
    {
        *(R.NEW, R.ASSIGNMENT_APPROVED, R.ASSIGNED, R.STAGING, R.STAGED),
        *(R.ACQUIRED, R.RUNNING_OPEN, R.RUNNING_CLOSED),
    }
)
EDITABLE: Final = {
    # A forced request still merges its outputs: it may need another site or team for that.
    "priority": _BEFORE_FORCE_COMPLETE | {R.FORCE_COMPLETE},
    "sites": _BEFORE_FORCE_COMPLETE | {R.FORCE_COMPLETE},
    "team": _BEFORE_FORCE_COMPLETE | {R.FORCE_COMPLETE},
    "pause": _BEFORE_FORCE_COMPLETE,
    "splitting and resources": frozenset({R.NEW, R.ASSIGNMENT_APPROVED, R.FAILED}),
}
"""The states in which a fact of a request may be changed."""

_AUTOMATIC: Final = (*(R.ASSIGNED, R.ACQUIRED, R.RUNNING_OPEN, R.RUNNING_CLOSED, R.COMPLETED),)
"""The states that work passes through by itself, in this order."""


def check_editable(fact: str, state: RequestState) -> None:
    """Raise `Conflict` unless the fact may be changed in this state."""
    if state not in EDITABLE[fact]:
        possible = ", ".join(name for name in RequestState if name in EDITABLE[fact])
        raise Conflict(
            f"the {fact} of a request in state {state} cannot be changed", hint=f"it can be in: {possible}"
        )


def states_between(old: RequestState, new: RequestState) -> tuple[RequestState, ...]:
    """The states from `old` to `new`, `new` included, each of which gets an event; empty: it does not go forward.

    Work that ends fast skips states for an observer, but never in the history.
    """
    if old is R.FORCE_COMPLETE and new is R.COMPLETED:
        return (new,)
    if old is R.ABORTED and new is R.ABORTED_COMPLETED:
        return (new,)
    order = {state: place for place, state in enumerate(_AUTOMATIC)}
    start = R.ASSIGNED if old in (R.STAGING, R.STAGED) else old
    if start not in order or new not in order:
        return ()
    return _AUTOMATIC[order[start] + 1 : order[new] + 1]
