"""Submit pools: which one takes the pilots of a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from pilotage.core.policy import Policy
from pilotage.core.queues.identity import QueueIdentity


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


def lasting_refusal(policy: Policy, queue: QueueIdentity) -> str:
    """Why no pool will take the pilots of a queue before the policy changes; empty: one may take them."""
    known, settings = policy.submit_pools(), policy.director
    verdicts = []
    for name in sorted(queue.submit_pools or policy.default_submit_pools()):
        if name in known and (settings.pool(name).enabled or not settings.is_handled(name)):
            return ""
        verdicts.append((name, PoolVerdict.DISABLED if name in known else PoolVerdict.UNKNOWN))
    return verdicts_text(verdicts)


def verdicts_text(verdicts: Sequence[tuple[str, PoolVerdict]]) -> str:
    """Such as "SAM: unknown, Batch: full"."""
    return ", ".join(f"{name}: {verdict}" for name, verdict in verdicts)


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
