"""The duty that keeps the hot tables small and lets go of what is too old."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pilotage.core.errors import Overloaded
from pilotage.server.context import Context
from pilotage.server.duties import duty_leases
from pilotage.services import retention
from pilotage.services.retention import RULES, Rule, Slicer, SliceResult
from pilotage.store.engine.connection import Connection, WriterConnection
from pilotage.store.tables import partitions
from pilotage.store.tables import retention as retention_rows
from pilotage.store.tables.retention import Removal
from pilotage.store.writer.transaction import Transaction

log = logging.getLogger(__name__)

REMOVED_AT_ONCE = 20
"""Lists of files that are looked at in one turn; a list is what one slice has made of it."""


class RetentionDuty:
    """Goes through the rules in order; each slice is one request to the writer, with a pause after it.

    Whole months, which may have to wait for locks, are seen to in a session of their own.
    """

    def __init__(self, context: Context, logs: Path, session: Callable[[], WriterConnection | None]) -> None:
        """`logs`: where those of local pilots lie. `session` opens one besides the writer's; None: there is none."""
        self._context = context
        self._logs = logs
        self._session = session
        self._slicer = Slicer(time.perf_counter)
        self._looked: dict[str, float] = {}

    def period(self) -> float:
        return retention.PERIOD

    async def cycle(self) -> None:
        await self._make_months()
        for rule in RULES:
            if self._is_due(rule.name, rule.period(self._context.pool.policy)):
                await self._carry_out(rule)
        await self._remove_files()
        self._context.retention_ran_at = self._context.clock()

    def _is_due(self, name: str, period: float) -> bool:
        """By a clock that does not step."""
        now = time.monotonic()
        looked = self._looked.get(name)
        if looked is not None and now - looked < period:
            return False
        self._looked[name] = now
        return True

    async def _carry_out(self, rule: Rule) -> None:
        context = self._context
        now = context.clock()
        before = now - rule.keeps(context.pool.policy)
        if rule.month is not None:
            while await self._apart(lambda apart: retention.drop_month(apart, rule, before, now)):
                pass
        find, found = rule.find, list[Any]()
        if find is not None:
            found = list(await asyncio.to_thread(lambda: find(context.readers.connection(), before)))
            if not found:
                return
        while not context.stop.is_set():
            given = found[: retention.MOST]
            begin = time.perf_counter()
            done: SliceResult = await context.writer.acall(
                lambda tx, given=given: self._slicer.cut(tx.connection, rule, given, before, now)  # type: ignore[misc]
            )
            del found[: done.rows]
            if done.last:
                return
            await self._pause(retention.pause(time.perf_counter() - begin))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._context.stop.wait(), seconds)

    # --- months

    async def _make_months(self) -> None:
        context = self._context
        if not self._is_due("months", retention.LONGEST_PERIOD):
            return
        now = context.clock()
        for table in partitions.PARTITION_COLUMN:
            missing = await asyncio.to_thread(
                lambda table=table: partitions.missing_months(context.readers.connection(), table, now)  # type: ignore[misc]
            )
            for month in missing:
                made = await self._apart(
                    lambda apart, table=table, month=month: partitions.create(apart, table, month)  # type: ignore[misc]
                )
                log.info("%s: %s the month %d", table, "made" if made else "did not make", month)

    async def _apart(self, what: Callable[[Connection], bool]) -> bool:
        """Carry that out in a transaction of a session of its own; False where that cannot be done now."""
        if self._context.stop.is_set():
            return False
        try:
            return await asyncio.to_thread(self._in_session, what)
        except Overloaded as error:
            log.info("%s; it is tried again in the next cycle", error)
        return False

    def _in_session(self, what: Callable[[Connection], bool]) -> bool:
        session = self._session()
        if session is None:
            return False
        with contextlib.closing(session):
            session.begin()
            duty_leases.check(session)
            done = what(session)
            session.commit()
            return done

    # --- files

    async def _remove_files(self) -> None:
        """Also those of a server that ended before it came to it."""
        context = self._context
        while not context.stop.is_set():
            lists = await asyncio.to_thread(
                lambda: retention_rows.pending_removals(context.readers.connection(), REMOVED_AT_ONCE)
            )
            if not lists:
                return
            for one in lists:
                await self._remove(one)
            ids = [one.id for one in lists]
            await context.writer.acall(lambda tx, ids=ids: retention_rows.delete_removals(tx.connection, ids))  # type: ignore[misc]

    async def _remove(self, one: Removal) -> None:
        if one.kind == "inputs":
            await self._remove_inputs(one.names)
        else:
            await asyncio.to_thread(self._unlink, one)

    def _unlink(self, one: Removal) -> None:
        for name in one.names:
            if one.kind == "jobs":
                self._context.sandbox.delete_outputs(name)
                self._context.sandbox.delete_tails(name)
            elif one.kind == "tries":
                self._context.sandbox.delete_tries(*name)
            else:
                (self._logs / f"{name}.log").unlink(missing_ok=True)

    async def _remove_inputs(self, digests: Sequence[Any]) -> None:
        """In the writer's turns: nobody notes an upload of the same file meanwhile."""
        sandbox, writer = self._context.sandbox, self._context.writer

        def unlink(tx: Transaction, digest: str) -> None:
            if not retention_rows.is_uploaded(tx.connection, digest):
                sandbox.input_path(digest).unlink(missing_ok=True)

        for digest in digests:
            await writer.acall(lambda tx, digest=digest: unlink(tx, digest))  # type: ignore[misc]
