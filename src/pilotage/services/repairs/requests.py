"""Repairs of requests, elements and data sets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from pilotage.core.plurals import plural
from pilotage.core.requests.states import SUCCESSFUL, RequestState
from pilotage.core.workqueue.states import ElementState
from pilotage.services.catalogue.outputs import close_output
from pilotage.services.repairs.repair import ACTOR, REASON, Repair, RepairRun
from pilotage.services.workqueue.moves import ElementMoves
from pilotage.services.workqueue.roll_up import end_elements
from pilotage.store.integrity import datasets as dataset_checks
from pilotage.store.integrity import mended_requests as rows
from pilotage.store.tables import (
    cancelling,
    datasets,
    elements,
    job_outcomes,
    location_sets,
    queued_requests,
    replicas,
    requests,
)
from pilotage.store.tables.job_outcomes import JobEnd
from pilotage.store.tables.queued_requests import QueuedEvent
from pilotage.store.writer.transaction import Transaction

R = RequestState
NO_JOB = "a part of its events has no job"


def _state_before(state: RequestState) -> RequestState:
    """The state from which a request goes on that has ended too early."""
    if state in SUCCESSFUL:
        return R.RUNNING_OPEN
    if state in (R.ABORTED_COMPLETED, R.ABORTED_ARCHIVED):
        return R.ABORTED
    return R.ACQUIRED if state is R.FAILED else state


def go_on(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Let requests go on with the steps that have work left, and with all steps after these."""
    connection = tx.connection
    for id_ in ids:
        row = requests.for_change(connection, id_)
        if row is None:
            continue
        opened, taking = list[int](), list[int]()
        for step in rows.steps_with_work(connection, id_):
            if step.after in opened or step.has_input:
                taking.append(step.position)
            if step.position in taking or step.has_work:
                opened.append(step.position)
        rows.open_steps(connection, id_, opened, taking=taking)
        state = _state_before(row.state)
        rows.put_back(connection, row, state, run.now, "it had ended before all of its work")
        detail = f"{plural(len(opened), 'step')} with work left: {REASON}"
        requests.record(
            connection, row, "repaired", actor=ACTOR, now=run.now, old=row.state, new=state, detail=detail
        )


def name_events(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Let elements count as failed, so that a resubmission takes the parts of them that have no job."""
    by_request: dict[int, list[int]] = {}
    for request, element in rows.name_as_unsplit(tx.connection, ids, run.now, NO_JOB):
        by_request.setdefault(request, []).append(element)
    queued_requests.save_events(
        tx.connection,
        [
            QueuedEvent(
                request, run.now, ACTOR, "elements", ElementState.DONE, ElementState.FAILED,
                json.dumps({"elements": of_request, "reason": NO_JOB}, separators=(",", ":")),
            )
            for request, of_request in by_request.items()
        ],
    )  # fmt: skip


def count_jobs(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    rows.count_jobs(tx.connection, ids)
    end_elements(tx.connection, ids, run.now)


def free_elements(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    moves = ElementMoves(run.now, ACTOR)
    for row in elements.by_ids(tx.connection, ids, lock=True).values():
        moves.move(row, ElementState.AVAILABLE, agent=None, reason="its agent does not exist")
    moves.save(tx.connection)


def tell_ends(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Tell the roll-up how jobs of the pool ended. Pieces whose jobs are gone are made again."""
    known = rows.ends_of_pool_jobs(tx.connection, ids)
    ends = [
        JobEnd(
            *(end.element_job, end.job, end.state, end.at or run.now, end.exit_code, end.failure or ""),
            *(end.reason or "", end.wall or 0.0, max(1, end.tries), end.site or ""),
        )
        for end in known
        if end.job is not None and end.state is not None
    ]
    job_outcomes.append(tx.connection, ends)
    cancelling.take_back(tx.connection, [(end.element_job,) for end in known if end.state is None])


def close_outputs(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    for dataset in ids:
        while not close_output(tx, dataset, run.now):
            pass


def count_blocks(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    for block in ids:
        datasets.count_contents(tx.connection, block)


def locate(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Let the location of blocks follow from their replicas. It is not known where it never was."""
    with_replicas = replicas.of_blocks(tx.connection, ids)
    blocks = datasets.blocks_by_ids(tx.connection, ids).values()
    unknown = [block.id for block in blocks if block.located is None and block.id not in with_replicas]
    known = [block.id for block in blocks if block.id not in unknown]
    replicas.locate(tx.connection, known, run.now)
    replicas.locate(tx.connection, unknown, run.now, forget=True)


def locate_elements(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Let the duty of locations look at the blocks of elements again."""
    of_elements = elements.by_ids(tx.connection, ids).values()
    replicas.record_moved(
        tx.connection, sorted({block for row in of_elements for block in row.block_ids}), run.now
    )


def place_jobs(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Let made jobs run where their blocks are."""
    for sites, of_sites in dataset_checks.sites_of_jobs(tx.connection, ids).items():
        rows.place_jobs(tx.connection, location_sets.id_of(tx.connection, sites), of_sites)


REPAIRS: Final[Mapping[str, Repair]] = {
    "requests-ended-early": go_on,
    "outputs-not-taken": go_on,
    "elements-without-events": name_events,
    "element-counts": count_jobs,
    "elements-not-ended": count_jobs,
    "elements-of-no-agent": free_elements,
    "released-without-job": tell_ends,
    "cooloff-without-end": lambda run, tx, ids: rows.end_pauses(tx.connection, ids, run.now),
    "outputs-left-open": close_outputs,
    "blocks-closed-or-not": lambda run, tx, ids: rows.close_blocks(tx.connection, ids),
    "block-contents": count_blocks,
    "dataset-contents": lambda run, tx, ids: rows.count_closed(tx.connection, ids),
    "block-locations": locate,
    "element-locations": locate_elements,
    "made-jobs-without-sites": place_jobs,
    "rows-of-deleted-blocks": lambda run, tx, ids: rows.delete_of_blocks(tx.connection, ids),
}
