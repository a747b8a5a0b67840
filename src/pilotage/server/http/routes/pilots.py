"""Routes to list and show pilots, read their output, and end them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from fastapi import Response

from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.ids import PilotId
from pilotage.core.pilots.cost import efficiency
from pilotage.core.pilots.orders import LeaveOrder
from pilotage.core.policy.lookup import ce_by_name
from pilotage.outside.batch.pilot_logs import read_log_from
from pilotage.server.context import Context
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.pages import page
from pilotage.server.tokens import Caller
from pilotage.services.audit import audited
from pilotage.services.jobs.audited_actions import ranges_text
from pilotage.services.pilots.orders import CHUNK, Ordered, order_to_leave
from pilotage.store.tables import jobs, listing, pilot_demand
from pilotage.store.tables import pilots as pilot_rows
from pilotage.store.tables.listing import PilotSummaryRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.wire import limits
from pilotage.wire.limits import MAX_INT64
from pilotage.wire.pilots import (
    KILL_PILOTS,
    READ_PILOT_LOG,
    SHOW_PILOT,
    PilotDetail,
    PilotKill,
    PilotKillResponse,
    PilotLogQuery,
    PilotRefusal,
)
from pilotage.wire.pool import LIST_PILOTS, PilotSummary
from pilotage.wire.queries import PageQuery

router = CallRouter("places")

REFUSALS_SHOWN = 100
MAX_LOG_BYTES = 256 * 1024
TAIL_BYTES = 64 * 1024
"""The part of a log that is sent without an offset."""


@router.call(LIST_PILOTS)
def pilots(asked: PageQuery, context: TheContext, caller: TheCaller) -> Response:
    """Pilots, newest first.

    The owner, the core-seconds and the end of the log are shown to the owner and to administrators only.
    """
    rows = listing.pilots(context.readers.connection(), asked.after, asked.limit)
    return page("pilots", ((row.id, _summary(context, caller, row)) for row in rows), asked.limit)


def _summary(context: Context, caller: Caller, row: PilotSummaryRow) -> PilotSummary:
    if not caller.viewer().everything and row.owner != caller.user:
        # After the colon follows the end of the pilot's log, which names jobs, owners and groups.
        reason = row.reason.partition(":")[0]
        row = row._replace(owner="", reason=reason, core_seconds=0.0, payload_core_seconds=0.0)
    pilot, pool = PilotId(row.id), context.pool
    row = row._replace(finished=row.finished + pool.pilots.finished.get(pilot, 0))
    return PilotSummary(
        **row._asdict(),
        stalled=pilot in pool.pilots.stalled,
        last_seen=pool.pilots.last_seen.get(pilot),
        efficiency=efficiency(row.payload_core_seconds, row.core_seconds),
    )


@router.call(SHOW_PILOT)
def pilot_detail(pilot: limits.Id, context: TheContext, caller: TheCaller) -> PilotDetail:
    """One pilot. It hides from users the same facts as the list of pilots."""
    connection = context.readers.connection()
    row = _require_pilot(context, pilot)
    [summary] = listing.pilots(connection, min(pilot + 1, MAX_INT64), 1)
    queue = pilot_demand.queue_of_pilot(connection, row.id) or (None, False)
    return PilotDetail(
        _summary(context, caller, summary),
        row.stamp,
        # An order of a turn names the owner whose turn it is.
        row.leave.partition(":")[0],
        None if row.ended is not None else row.lease_until,
        [job.id for job in jobs.of_pilots(connection, [row.id], for_update=False)]
        if caller.viewer().everything
        else [],
        row.pilot_type,
        *(queue if caller.viewer().everything else (None, False)),
    )


def _require_pilot(context: Context, pilot: int) -> PilotRow:
    row = pilot_rows.by_id(context.readers.connection(), PilotId(pilot))
    if row is None:
        raise NotFound(f"there is no pilot {pilot}", hint="see `pilotage pilot list --all`")
    return row


@router.call(READ_PILOT_LOG)
def pilot_log(pilot: limits.Id, asked: PilotLogQuery, context: TheContext, caller: TheCaller) -> Response:
    """The output of the pilot itself from `offset`, else its end. Administrators only: it names jobs and owners.

    The server reads the batch system's file if it can. Else it answers with the lines that the pilot sent at its end.
    """
    row = _require_pilot(context, pilot)
    begin, data = _read_log(context, row, asked.offset)
    headers = {"X-Pilotage-State": str(row.state), "X-Pilotage-Offset": str(begin)}
    return Response(data, headers=headers, media_type="application/octet-stream")


def _read_log(context: Context, row: PilotRow, offset: int | None) -> tuple[int, bytes]:
    """A part of a pilot's output and its position. Raises NotFound with the reason if there is none."""
    ce = context.pool.policy.ces.get(row.ce)
    folder = str(context.pilots.logs) if ce is None or ce.type == "local" else ce.log_folder
    most = TAIL_BYTES if offset is None else MAX_LOG_BYTES
    if (part := read_log_from(folder, row.stamp, offset, most)) is not None:
        return part
    sent = pilot_rows.sent_log(context.readers.connection(), row.id).encode()
    if sent:
        begin = max(0, len(sent) - most) if offset is None else min(offset, len(sent))
        return begin, sent[begin : begin + most]
    if row.started is None:
        raise NotFound(f"pilot {row.id} has no output: it has not called home", hint="it may still wait")
    kind = "TYPE" if ce is None else ce.type
    hint = f"set `ces.{row.ce}.{kind}.log_folder` to a folder that the nodes and the server share"
    if row.ended is None:
        raise NotFound(f"the server cannot read the output of pilot {row.id} while it runs", hint=hint)
    raise NotFound(f"the output of pilot {row.id} is gone: it ended without a word", hint=hint)


