"""Who may carry out a duty: a lock with an epoch, held for a while, taken over when that is over.

The epoch is raised by every take-over and is the fence: a server with a lock of an older epoch has lost it, however
long it was held up, and writes nothing more under it. The table is total over who has the lock and how it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock as it stands; `holder` is empty if nobody has it. Instants are of the clock of the database."""

    holder: str = ""
    epoch: int = 0
    until: float = 0.0


class LockStatus(StrEnum):
    """How a lock stands for a server that asks for it."""

    MINE = "mine"
    """Also when its time is over: as nobody has taken it, the epoch stands."""
    FREE = "free"
    OVER = "over"
    """Another server's, and its time is over."""
    OTHERS = "others"
    """Another server's."""


class ClaimOutcome(StrEnum):
    """The outcome of a claim."""

    RENEW = "renew"
    TAKE = "take"
    """With a new epoch."""
    WAIT = "wait"


CLAIMS: Mapping[LockStatus, ClaimOutcome] = {
    LockStatus.MINE: ClaimOutcome.RENEW,
    LockStatus.FREE: ClaimOutcome.TAKE,
    LockStatus.OVER: ClaimOutcome.TAKE,
    LockStatus.OTHERS: ClaimOutcome.WAIT,
}


def lock_status(lock: Lock, who: str, now: float) -> LockStatus:
    if not lock.holder:
        return LockStatus.FREE
    if lock.holder == who:
        return LockStatus.MINE
    return LockStatus.OTHERS if now < lock.until else LockStatus.OVER


def claim_lock(lock: Lock, who: str, now: float, seconds: float) -> Lock | None:
    """The lock as `who` has it from now on for `seconds`; None: another one has it."""
    claim = CLAIMS[lock_status(lock, who, now)]
    if claim is ClaimOutcome.WAIT:
        return None
    epoch = lock.epoch + 1 if claim is ClaimOutcome.TAKE else lock.epoch
    return Lock(who, epoch, now + seconds)
