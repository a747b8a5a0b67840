"""One listener at the change feed: the changes that it may see, from its cursor on."""

from __future__ import annotations

import asyncio

from pilotage.core.errors import Conflict, CursorExpired
from pilotage.server.context import Context
from pilotage.server.feed.change_feed import Awaited
from pilotage.server.feed.cursor import FeedCursor, StreamPosition, parse_cursor
from pilotage.server.tokens import Caller
from pilotage.store.tables.feed import FeedRow
from pilotage.store.tables.selections import Viewer
from pilotage.wire.changes import ChangesPage, ChangesQuery, FeedChange


async def listen(asked: ChangesQuery, context: Context, caller: Caller) -> ChangesPage:
    """Changes after a cursor. Without one, answers at once with the cursor of now.

    With `wait`, in seconds, the answer comes with the first change or when they are over.
    """
    feed = context.duties.feed
    if feed.closed:
        raise Conflict(feed.closed, hint="look at the jobs again and again, or ask another server")
    with feed.listening():
        if not asked.after:
            return ChangesPage([], str(await _newest(context)))
        cursor = _usable(context, parse_cursor(asked.after))
        end = context.monotonic() + asked.wait
        while True:
            viewer = context.standing(caller).viewer()
            with feed.next_change(_awaited(viewer, asked)) as change:
                shown, cursor, more = await _read(context, cursor, viewer, asked)
                left = end - context.monotonic()
                if shown or more or left <= 0 or context.stop.is_set():
                    return ChangesPage(shown, str(cursor))
                await asyncio.wait((change,), timeout=left)


def _awaited(viewer: Viewer, asked: ChangesQuery) -> Awaited:
    """The least kind of changes that has all of the changes asked for."""
    if asked.submission is not None:
        return asked.submission
    return asked.owner or ("" if viewer.everything or viewer.shared_group else viewer.owner)


async def _newest(context: Context) -> FeedCursor:
    feed, read = context.duties.feed, context.quick_read
    jobs, requests = await feed.of_jobs.newest(read), await feed.of_requests.newest(read)
    return FeedCursor(context.pool.server.incarnation, jobs, requests, int(context.clock()))


def _usable(context: Context, cursor: FeedCursor) -> FeedCursor:
    """The cursor, if all changes after it are there. Raises CursorExpired."""
    start = "start again without a cursor: list the jobs, then follow the new cursor"
    if cursor.incarnation != context.pool.server.incarnation:
        raise CursorExpired("the cursor is of the time before the database was restored", hint=start)
    if cursor.at < context.clock() - context.pool.policy.retention.events:
        raise CursorExpired("changes after the cursor may be deleted already", hint=start)
    return cursor


async def _read(
    context: Context, cursor: FeedCursor, viewer: Viewer, asked: ChangesQuery
) -> tuple[list[FeedChange], FeedCursor, bool]:
    """(visible changes, cursor behind them, whether more may follow at once)."""
    feed, read = context.duties.feed, context.quick_read
    rows, jobs, more = await feed.changes(read, cursor.jobs, of_requests=False)
    rows, jobs, cut = _first(rows, jobs, viewer, asked, asked.limit)
    shown, requests = list(map(_shown, rows)), cursor.requests
    if not cut and asked.submission is None:
        rows, requests, more_requests = await feed.changes(read, requests, of_requests=True)
        rows, requests, cut = _first(rows, requests, viewer, asked, asked.limit - len(shown))
        shown += map(_shown, rows)
        more = more or more_requests
    at = cursor.at if more or cut else int(context.clock())
    return shown, FeedCursor(cursor.incarnation, jobs, requests, at), more or cut


def _first(
    rows: list[FeedRow], end: StreamPosition, viewer: Viewer, asked: ChangesQuery, most: int
) -> tuple[list[FeedRow], StreamPosition, bool]:
    """The first `most` visible rows, the position behind them, and whether some are left."""
    seen = [row for row in rows if _is_asked_for(row, viewer, asked)]
    if len(seen) <= most:
        return seen, end, False
    last = seen[most - 1] if most else None
    behind = (
        StreamPosition(seen[0].log, seen[0].entry - 1)
        if last is None
        else StreamPosition(last.log, last.entry)
    )
    return seen[:most], behind, True


def _is_asked_for(row: FeedRow, viewer: Viewer, asked: ChangesQuery) -> bool:
    return (
        viewer.may_see(row.owner, row.group)
        and (asked.owner is None or row.owner == asked.owner)
        and (asked.group is None or row.group == asked.group)
        and (asked.submission is None or asked.submission == row.concerned_submission)
    )


def _shown(row: FeedRow) -> FeedChange:
    is_job, is_submission = row.kind == "job", row.kind == "submission"
    return FeedChange(
        row.kind,
        row.id,
        row.state,
        row.at,
        submission=row.submission if is_job else 0,
        epoch=row.epoch,
        exit_code=row.exit_code,
        jobs=row.jobs if is_submission else 0,
        first=row.submission if is_submission else 0,
    )
