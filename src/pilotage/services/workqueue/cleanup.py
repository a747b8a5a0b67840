"""Cleanup steps: they remove the input of a merge, and so they wait for it.

A merge that has failed may be done again by a resubmission. Its input stays, with that of all its neighbours, until a
resubmission finds that all of it is merged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum

from pilotage.core.requests.specification import RESUBMIT
from pilotage.core.splitting.mask import Mask
from pilotage.core.workqueue.states import ElementState
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import datasets, element_masks, element_progress, resubmissions
from pilotage.store.tables.requests import RequestRow, StepRow


class Cleanup(Enum):
    """Whether a cleanup step may begin."""

    WAITS = "the merge goes on"
    BEGINS = "all is merged"
    NEVER = "a part is not merged"


def cleanup_of(
    connection: Connection, request: RequestRow, steps: Sequence[StepRow], step: StepRow
) -> Cleanup:
    """Whether the cleanup step `step` of these steps of a request may begin."""
    merge = next(other for other in steps if other.position == step.after)
    if not merge.ended:
        return Cleanup.WAITS
    states = element_progress.of_step(connection, merge.request, merge.position).states
    is_merged = states <= {ElementState.DONE}
    if is_merged and merge.start_policy == RESUBMIT:
        # Its merge made some parts only; the earlier requests have made the others.
        is_merged = not has_begun(connection, request, step) and _is_whole(connection, request, merge)
    return Cleanup.BEGINS if is_merged else Cleanup.NEVER


def has_begun(connection: Connection, request: RequestRow, step: StepRow) -> bool:
    """Whether another request of the chain removes the input of the merge."""
    others = [number for number in _chain(connection, request) if number != request.id]
    return next(resubmissions.elements_of(connection, others, step.position), None) is not None


def _is_whole(connection: Connection, request: RequestRow, merge: StepRow) -> bool:
    """Whether done jobs of the chain have merged each file of the input."""
    assert merge.input_dataset is not None
    blocks = datasets.closed_blocks(connection, merge.input_dataset, 0, 10**9)
    files = {file.id for file in element_masks.files_of_blocks(connection, [block.id for block in blocks])}
    for _, text in resubmissions.done_masks(connection, _chain(connection, request), merge.position):
        files -= {part.file for part in Mask.from_json(json.loads(text)).ranges}
    return not files


def _chain(connection: Connection, request: RequestRow) -> list[int]:
    """The request that was submitted first, and its resubmissions."""
    root = request.root or request.id
    return [root, *(row.id for row in resubmissions.of_chain(connection, root))]
