"""What must hold of requests once all is at rest: each event is in exactly one accepted result of each step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from tests.faults.mask_audit import audit_request
from tests.simulation.broken import Broken, need
from tests.simulation.payloads import Storage
from tests.simulation.policy import MAX_RESCHEDULES
from tests.simulation.productions import ENDED, MAX_RETRIES, ProductionBooks
from tests.simulation.stores import Rows


def unsettled(connection: Rows) -> Iterator[str]:
    """The requests that are not at rest yet."""
    for id_, state, propagating in connection.execute("SELECT id, state, propagating FROM requests"):
        if state not in ENDED or propagating:
            yield f"request {id_} is {state}"
    under_way = connection.execute(
        "SELECT id, request_id, state FROM element_jobs"
        " WHERE state NOT IN ('done', 'exhausted', 'canceled') LIMIT 5"
    ).fetchall()
    if under_way:
        yield f"jobs of requests have not ended: {under_way}"


def check_end(connection: Rows, books: ProductionBooks, storage: Storage) -> None:
    known = {id_ for (id_,) in connection.execute("SELECT id FROM requests")}
    need(known == set(books.requests), f"requests {known}, as the manager was told {books.requests}")
    for request in books.requests:
        _events_are_in_one_result(connection, request, books)
        if request not in books.ended_early:
            _each_event_is_told(connection, request)
    _outputs_are_merged(connection)
    for request, events in books.requests.items():
        if events:
            _merged_once(connection, request, events, books)
    _files_are_stored(connection, storage)
    _tries_are_bounded(connection)
    _nothing_is_held(connection)


def _events_are_in_one_result(connection: Rows, request: int, books: ProductionBooks) -> None:
    try:
        audit_request(connection, request)
    except Broken:
        raise
    except AssertionError as error:
        raise Broken(f"request {request}: {error}") from error
    events = sum(
        events
        for (events,) in connection.execute(
            "SELECT events FROM elements WHERE request_id = ? AND step = 0", (request,)
        )
    )
    if books.requests[request] and request not in books.ended_early:
        need(events == books.requests[request], f"request {request}: elements with {events} events")


def _each_event_is_told(connection: Rows, request: int) -> None:
    """A completed request has each event in an accepted result, or in a piece that it names as failed."""
    [state] = connection.execute("SELECT state FROM requests WHERE id = ?", (request,)).fetchone()
    if state != "completed":
        return
    pieces: Counter[tuple[int, str]] = Counter()
    for element, piece, events in connection.execute(
        "SELECT element_id, state, events FROM element_jobs WHERE request_id = ?", (request,)
    ):
        pieces[element, piece] += events
    for element, its_state, unsplit, events in connection.execute(
        "SELECT id, state, unsplit, events FROM elements WHERE request_id = ?", (request,)
    ):
        need(
            its_state in ("Done", "Failed"),
            f"request {request} is completed, its element {element} is {its_state}",
        )
        told = pieces[element, "done"] + pieces[element, "exhausted"]
        untold = not unsplit and told != events
        need(
            not untold,
            f"request {request} is completed: element {element} has {events} events, {told} are told",
        )


def _outputs_are_merged(connection: Rows) -> None:
    """Each closed block of a data set that a later step reads is in one of its elements."""
    for request, position, dataset in connection.execute(
        "SELECT s.request_id, s.position, s.input_dataset FROM request_steps s JOIN requests r ON r.id = s.request_id"
        " WHERE r.state = 'completed' AND s.type = 'Merge' AND s.input_dataset IS NOT NULL"
    ).fetchall():
        known = {
            block
            for (blocks,) in connection.execute(
                "SELECT e.blocks FROM elements e JOIN request_steps s ON s.request_id = e.request_id"
                " AND s.position = e.step WHERE s.input_dataset = ? AND s.type = 'Merge'",
                (dataset,),
            )
            for block in json.loads(blocks)
        }
        filled = {
            block
            for (block,) in connection.execute(
                "SELECT DISTINCT block_id FROM files WHERE dataset_id = ?", (dataset,)
            )
        }
        need(
            filled <= known,
            f"request {request} step {position}: blocks {sorted(filled - known)} are not merged",
        )


def _merged_once(connection: Rows, request: int, events: int, books: ProductionBooks) -> None:
    """The final files have each event once, those of a resubmission included, unless some have failed for good."""
    chain = [
        id_
        for (id_,) in connection.execute(
            "SELECT id FROM requests WHERE id = ? OR root_id = ?", (request,) * 2
        )
    ]
    marks = ",".join("?" * len(chain))
    failed = connection.execute(
        f"SELECT count(*) FROM element_jobs WHERE request_id IN ({marks}) AND state <> 'done'", chain
    ).fetchone()[0]
    found = connection.execute(
        "SELECT coalesce(sum(f.events), 0) FROM files f JOIN datasets d ON d.id = f.dataset_id"
        f" WHERE d.request_id IN ({marks}) AND d.name NOT LIKE '%/unmerged'",
        chain,
    ).fetchone()[0]
    need(found <= events, f"request {request}: {found} events in its result, of {events}")
    if not failed and not set(chain) & books.ended_early:
        need(found == events, f"request {request}: {found} events in its result, of {events}")


def _files_are_stored(connection: Rows, storage: Storage) -> None:
    """Each file that jobs have registered was written, with its events, and was not removed as long as it is known."""
    rows = connection.execute(
        "SELECT r.prefix, f.name, f.events FROM files f JOIN replicas r ON r.block_id = f.block_id"
        " WHERE f.element_job_id IS NOT NULL"
    ).fetchall()
    for prefix, name, events in rows:
        path = f"{prefix}/{name}"
        need(storage.files.get(path) == events, f"{path} is known with {events} events, and was not written")
        # A cleanup that a restore has forgotten may have removed it.
        gone = storage.removed.get(path) == storage.incarnation
        need(not gone, f"{path} is known, and was removed")


def _tries_are_bounded(connection: Rows) -> None:
    """A job is made again as long as it has a retry left. The pool may then lose that job with pilots, some times.

    The count has the tries of both. The pool's last try of an exhausted job is none of its retries.
    """
    most = MAX_RETRIES + 1
    rows = connection.execute(
        "SELECT id, state, retries FROM element_jobs"
        " WHERE retries > CASE WHEN state = 'exhausted' THEN ? ELSE ? END",
        (MAX_RETRIES + MAX_RESCHEDULES, MAX_RETRIES),
    ).fetchall()
    need(not rows, f"tries of jobs of requests: {rows[:5]}")
    starts: Counter[int] = Counter()
    for parameters, count in connection.execute(
        "SELECT j.parameters, count(*) FROM (SELECT parameters, submission_id FROM jobs UNION ALL"
        " SELECT parameters, submission_id FROM history) j JOIN submissions s ON s.id = j.submission_id"
        " WHERE s.request_id IS NOT NULL GROUP BY j.parameters"
    ):
        starts[json.loads(parameters)[0]] += count
    doubled = [(id_, count) for id_, count in starts.items() if count > most + 2]
    need(not doubled, f"jobs in the pool of jobs of requests: {doubled[:5]}")


def _nothing_is_held(connection: Rows) -> None:
    rows = connection.execute(
        "SELECT id, state FROM elements WHERE state NOT IN ('Done', 'Failed', 'Canceled')"
    ).fetchall()
    need(not rows, f"elements that have not ended: {rows[:5]}")
