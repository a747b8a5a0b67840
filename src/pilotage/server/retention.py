"""The duty that keeps the hot tables small and lets go of what is too old."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pilotage.server.context import Context
from pilotage.services import retention
from pilotage.services.retention import RULES, Rule, Slice, Slicer
from pilotage.store import expiry
from pilotage.store.expiry import Removal
from pilotage.store.transaction import Transaction

REMOVED_AT_ONCE = 20
"""Lists of files that are looked at in one turn; a list is what one slice has made of it."""


class RetentionDuty:
    """Goes through the rules in order; each slice is one request to the writer, with a pause after it."""

    def __init__(self, context: Context, logs: Path) -> None:
        """`logs`: where those of local pilots lie."""
        self._context = context
        self._logs = logs
        self._slicer = Slicer(time.perf_counter)
        self._looked: dict[str, float] = {}

    def period(self) -> float:
        return retention.PERIOD

    async def cycle(self) -> None:
        for rule in RULES:
            if self._is_due(rule):
                await self._carry_out(rule)
        await self._remove_files()
        self._context.retention_ran = self._context.clock()

    def _is_due(self, rule: Rule) -> bool:
        """By a clock that does not step."""
        now, policy = time.monotonic(), self._context.pool.policy
        looked = self._looked.get(rule.name)
        if looked is not None and now - looked < rule.period(policy):
            return False
        self._looked[rule.name] = now
        return True

    async def _carry_out(self, rule: Rule) -> None:
        context = self._context
        now = context.clock()
        before = now - rule.keeps(context.pool.policy)
        find, found = rule.find, list[Any]()
        if find is not None:
            found = list(await asyncio.to_thread(lambda: find(context.readers.connection(), before)))
            if not found:
                return
        while not context.stop.is_set():
            given = found[: retention.MOST]
            begin = time.perf_counter()
            done: Slice = await context.writer.acall(
                lambda tx, given=given: self._slicer.cut(tx.connection, rule, given, before, now)  # type: ignore[misc]
            )
            del found[: done.rows]
            if done.last:
                return
            await self._pause(retention.pause(time.perf_counter() - begin))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._context.stop.wait(), seconds)

    # --- files

    async def _remove_files(self) -> None:
        """Also those of a server that ended before it came to it."""
        context = self._context
        while not context.stop.is_set():
            lists = await asyncio.to_thread(
                lambda: expiry.removals(context.readers.connection(), REMOVED_AT_ONCE)
            )
            if not lists:
                return
            for one in lists:
                await self._remove(one)
            ids = [one.id for one in lists]
            await context.writer.acall(lambda tx, ids=ids: expiry.removed(tx.connection, ids))  # type: ignore[misc]

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
            if not expiry.is_uploaded(tx.connection, digest):
                sandbox.input_path(digest).unlink(missing_ok=True)

        for digest in digests:
            await writer.acall(lambda tx, digest=digest: unlink(tx, digest))  # type: ignore[misc]
