"""Agents read the input of their elements, and post masks, which become element jobs.

A mask is stored once for each element. It must lie within the element and overlap no other mask, and an element is
split only when each of its events has a job. So an agent cannot lose or double a piece of a data set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pilotage.core.errors import Conflict, InvalidInput, NotFound
from pilotage.core.handover import Answer, Custody, Message
from pilotage.core.plurals import plural
from pilotage.core.short_text import cut_middle
from pilotage.core.splitting.mask import FileRecord, Mask
from pilotage.core.splitting.parser import stored_splitting
from pilotage.core.workqueue.coverage import ElementCoverage, Generate, TakenPiece
from pilotage.core.workqueue.identity import digest_of
from pilotage.core.workqueue.states import ElementJobState, ElementState, custody_of
from pilotage.services.catalogue.locations import hold_locations
from pilotage.services.workqueue.custody import AgentUser, decide_for
from pilotage.services.workqueue.membership import present_agent
from pilotage.services.workqueue.moves import ElementMoves
from pilotage.services.workqueue.roll_up import end_elements
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.engine.connection import MAX_INTEGER, Connection
from pilotage.store.tables import element_jobs, element_masks, element_progress, elements, queued_requests
from pilotage.store.tables.agents import AgentRow
from pilotage.store.tables.element_masks import NewElementJob
from pilotage.store.tables.element_progress import JobsEnded
from pilotage.store.tables.elements import ElementRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.agents import MAX_RANGES, PostedMasks, PostMasks
from pilotage.wire.limits import MAX_INT64

RANGES_AT_ONCE = 2000
"""Ranges of masks stored in one transaction; a single mask may have more."""
LONGEST_REASON = 2000
"""Characters of the reason why no job may process a piece."""
SPLITTING_FAILURE = "splitting"
"""The failure of a piece that no job may process by the rules of the splitting."""


def read_mask(document: Mapping[str, Any]) -> Mask:
    """A mask of an agent. Raises `InvalidInput` unless each part has the right type and range."""
    unknown = set(document) - {"files", "first_event", "events", "first_lumi", "lumis", "refused"}
    refused = document.get("refused", "")
    numbers = [document.get(name, 0) for name in ("first_event", "events", "first_lumi", "lumis")]
    parts = document.get("files", [])
    if unknown or not all(map(_is_count, numbers)) or not isinstance(parts, list):
        raise _malformed()
    if not isinstance(refused, str) or len(refused) > LONGEST_REASON:
        raise _malformed()
    lumis = (part[3] for part in parts if isinstance(part, list) and len(part) == 4)
    if len(parts) + sum(len(spans) for spans in lumis if isinstance(spans, list)) > MAX_RANGES:
        raise InvalidInput(
            f"masks: one has more than {MAX_RANGES:,} ranges of files and lumis", field="masks"
        )
    if not all(map(_is_range, parts)):
        raise _malformed()
    return Mask.from_json(document)


def _ranges(mask: Mask) -> int:
    return sum(1 + len(part.lumis) for part in mask.ranges)


def parts_of(message: PostMasks, masks: Iterable[Mask]) -> Iterator[tuple[PostMasks, dict[str, Mask]]]:
    """The parts of a message, each for a transaction of its own, with their masks by digest.

    Only the final part is the last of the element. A message may end after any part: masks that exist change nothing.
    """
    part: dict[str, Mask] = {}
    ranges = 0
    for mask in masks:
        ranges += 1 + _ranges(mask)
        if part and ranges > RANGES_AT_ONCE:
            yield replace(message, last=False), part
            part, ranges = {}, 1 + _ranges(mask)
        part[mask.digest] = mask
    yield message, part


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_INT64


def _is_range(part: object) -> bool:
    if not isinstance(part, list) or not 3 <= len(part) <= 4:
        return False
    file, first, events = part[:3]
    if not (_is_count(file) and _is_count(first) and (events == -1 or _is_count(events))):
        return False
    lumis = part[3] if len(part) == 4 else []
    return isinstance(lumis, list) and all(
        isinstance(lumi, list) and len(lumi) == 3 and all(map(_is_count, lumi)) for lumi in lumis
    )


def _malformed() -> InvalidInput:
    return InvalidInput(
        'masks: one is malformed; it is {"files": [[file, first, events, lumis]], "events": ...}',
        field="masks",
    )


def post_masks(
    work_queue: WorkQueue,
    tx: Transaction,
    agent_id: int,
    user: AgentUser,
    element: int,
    message: PostMasks,
    masks: Mapping[str, Mask],
    now: float,
) -> PostedMasks:
    """Store the masks of one part of a message as jobs. With `last` the element is split, or has failed."""
    agent = present_agent(tx, agent_id, user)
    row = elements.by_ids(tx.connection, [element], lock=True).get(element)
    if row is None:
        raise NotFound(f"there is no element {element}")
    if message.failure and message.last:
        return _fail(work_queue, tx, agent, row, message, now)
    known = element_masks.known_digests(tx.connection, row.id, sorted(masks))
    new = {digest: mask for digest, mask in masks.items() if digest not in known}
    if not message.last:
        if row.finished_epoch == message.epoch and not new:
            # A part of the last message, which is sent again.
            return PostedMasks(0, len(known))
        decision = decide_for(tx.connection, agent, row, message.epoch, Message.KEEP)
        if decision.answer is Answer.SUPERSEDED:
            return PostedMasks(0, 0, superseded=True)
        _make_jobs(work_queue, tx, agent, row, new, now)
        return PostedMasks(len(new), len(known))
    digests = sorted({*element_masks.digests_of(tx.connection, row.id), *new})
    digest = digest_of(digests)
    decision = decide_for(tx.connection, agent, row, message.epoch, Message.FINISH, digest)
    if decision.answer is Answer.SUPERSEDED:
        return PostedMasks(0, 0, superseded=True)
    if row.finished_epoch == message.epoch:
        return PostedMasks(0, len(known))
    _make_jobs(work_queue, tx, agent, row, new, now)
    _finish(work_queue, tx, agent, row, len(digests), digest, message, now)
    return PostedMasks(len(new), len(known))


def _finish(
    work_queue: WorkQueue,
    tx: Transaction,
    agent: AgentRow,
    row: ElementRow,
    jobs: int,
    digest: str,
    message: PostMasks,
    now: float,
) -> None:
    if not jobs:
        raise InvalidInput("masks: an element without a mask cannot be split", field="masks")
    if message.total and message.total != jobs:
        raise Conflict(
            f"element {row.id} has {plural(jobs, 'mask')}, and its agent knows {message.total}",
            hint="read the masks that exist, and make the rest",
        )
    missing = _coverage(work_queue, tx, row).missing()
    if missing:
        raise InvalidInput(f"element {row.id} is not split: {missing}", field="last")
    elements.save_split(
        tx.connection,
        row.id,
        agent=agent.id,
        jobs=jobs,
        epoch=message.epoch,
        digest=digest,
        now=now,
    )
    moves = ElementMoves(now, f"agent:{agent.name}")
    moves.record(row, ElementState.RUNNING)
    moves.save(tx.connection)
    # Its jobs may have ended before it was split.
    end_elements(tx.connection, [row.id], now)
    work_queue.coverages.pop((row.id, row.epoch), None)


def _fail(
    work_queue: WorkQueue, tx: Transaction, agent: AgentRow, row: ElementRow, message: PostMasks, now: float
) -> PostedMasks:
    """The agent cannot split the element. Jobs that were made before go on."""
    digest = digest_of({"failure": message.failure})
    decision = decide_for(tx.connection, agent, row, message.epoch, Message.FINISH, digest)
    if decision.answer is Answer.SUPERSEDED:
        return PostedMasks(0, 0, superseded=True)
    if row.finished_epoch == message.epoch:
        return PostedMasks(0, 0)
    moves = ElementMoves(now, f"agent:{agent.name}")
    if custody_of(row.state) is Custody.OFFERED:
        moves.record(row, ElementState.ACQUIRED)
        row = row._replace(state=ElementState.ACQUIRED)
    moves.move(row, ElementState.FAILED, agent=agent.id, site=row.site, reason=message.failure)
    moves.save(tx.connection)
    elements.save_unsplit(tx.connection, row.id, epoch=message.epoch, digest=digest)
    work_queue.coverages.pop((row.id, row.epoch), None)
    return PostedMasks(0, 0)


def _make_jobs(
    work_queue: WorkQueue,
    tx: Transaction,
    agent: AgentRow,
    row: ElementRow,
    masks: Mapping[str, Mask],
    now: float,
) -> None:
    if not masks:
        return
    coverage = _coverage(work_queue, tx, row)
    # If a mask is refused, or the transaction fails, the coverage is read again.
    tx.on_rollback(lambda: work_queue.coverages.pop((row.id, row.epoch), None))
    try:
        taken = {digest: coverage.take(mask) for digest, mask in masks.items()}
    except InvalidInput:
        work_queue.coverages.pop((row.id, row.epoch), None)
        raise
    if row.block_ids:
        [location_set] = hold_locations(tx, [row.block_ids])
        row = row._replace(location_set=location_set)
    jobs = [_job(agent, row, digest, piece, now) for digest, piece in taken.items()]
    refused = [_refused(job, masks[job.digest].refused) for job in jobs if masks[job.digest].refused]
    made = [job for job in jobs if not masks[job.digest].refused]
    element_masks.insert_jobs(tx.connection, [*made, *refused])
    element_progress.add(tx.connection, [JobsEnded(0, len(refused), 0, 0, row.id)] if refused else [])
    work_queue.loads.add(agent.id, row.site, row.request_id, len(made))


def _refused(job: NewElementJob, reason: str) -> NewElementJob:
    """The row of a piece that no job may process: it has failed for good, and the others of its element go on."""
    message = cut_middle(reason, element_jobs.MESSAGE_LENGTH)
    return job._replace(
        state=ElementJobState.EXHAUSTED, ended=job.made, failure=SPLITTING_FAILURE, message=message
    )


def _job(agent: AgentRow, row: ElementRow, digest: str, piece: TakenPiece, now: float) -> NewElementJob:
    mask, size = piece
    return NewElementJob(
        element_id=row.id,
        element_epoch=row.epoch,
        digest=digest,
        mask=mask.text,
        request_id=row.request_id,
        step=row.step,
        state=ElementJobState.MADE,
        location_set=row.location_set,
        site=row.site,
        agent_id=agent.id,
        events=min(size.events, MAX_INTEGER),
        files=size.files,
        size=min(size.size, MAX_INTEGER),
        made=now,
    )


def _coverage(work_queue: WorkQueue, tx: Transaction, row: ElementRow) -> ElementCoverage:
    """The parts of an element that have jobs. Another server may have made some since."""
    key, connection = (row.id, row.epoch), tx.connection
    coverage = work_queue.coverages.use(key)
    if coverage is not None and work_queue.pool.peers.shared:
        coverage = coverage if coverage.masks == element_masks.count_of(connection, row.id) else None
    if coverage is None:
        restriction = Mask.from_json(json.loads(row.mask)) if row.mask else None
        generate = _generator(connection, row) if restriction and restriction.generates else None
        files = element_masks.files_of_blocks(connection, row.block_ids)
        coverage = ElementCoverage(files, restriction, generate)
        for mask in element_masks.masks_of(connection, row.id):
            coverage.take(Mask.from_json(json.loads(mask)))
        work_queue.coverages[key] = coverage
        tx.on_rollback(lambda: work_queue.coverages.pop(key, None))
    return coverage


def _generator(connection: Connection, row: ElementRow) -> Generate:
    steps = queued_requests.steps_of(connection, [row.request_id])
    [stored] = [json.loads(step.splitting) for step in steps if step.position == row.step]
    return stored_splitting(stored["algorithm"], stored.get("parameters", {})).generate


def held_element(connection: Connection, agent: AgentRow, element: int, epoch: int) -> ElementRow | None:
    """An element that an agent may split; None: it is not the agent's any more."""
    row = elements.by_ids(connection, [element]).get(element)
    if row is None or row.agent_id != agent.id or row.epoch != epoch or row.state not in elements.UNSPLIT:
        return None
    return row


def files_page(
    connection: Connection, row: ElementRow, after: int, limit: int
) -> tuple[list[FileRecord], int]:
    """Files of an element's blocks, block by block, after a file; and the cursor of the next page, 0 at the end."""
    blocks: Sequence[int] = row.block_ids
    if after:
        block = element_masks.block_of_file(connection, after)
        blocks = blocks[blocks.index(block) :] if block in blocks else []
    files: list[FileRecord] = []
    for place, block in enumerate(blocks):
        begin = after if place == 0 else 0
        files += element_masks.files_of_block(connection, block, begin, limit + 1 - len(files))
        if len(files) > limit:
            return files[:limit], files[limit - 1].id
    return files, 0