@router.call(KILL_PILOTS)
async def kill_pilots(body: PilotKill, context: TheContext, caller: TheCaller) -> PilotKillResponse:
    """Order pilots to leave, or have the batch system cancel them. Administrators only."""
    if (body.ids is None) == (body.ce is None):
        raise InvalidInput("name pilots by `ids` or by `ce`, one of the two")
    if body.order not in list(LeaveOrder):
        raise InvalidInput(f"order: {body.order!r} is not one of {', '.join(LeaveOrder)}", field="order")
    order, answer = LeaveOrder(body.order), PilotKillResponse(0, 0)
    pool, clock = context.pool, context.clock
    async for ids in _chunks(context, body):
        change = partial(
            order_to_leave,
            pool,
            ids=ids,
            asked=order,
            actor=f"user:{caller.user}",
            reason=body.reason,
            now=clock(),
            dry_run=body.dry_run,
        )
        called = audited_call(context, caller, KILL_PILOTS, f"pilots {ranges_text(ids)}", body.reason)
        made = partial(_orders_text, order)
        ordered = await context.writer.acall(change if body.dry_run else audited(called, change, made=made))
        answer.matched += len(ids)
        answer.done += len(ordered.done)
        answer.not_called += ordered.not_called
        room = REFUSALS_SHOWN - len(answer.refused)
        answer.refused += [PilotRefusal(pilot, message) for pilot, message in ordered.refused[:room]]
    if body.ce is not None and not answer.matched:
        ce_by_name(context.pool.policy, body.ce)
    context.wake.local_ces.set()
    return answer


def _orders_text(order: LeaveOrder, ordered: Ordered) -> str:
    """The orders that were given, for the audit log."""
    return f"{order} ordered: {ranges_text(ordered.done) or 'none'}"


async def _chunks(context: Context, body: PilotKill) -> AsyncIterator[list[PilotId]]:
    """The pilots that a request names, a few at a time."""
    if body.ids is not None:
        ids = [PilotId(id_) for id_ in dict.fromkeys(body.ids)]
        for first in range(0, len(ids), CHUNK):
            yield ids[first : first + CHUNK]
        return
    name, after = str(body.ce), 0
    while True:
        ids = await context.quick_read(partial(pilot_rows.live_ids, ce=name, after=after, most=CHUNK))
        if not ids:
            return
        yield ids
        after = ids[-1]
