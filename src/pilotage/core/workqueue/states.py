"""The states of elements and of element jobs, as tables.

Elements have the states of WMCore's work queue, in its order of progress.
"""

from __future__ import annotations

from enum import StrEnum

from pilotage.core.handover import Custody
from pilotage.core.state_table import Row, StateTable


class ElementState(StrEnum):
    AVAILABLE = "Available"
    NEGOTIATING = "Negotiating"
    ACQUIRED = "Acquired"
    RUNNING = "Running"
    DONE = "Done"
    FAILED = "Failed"
    CANCEL_REQUESTED = "CancelRequested"
    CANCELED = "Canceled"


E = ElementState


ELEMENT_STATES: StateTable[ElementState] = StateTable(
    "element",
    E.AVAILABLE,
    {
        # A finished splitting is used, even if the lease of the agent was over: nobody else has begun.
        E.AVAILABLE: Row("pull", "no agent has it", {E.NEGOTIATING, E.RUNNING, E.FAILED, E.CANCELED}),
        E.NEGOTIATING: Row(
            "agent",
            "offered to an agent, not yet confirmed",
            {E.AVAILABLE, E.ACQUIRED, E.RUNNING, E.CANCELED},
        ),
        E.ACQUIRED: Row(
            "agent",
            "an agent has it and splits it into jobs",
            {E.AVAILABLE, E.RUNNING, E.FAILED, E.CANCEL_REQUESTED},
        ),
        E.RUNNING: Row(
            "roll-up", "all of its jobs are made", {E.DONE, E.FAILED, E.CANCEL_REQUESTED, E.CANCELED}
        ),
        E.DONE: Row("", "all of its jobs are done"),
        E.FAILED: Row("", "some of its jobs failed for good, or it could not be split"),
        E.CANCEL_REQUESTED: Row(
            "agent, roll-up", "it is being cancelled: its agent or its jobs have not ended yet", {E.CANCELED}
        ),
        E.CANCELED: Row("", "cancelled; jobs that were done before stay done"),
    },
)

_CUSTODY = {E.AVAILABLE: Custody.FREE, E.NEGOTIATING: Custody.OFFERED, E.ACQUIRED: Custody.HELD}


def custody_of(state: ElementState) -> Custody:
    """Who has the splitting of an element: the item that the hand-over passes to an agent."""
    return _CUSTODY.get(state, Custody.FINAL)


class ElementJobState(StrEnum):
    MADE = "made"
    RELEASED = "released"
    COOLOFF = "cooloff"
    DONE = "done"
    EXHAUSTED = "exhausted"
    CANCELED = "canceled"


J = ElementJobState


ELEMENT_JOB_STATES: StateTable[ElementJobState] = StateTable(
    "element job",
    J.MADE,
    {
        J.MADE: Row(
            "agent, release", "made by an agent, not in the pool", {J.RELEASED, J.EXHAUSTED, J.CANCELED}
        ),
        J.RELEASED: Row(
            "roll-up", "in the pool as a job", {J.DONE, J.COOLOFF, J.EXHAUSTED, J.CANCELED, J.MADE}
        ),
        J.COOLOFF: Row(
            "roll-up", "failed; it is made again after its pause", {J.MADE, J.EXHAUSTED, J.CANCELED}
        ),
        J.DONE: Row("", "done; its outputs are registered"),
        J.EXHAUSTED: Row("", "failed for good; a resubmission takes exactly these"),
        J.CANCELED: Row("", "ended by an abort or a force-complete, without a failed try"),
    },
)
