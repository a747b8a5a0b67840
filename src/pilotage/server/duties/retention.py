"""The retention duty: archives ended jobs, and deletes expired rows and files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pilotage.core.errors import Overloaded
from pilotage.core.slice_pace import SlicePace
from pilotage.outside.batch.pilot_logs import remove_log
from pilotage.server.context import Context
from pilotage.server.duties import duty_leases
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.loop import pause
from pilotage.server.input_objects import remove_discarded_inputs
from pilotage.server.loop_turns import rest
from pilotage.server.sandbox_objects import delete_outputs, delete_tries
from pilotage.services import retention
from pilotage.services.retention import RULES, Rule, SliceResult
from pilotage.store.engine.connection import Connection, WriterConnection
from pilotage.store.tables import partitions
from pilotage.store.tables import retention as retention_rows
from pilotage.store.tables.partitions import PartitionedTable
from pilotage.store.tables.retention import Removal
from pilotage.store.writer.transaction import Transaction

log = logging.getLogger(__name__)

MAX_LOAD = 0.1
"""Maximum fraction of the writer's time."""

REMOVALS_PER_READ = 20
"""Lists of files read at once. Each slice that deletes rows stores one list."""


class RetentionDuty(Duty):
    """Applies the rules in order. A rule that fails does not stop the others.

    Each slice is one request to the writer, followed by a pause. Dropping a whole month may have to wait for
    locks, so it uses a session beside the writer's.
    """

    name = lease = "retention"
    every = retention.PERIOD

    def __init__(self, context: Context, logs: Path, session: Callable[[], WriterConnection | None]) -> None:
        """`logs`: the logs of local pilots. `session` opens a session beside the writer's; None: impossible."""
        super().__init__(context)
        self._logs = logs
        self._session = session
        self._paces: dict[str, SlicePace] = {}
        self._last_run: dict[str, float] = {}

    async def work(self) -> None:
        await self._rows.alone("apply rules", "months", self._make_months)
        for rule in RULES:
            if self._is_due(rule.name, rule.period(self._context.pool.policy)):
                await self._rows.alone("apply rules", rule.name, partial(self._apply, rule))
            else:
                self._rows.leave_out("apply rules")
                self._rows.leave_out(_step_of(rule))
        await self._remove_files()
        self._context.duties.retention_ran_at = self._context.clock()

    def _is_due(self, name: str, period: float) -> bool:
        """Whether a period has passed since the last run, by the monotonic clock. Records this run."""
        now = self._context.monotonic()
        last = self._last_run.get(name)
        if last is not None and now - last < period:
            return False
        self._last_run[name] = now
        return True

    async def _apply(self, rule: Rule) -> None:
        context = self._context
        now = context.clock()
        before = now - rule.keeps(context.pool.policy)
        if rule.month is not None:
            while await self._in_own_session(
                lambda session: retention.drop_month(session, rule, before, now)
            ):
                pass
        find, keys = rule.find, list[Any]()
        if find is not None:
            keys = list(await asyncio.to_thread(lambda: find(context.readers.connection(), before)))
            if not keys:
                return
        while not context.stop.is_set():
            part = keys[: retention.MAX_SIZE]
            begin = self._context.monotonic()
            if find is None:
                result = await self._slice(rule, part, before, now)
            else:
                # With keys, the failing rows are known.
                result = SliceResult(len(part), last=len(part) == len(keys))
                await self._rows.together(
                    _step_of(rule), part, lambda rows: self._slices(rule, list(rows), before, now)
                )
            del keys[: result.rows]
            if result.last:
                return
            await pause(self._context, rest(self._context.monotonic() - begin, MAX_LOAD))

    async def _slices(self, rule: Rule, keys: list[Any], before: float, now: float) -> None:
        while keys and not self._context.stop.is_set():
            begin = self._context.monotonic()
            del keys[: (await self._slice(rule, keys, before, now)).rows]
            await pause(self._context, rest(self._context.monotonic() - begin, MAX_LOAD))

    async def _slice(self, rule: Rule, keys: Sequence[Any], before: float, now: float) -> SliceResult:
        pace = self._paces.setdefault(rule.name, retention.new_pace(self._context.monotonic))
        return await self._context.writer.acall(
            lambda tx: retention.run_slice(tx.connection, rule, keys, before, now, pace)
        )

    # --- months

    async def _make_months(self) -> None:
        context = self._context
        if not self._is_due("months", retention.LONGEST_PERIOD):
            return
        now = context.clock()
        for table, month in await asyncio.to_thread(self._missing_months, now):
            made = await self._in_own_session(partial(partitions.create, table=table, month=month))
            log.info(
                "%s: %s the partition of the month %d", table, "created" if made else "did not create", month
            )

    def _missing_months(self, now: float) -> list[tuple[PartitionedTable, int]]:
        connection = self._context.readers.connection()
        return [
            (table, month)
            for table in partitions.PARTITION_COLUMN
            for month in partitions.missing_months(connection, table, now)
        ]

    async def _in_own_session(self, action: Callable[[Connection], bool]) -> bool:
        """Run an action in a transaction of its own session. Returns False if that is not possible now."""
        if self._context.stop.is_set():
            return False
        try:
            return await asyncio.to_thread(self._run_in_session, action)
        except Overloaded as error:
            log.info("%s; it will be tried again in the next cycle", error)
        return False

    def _run_in_session(self, action: Callable[[Connection], bool]) -> bool:
        session = self._session()
        if session is None:
            return False
        with contextlib.closing(session):
            session.begin()
            duty_leases.check(session)
            result = action(session)
            session.commit()
            return result

    # --- files

    async def _remove_files(self) -> None:
        """Remove the files of deleted rows, including rows that a server deleted before it ended."""
        context, last = self._context, 0
        while not context.stop.is_set():
            lists = await asyncio.to_thread(self._pending_removals, last)
            if not lists:
                break
            last = lists[-1].id
            gone: list[int] = []
            for removal in lists:
                await self._rows.alone(
                    "remove files",
                    removal.id,
                    partial(self._remove, removal, gone),
                )
            await context.writer.acall(partial(_delete_removals, gone))
        await self._rows.alone("remove files", "inputs in storage", self._remove_input_objects)

    async def _remove_input_objects(self) -> None:
        await asyncio.to_thread(remove_discarded_inputs, self._context)

    def _pending_removals(self, last: int) -> list[Removal]:
        return retention_rows.pending_removals(self._context.readers.connection(), last, REMOVALS_PER_READ)

    async def _remove(self, removal: Removal, gone: list[int]) -> None:
        if removal.kind == "inputs":
            await self._remove_inputs(removal.names)
        else:
            await asyncio.to_thread(self._unlink, removal)
        gone.append(removal.id)

    def _unlink(self, removal: Removal) -> None:
        for name in removal.names:
            if removal.kind == "jobs":
                delete_outputs(self._context, name)
                self._context.disk.sandbox.delete_tails(name)
            elif removal.kind == "tries":
                delete_tries(self._context, *name)
            else:
                stamp, ce = name
                remove_log(str(self._logs), stamp)
                if (section := self._context.pool.policy.ces.get(ce)) is not None:
                    remove_log(section.log_folder, stamp)

    async def _remove_inputs(self, digests: Sequence[Any]) -> None:
        """Delete input files in requests to the writer, so that no upload of the same file is stored meanwhile.

        An upload of another server waits for the lock, or has stored its row.
        """
        sandbox, writer = self._context.disk.sandbox, self._context.writer

        def unlink(digest: str, tx: Transaction) -> None:
            tx.lock(retention_rows.file_of(digest))
            if not retention_rows.is_uploaded(tx.connection, digest):
                sandbox.input_path(digest).unlink(missing_ok=True)
                sandbox.input_objects.discard(digest)

        for digest in digests:
            await writer.acall(partial(unlink, digest))


def _step_of(rule: Rule) -> str:
    return f"delete expired rows of {rule.name}"


def _delete_removals(ids: Sequence[int], tx: Transaction) -> None:
    retention_rows.delete_removals(tx.connection, ids)
