"""Resubmissions: each failed part of a request is in at most one resubmission that is under way or has done it.

A resubmission gets its elements in the transaction of its submission, and this transaction locks the first request
of the chain. So the elements are its claim, whichever servers accept two resubmissions at the same time. A claim ends
with its request: then only the parts that are done stay claimed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pilotage.core.errors import Conflict
from pilotage.core.requests.json_format import stored_steps
from pilotage.core.requests.specification import BLOCK, CLEANUP
from pilotage.core.requests.start_policies import START_POLICIES
from pilotage.core.requests.start_policy import FailedPiece, Reads, StepInput
from pilotage.core.requests.states import UNFINISHED, RequestState
from pilotage.core.splitting.mask import FileRange, Mask
from pilotage.core.splitting.remainder import Coverage
from pilotage.services.catalogue.locations import hold_locations
from pilotage.services.workqueue.cleanup import has_begun
from pilotage.services.workqueue.failed_pieces import failed_pieces, unclaimed
from pilotage.services.workqueue.planned_elements import algorithm_of, job_count_of, new_element
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_masks, elements, queued_requests, requests, resubmissions
from pilotage.store.tables.requests import RequestRow
from pilotage.store.tables.resubmissions import ResubmissionRow
from pilotage.store.writer.transaction import Transaction

REFUSED = frozenset({RequestState.REJECTED, RequestState.REJECTED_ARCHIVED})
KEEPING = frozenset({*UNFINISHED, RequestState.FAILED})
"""A resubmission in one of these states may still do its parts. A failed one may be assigned again."""


@dataclass(slots=True)
class FailedParts:
    """The failed parts of a request that a resubmission may make again."""

    pieces: dict[int, list[FailedPiece]] = field(default_factory=dict)
    """The failed pieces of each step."""
    failed: int = 0
    """All failed parts: jobs that failed for good, and elements that could not be split."""
    taken: int = 0
    """The failed parts that are not left out as a whole."""
    left_out: Counter[int] = field(default_factory=Counter)
    """The number of parts that each earlier resubmission does or has done, at least partly."""


def lock_chain(connection: Connection, row: RequestRow) -> int:
    """Let no other server resubmit a request of the chain before this transaction ends; returns the first request."""
    root = row.root or row.id
    requests.for_change(connection, root)
    return root


def failed_parts(connection: Connection, row: RequestRow, chain: Sequence[ResubmissionRow]) -> FailedParts:
    """The failed parts of a request that no resubmission of `chain` has."""
    parts = FailedParts()
    others = [other for other in chain if other.id != row.id]
    for planned in stored_steps(row.specification, row.id):
        algorithm = algorithm_of(planned)
        failed = list(failed_pieces(connection, row.id, planned.position, algorithm))
        if not failed:
            continue
        claims = _claims(connection, others, planned.position)
        parts.failed += len(failed)
        for piece in failed:
            rest = list(unclaimed(connection, piece, claims, algorithm, parts.left_out))
            parts.taken += bool(rest)
            parts.pieces.setdefault(planned.position, []).extend(rest)
    return parts


def _claims(connection: Connection, chain: Sequence[ResubmissionRow], step: int) -> dict[int, Coverage]:
    """The parts of a step that each resubmission has."""
    masks: dict[int, list[Mask]] = {}
    keeping = [other.id for other in chain if other.state in KEEPING]
    for request, blocks, text in resubmissions.elements_of(connection, keeping, step):
        mask = Mask.from_json(json.loads(text)) if text else _whole(connection, json.loads(blocks))
        masks.setdefault(request, []).append(mask)
    ended = [other.id for other in chain if other.state not in KEEPING]
    for request, text in resubmissions.done_masks(connection, ended, step):
        masks.setdefault(request, []).append(Mask.from_json(json.loads(text)))
    return {request: Coverage(claimed) for request, claimed in sorted(masks.items())}


def _whole(connection: Connection, blocks: Sequence[int]) -> Mask:
    return Mask(tuple(FileRange(file.id) for file in element_masks.files_of_blocks(connection, blocks)))


def check_parts(connection: Connection, row: RequestRow, chain: Sequence[ResubmissionRow]) -> FailedParts:
    """The parts for a new resubmission. Raises `Conflict` if there is none."""
    parts = failed_parts(connection, row, chain)
    if not parts.failed:
        raise Conflict(
            f"no job of request {row.id} has failed for good, and all of its elements could be split",
            hint="`pilotage request clone` runs all",
        )
    if not parts.taken:
        states = {other.id: other.state for other in chain}
        named = ", ".join(
            f"{count:,} in request {number} ({states[number]})" for number, count in parts.left_out.items()
        )
        last = max(parts.left_out)
        hint = f"`pilotage request show {last}`; after its end, its failed parts can be resubmitted"
        if not any(states[number] in KEEPING for number in parts.left_out):
            hint = "all of them are done: nothing is left to make again"
            if any(states[number] in REFUSED for number in parts.left_out):
                # Their outputs stay in the data set, where each event may be only once.
                hint = f"their results were rejected: `pilotage request clone {row.root or row.id}` makes all again"
        raise Conflict(f"each failed part of request {row.id} has a resubmission: {named}", hint=hint)
    return parts


def store_parts(tx: Transaction, row: RequestRow, parts: FailedParts, now: float) -> None:
    """Give a new resubmission the elements of these parts."""
    connection = tx.connection
    planned = stored_steps(row.specification, row.id)
    for step in requests.steps_of(connection, row.id):
        policy = START_POLICIES[step.start_policy]
        if policy.reads is not Reads.FAILURES:
            continue
        if step.type == CLEANUP and not has_begun(connection, row, step):
            # Earlier merges had failures. The resubmission removes the pieces when it has merged the rest.
            queued_requests.set_start_policy(connection, row.id, step.position, BLOCK)
            continue
        pieces = _with_present_locations(tx, parts.pieces.get(step.position, []))
        plan = policy.plan(StepInput(job_count=job_count_of(planned[step.position]), failures=pieces))
        new = [new_element(connection, row.id, step.position, element, now) for element in plan.elements]
        if new:
            elements.insert_new(connection, new)
        queued_requests.save_progress(connection, row.id, step.position, len(pieces), closed=True)


def _with_present_locations(tx: Transaction, pieces: Sequence[FailedPiece]) -> list[FailedPiece]:
    """The blocks may have moved since the pieces failed. Pieces that generate events have none."""
    inputs = {tuple(block for block, _ in piece.blocks) for piece in pieces if piece.blocks}
    ordered = sorted(inputs)
    sets = dict(zip(ordered, hold_locations(tx, ordered), strict=True))
    return [
        replace(piece, location_set=sets.get(tuple(block for block, _ in piece.blocks), piece.location_set))
        for piece in pieces
    ]
