"""Submit pools: which one takes the pilots of a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class PoolVerdict(StrEnum):
    """Whether a pool takes pilots, or why not."""

    TAKES = "takes"
    UNKNOWN = "unknown"
    UNHANDLED = "handled by another director"
    DISABLED = "disabled"
    FULL = "full"


@dataclass(slots=True)
class PoolLoad:
    """A known pool and the submissions that wait or run in it."""

    name: str
    total: int
    """Submissions that it has room for."""
    enabled: bool = True
    handled: bool = True
    submissions: int = 0

    def verdict(self) -> PoolVerdict:
        if not self.handled:
            return PoolVerdict.UNHANDLED
        if not self.enabled:
            return PoolVerdict.DISABLED
        return PoolVerdict.FULL if self.submissions >= self.total else PoolVerdict.TAKES


def try_pools(
    names: Sequence[str], pools: Mapping[str, PoolLoad], rng: Random
) -> list[tuple[str, PoolVerdict]]:
    """The pools in random order with their verdicts, up to the first one that takes the pilots."""
    order = sorted(set(names))
    rng.shuffle(order)
    tried: list[tuple[str, PoolVerdict]] = []
    for name in order:
        pool = pools.get(name)
        tried.append((name, PoolVerdict.UNKNOWN if pool is None else pool.verdict()))
        if tried[-1][1] is PoolVerdict.TAKES:
            break
    return tried
