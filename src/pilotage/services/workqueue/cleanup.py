"""Cleanup steps: they remove the input of a merge, and so they wait for it.

A merge that has failed may be done again by a resubmission. Its input stays, with that of all its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pilotage.core.workqueue.states import ElementState
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_progress
from pilotage.store.tables.requests import StepRow


class Cleanup(Enum):
    """Whether a cleanup step may begin."""

    WAITS = "the merge goes on"
    BEGINS = "all is merged"
    NEVER = "a part is not merged"


def cleanup_of(connection: Connection, steps: Sequence[StepRow], step: StepRow) -> Cleanup:
    """Whether the cleanup step `step` of these steps of a request may begin."""
    merge = next(other for other in steps if other.position == step.after)
    if not merge.ended:
        return Cleanup.WAITS
    states = element_progress.of_step(connection, merge.request, merge.position).states
    return Cleanup.BEGINS if states <= {ElementState.DONE} else Cleanup.NEVER
