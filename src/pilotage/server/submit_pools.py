"""The submit pools at work: they bound how many submissions of pilots run at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class SubmitPools:
    """All submit pools of one server. Used in the event loop only."""

    def __init__(self, most: Callable[[str], int]) -> None:
        """`most`: the number of submissions that a pool may run at the same time, by the policy in force."""
        self._most = most
        self.running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def load(self) -> dict[str, int]:
        """The submissions of each pool that run or wait for their turn."""
        names = dict.fromkeys((*self.running, *self._waiting))
        return {name: self.running[name] + len(self._waiting.get(name, ())) for name in names}

    @asynccontextmanager
    async def turn(self, pool: str) -> AsyncIterator[None]:
        """Wait until the pool has a free thread, and hold it. Turns are given in the order of the calls."""
        waiting = self._waiting.setdefault(pool, deque())
        if waiting or self.running[pool] >= self._most(pool):
            mine = asyncio.get_running_loop().create_future()
            waiting.append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if mine in waiting:
                    waiting.remove(mine)
                elif mine.done() and not mine.cancelled():
                    self._leave(pool)
                raise
        else:
            self.running[pool] += 1
        try:
            yield
        finally:
            self._leave(pool)

    def admit(self) -> None:
        """Give turns to waiting submissions of all pools: a new policy may allow more of them."""
        for pool in self._waiting:
            self._admit(pool)

    def _leave(self, pool: str) -> None:
        self.running[pool] -= 1
        self._admit(pool)

    def _admit(self, pool: str) -> None:
        waiting = self._waiting.get(pool, deque())
        while waiting and self.running[pool] < self._most(pool):
            submission = waiting.popleft()
            # The task of a cancelled submission may not have run since.
            if not submission.done():
                submission.set_result(None)
                self.running[pool] += 1
