"""Checks of requests, their steps and their elements: work that nobody does any more, and ends that came too early."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.states import FINAL
from pilotage.core.requests.states import ENDED, SUCCESSFUL, UNFINISHED
from pilotage.core.splitting.mask import Mask
from pilotage.core.splitting.remainder import Coverage, restrict
from pilotage.core.workqueue.roll_up import ENDED as ENDED_ELEMENTS
from pilotage.core.workqueue.states import ElementJobState, ElementState
from pilotage.store.engine.connection import Connection
from pilotage.store.integrity.check import Check, quoted
from pilotage.store.tables import element_jobs, element_masks

_BATCH: Final = 500
_ENDED: Final = quoted(ENDED)
_SUCCESSFUL: Final = quoted(SUCCESSFUL)
_OPEN_ELEMENTS: Final = quoted(set(ElementState) - ENDED_ELEMENTS)
_OPEN_JOBS: Final = quoted(element_jobs.UNFINISHED)
_FINAL: Final = quoted(FINAL)
J: Final = ElementJobState


def _of_element(state: ElementJobState, column: str = "count(*)") -> str:
    return f"(SELECT coalesce({column}, 0) FROM element_jobs j WHERE j.element_id = e.id AND j.state = '{state}')"


_MADE: Final = "(SELECT count(*) FROM element_jobs j WHERE j.element_id = e.id)"
_COUNTS: Final = (
    f"e.jobs_done <> {_of_element(J.DONE)} OR e.jobs_failed <> {_of_element(J.EXHAUSTED)}"
    f" OR e.jobs_canceled <> {_of_element(J.CANCELED)} OR e.events_done <> {_of_element(J.DONE, 'sum(j.events)')}"
    f" OR (e.state IN ('Running', 'Done') AND e.jobs <> {_MADE})"
)


def _without_events(connection: Connection) -> Iterator[int]:
    """Elements that are Done, of requests that succeeded, though a part of their events is in none of their jobs."""
    after = 0
    while True:
        # The masks are read only where the sums are too small.
        rows = connection.execute(
            "SELECT e.id, e.blocks, e.mask FROM elements e JOIN requests r ON r.id = e.request_id"
            f" WHERE e.state = 'Done' AND r.state IN ({_SUCCESSFUL}) AND e.id > ?"
            " AND (e.events > (SELECT coalesce(sum(j.events), 0) FROM element_jobs j WHERE j.element_id = e.id)"
            " OR e.files > (SELECT coalesce(sum(j.files), 0) FROM element_jobs j WHERE j.element_id = e.id))"
            " ORDER BY e.id LIMIT ?",
            (after, _BATCH),
        ).fetchall()
        yield from (
            element for element, blocks, mask in rows if _lacks_events(connection, element, blocks, mask)
        )
        if len(rows) < _BATCH:
            return
        after = rows[-1][0]


def _lacks_events(connection: Connection, element: int, blocks: str, mask: str) -> bool:
    if blocks == "[]":
        # It generates events, and each of its jobs has its own.
        return True
    files = element_masks.files_of_blocks(connection, json.loads(blocks))
    restriction = Mask.from_json(json.loads(mask)) if mask else None
    existing = [Mask.from_json(json.loads(text)) for text in element_masks.masks_of(connection, element)]
    try:
        return bool(Coverage(existing).rest(restrict(files, restriction)))
    except InvalidInput:
        # Its files have changed since, so nobody can tell.
        return False


UNTAKEN: Final = (
    "s.after IS NOT NULL AND s.type <> 'Cleanup'"
    " AND EXISTS (SELECT 1 FROM blocks b WHERE b.dataset_id = s.input_dataset"
    # A later request of a chain may take the blocks that it adds to a data set.
    " AND b.files > 0 AND b.closed_number > (SELECT max(o.taken) FROM request_steps o"
    " WHERE o.input_dataset = s.input_dataset AND o.type = s.type))"
)
"""The step `s` has not taken all output of the step before it."""

CHECKS: Final = (
    Check(
        "requests-ended-early",
        "requests that have ended, or have ended steps, with elements or jobs that have not",
        "No agent gets these elements: the events are lost, and the request says that all is well.",
        f"SELECT r.id FROM requests r WHERE r.state IN ({_ENDED}) AND r.propagating = 0 AND (EXISTS (SELECT 1 FROM"
        f" elements e WHERE e.request_id = r.id AND e.state IN ({_OPEN_ELEMENTS})) OR EXISTS (SELECT 1 FROM"
        f" element_jobs j WHERE j.request_id = r.id AND j.state IN ({_OPEN_JOBS}))) UNION"
        f" SELECT s.request_id FROM request_steps s JOIN requests r ON r.id = s.request_id WHERE s.ended = 1"
        f" AND r.state NOT IN ({_ENDED}) AND (EXISTS (SELECT 1 FROM elements e WHERE e.request_id = s.request_id"
        f" AND e.step = s.position AND e.state IN ({_OPEN_ELEMENTS})) OR EXISTS (SELECT 1 FROM element_jobs j"
        f" WHERE j.request_id = s.request_id AND j.step = s.position AND j.state IN ({_OPEN_JOBS})))",
    ),
    Check(
        "outputs-not-taken",
        "requests that have succeeded without a further step of some of their output",
        "Their output was never merged, or a later step lacks a part of its input.",
        "SELECT s.request_id FROM request_steps s JOIN requests r ON r.id = s.request_id"
        f" WHERE r.state IN ({_SUCCESSFUL}) AND {UNTAKEN}",
    ),
    Check(
        "elements-without-events",
        "elements that are Done though some of their events have no job",
        "These events are in no result, and in no piece that is named as failed.",
        search=_without_events,
    ),
    Check(
        "element-counts",
        "elements whose counters are not the numbers of their jobs",
        "They end too early or never, and progress is told wrong.",
        f"SELECT e.id FROM elements e WHERE {_COUNTS}",
    ),
    Check(
        "elements-not-ended",
        "elements all of whose jobs have ended, and which go on",
        "Their request waits for them for ever.",
        "SELECT e.id FROM elements e WHERE e.state IN ('Running', 'CancelRequested') AND e.finished_epoch = e.epoch"
        f" AND NOT EXISTS (SELECT 1 FROM element_jobs j WHERE j.element_id = e.id AND j.state IN ({_OPEN_JOBS}))",
    ),
    Check(
        "elements-of-no-agent",
        "elements that an agent splits which does not exist",
        "No other agent gets them.",
        "SELECT e.id FROM elements e WHERE e.state IN ('Negotiating', 'Acquired') AND NOT EXISTS"
        " (SELECT 1 FROM agents a WHERE a.id = e.agent_id)",
    ),
    Check(
        "released-without-job",
        "element jobs whose job of the pool has ended or is gone, with no word about the end",
        "Their element waits for them for ever.",
        "SELECT j.id FROM element_jobs j WHERE j.state = 'released' AND NOT EXISTS (SELECT 1 FROM job_outcomes o"
        " WHERE o.element_job_id = j.id AND o.job_id = j.job_id) AND NOT EXISTS (SELECT 1 FROM jobs p"
        f" WHERE p.id = j.job_id AND p.state NOT IN ({_FINAL}))",
    ),
    Check(
        "cooloff-without-end",
        "element jobs in a pause that has no end",
        "They are never made again.",
        "SELECT id FROM element_jobs WHERE state = 'cooloff' AND not_before IS NULL",
    ),
    Check(
        "requests-without-input",
        "unfinished requests whose input was removed",
        "Elements lack files, and their jobs fail.",
        "SELECT s.request_id FROM request_steps s JOIN requests r ON r.id = s.request_id LEFT JOIN datasets d"
        f" ON d.id = s.input_dataset WHERE s.input_dataset IS NOT NULL AND s.ended = 0"
        f" AND r.state IN ({quoted(set(UNFINISHED) - {'aborted'})}) AND (d.id IS NULL OR d.removed IS NOT NULL)",
        by_hand="The files are gone: abort the request (`pilotage request abort`).",
    ),
    Check(
        "outputs-left-open",
        "data sets that no request writes any more and that are open",
        "Their last blocks are never closed, so nobody gets these files as input.",
        f"SELECT d.id FROM datasets d WHERE d.open = 1 AND d.removed IS NULL"
        " AND EXISTS (SELECT 1 FROM request_steps s WHERE d.id IN (s.output_dataset, s.log_dataset) AND s.ended = 1)"
        " AND NOT EXISTS (SELECT 1 FROM request_steps s JOIN requests r ON r.id = s.request_id"
        f" WHERE d.id IN (s.output_dataset, s.log_dataset) AND s.ended = 0 AND r.state NOT IN ({_ENDED}))",
    ),
)
