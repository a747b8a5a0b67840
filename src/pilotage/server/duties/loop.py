"""The loop of periodic work, and background tasks that end with the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any

from pilotage.server.context import Context
from pilotage.server.disk_space import FailureLog
from pilotage.server.duties.duty import Duty
from pilotage.server.failing_rows import CYCLE
from pilotage.store.engine.connection import ServerEvicted

log = logging.getLogger(__name__)


async def every(
    context: Context,
    duty: Duty,
    wake: asyncio.Event | None = None,
    run: Callable[[Duty], Awaitable[None]] | None = None,
    *,
    least_period: float = 0.0,
) -> None:
    """Run `duty` once per period, or when woken, until the server stops. Log each of its failures once.

    A duty that is idle runs again when the store has changed since its last cycle began.
    `run`: runs a cycle in place of `duty.cycle`, for instance only with a lease.
    """
    failures, shown = FailureLog(duty.name, context.disk.space), context.duties.failing.of(duty.name)
    while not context.stop.is_set():
        seen = context.writer.changes.count
        try:
            await (duty.cycle() if run is None else run(duty))
        except ServerEvicted as error:
            context.stop.error = error
            context.stop.set()
        except Exception as error:
            seen = None
            failures.record_failure(error)
            shown.add(CYCLE, "", error)
        else:
            failures.record_success()
            shown.discard(CYCLE, "")
        woken = await pause(context, max(duty.period(), least_period), wake)
        while not woken and seen is not None and seen == context.writer.changes.count:
            idle = duty.idle_until - context.monotonic()
            if idle <= 0 or context.stop.is_set():
                break
            woken = await pause(context, idle, wake, context.writer.changes.next())
        duty.woken = woken


async def pause(
    context: Context,
    seconds: float,
    wake: asyncio.Event | None = None,
    change: asyncio.Future[None] | None = None,
) -> bool:
    """Wait for `seconds`, or until the server stops, `wake` is set or `change` is done.

    Clears `wake`; returns whether it was set.
    """
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(context.stop.wait())]
    if wake is not None:
        waits.append(asyncio.ensure_future(wake.wait()))
    if change is not None:
        waits.append(change)
    timeout = None if seconds == inf else seconds
    await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if wake is None:
        return False
    woken = wake.is_set()
    wake.clear()
    return woken


async def until_stopped(context: Context, work: Coroutine[None, None, None]) -> None:
    """Run a task in the background and cancel it at shutdown. Its failure is logged and does not stop the server."""
    task, stop = asyncio.create_task(work), asyncio.create_task(context.stop.wait())
    try:
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):
            log.error("%s failed", work, exc_info=ended)
