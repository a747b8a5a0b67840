"""The hand-over: doubly-committed, leased, fenced transfer of control of one *item* to one *taker*.

One table serves two seams: an element to an agent, a job to a pilot. `core/pilots/handover.py` has the table of pilots
and batch systems. This table is total over custody × message × relation. The giver loads the facts, asks `decide`,
and saves the effect in the same transaction. Promised: no item is lost, and at most one finish of an item is applied.
Two takers may work at the same time where one died uncleanly or was cut off; every such overlap stands in the event
log.

    free ──take──▶ offered ──confirm──▶ held ──finish──▶ final
      ▲               │ lease over          │ lease over / release
      └───────────────┴──── retry rule ◀────┘

The *epoch* is raised by every take and is the fence, nothing else. The *attempt* is raised by confirm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product


class Custody(StrEnum):
    """Who has the item."""

    FREE = "free"
    """Nobody."""
    OFFERED = "offered"
    """The taker that it was offered to, once it confirms."""
    HELD = "held"
    """The taker that confirmed it."""
    FINAL = "final"
    """Nobody any more."""


class Message(StrEnum):
    TAKE = "take"
    """The giver wants to offer the item."""
    CONFIRM = "confirm"
    """The taker has the item durably and will start."""
    RELEASE = "release"
    """The taker gives it back unfinished."""
    FINISH = "finish"
    KEEP = "keep"
    """The taker believes it is still its own (sent with a heartbeat)."""
    RESUME = "resume"
    """The taker works on with an item that it confirmed and whose lease has run out since. Sent like KEEP."""
    EXPIRE = "expire"
    """The taker's lease has run out."""
    KILL = "kill"
    """The owner ends it."""


class Relation(StrEnum):
    """How the epoch and content of a message relate to the giver's record of the item."""

    CURRENT = "current"
    """The epoch is the highest ever given, and no finish of it has been taken."""
    REPEATED = "repeated"
    """A finish of this epoch has been taken, and this is the same finish again (or another verb after it)."""
    CONTRADICTED = "contradicted"
    """A finish of this epoch has been taken, and this finish says something else."""
    OLD = "old"
    """A newer epoch has been given."""
    NEVER_GIVEN = "never-given"
    """Higher than any given, or of another incarnation."""


class Answer(StrEnum):
    ACCEPTED = "accepted"
    SUPERSEDED = "superseded"
    """Nothing was changed; the taker must stop that work."""


class Effect(StrEnum):
    NONE = "none"
    OFFER = "offer"
    """free → offered; epoch + 1."""
    HOLD = "hold"
    """offered → held; attempt + 1."""
    RESUME = "resume"
    """free → held; the attempt goes on, and its end by the lease counts no longer."""
    FREE = "free"
    """→ free; counts as nothing."""
    RETRY = "retry"
    """held → free or final, by the retry rule; counts as a failure."""
    APPLY = "apply"
    """→ final with the taker's result, or by the retry rule if the result is a failure that is retried."""
    END = "end"
    """→ final without a result."""


@dataclass(frozen=True, slots=True)
class Decision:
    answer: Answer
    effect: Effect = Effect.NONE


_YES = Decision(Answer.ACCEPTED)
_NO = Decision(Answer.SUPERSEDED)


def _does(effect: Effect) -> Decision:
    return Decision(Answer.ACCEPTED, effect)


_CURRENT: Mapping[tuple[Custody, Message], Decision] = {
    (Custody.FREE, Message.TAKE): _does(Effect.OFFER),
    # The offer has lapsed. It is not given back to the one who comes late: another may be drawn.
    (Custody.FREE, Message.CONFIRM): _NO,
    (Custody.FREE, Message.RELEASE): _YES,
    # A result is not thrown away because its lease ran out: nobody else has begun.
    (Custody.FREE, Message.FINISH): _does(Effect.APPLY),
    (Custody.FREE, Message.KEEP): _NO,
    # Nobody else was given it since, so the work that was done counts.
    (Custody.FREE, Message.RESUME): _does(Effect.RESUME),
    (Custody.FREE, Message.EXPIRE): _YES,
    (Custody.FREE, Message.KILL): _does(Effect.END),
    (Custody.OFFERED, Message.TAKE): _NO,
    (Custody.OFFERED, Message.CONFIRM): _does(Effect.HOLD),
    (Custody.OFFERED, Message.RELEASE): _does(Effect.FREE),
    # The confirm was lost, or comes behind.
    (Custody.OFFERED, Message.FINISH): _does(Effect.APPLY),
    (Custody.OFFERED, Message.KEEP): _YES,
    (Custody.OFFERED, Message.RESUME): _YES,
    (Custody.OFFERED, Message.EXPIRE): _does(Effect.FREE),
    (Custody.OFFERED, Message.KILL): _does(Effect.END),
    (Custody.HELD, Message.TAKE): _NO,
    (Custody.HELD, Message.CONFIRM): _YES,
    (Custody.HELD, Message.RELEASE): _does(Effect.FREE),
    (Custody.HELD, Message.FINISH): _does(Effect.APPLY),
    (Custody.HELD, Message.KEEP): _YES,
    (Custody.HELD, Message.RESUME): _YES,
    (Custody.HELD, Message.EXPIRE): _does(Effect.RETRY),
    (Custody.HELD, Message.KILL): _does(Effect.END),
    (Custody.FINAL, Message.TAKE): _NO,
    (Custody.FINAL, Message.CONFIRM): _NO,
    (Custody.FINAL, Message.RELEASE): _NO,
    (Custody.FINAL, Message.FINISH): _NO,
    (Custody.FINAL, Message.KEEP): _NO,
    (Custody.FINAL, Message.RESUME): _NO,
    (Custody.FINAL, Message.EXPIRE): _YES,
    (Custody.FINAL, Message.KILL): _NO,
}


def _row(custody: Custody, message: Message, relation: Relation) -> Decision:
    if message in (Message.TAKE, Message.KILL):
        # These come from the giver's own side and carry no epoch.
        return _CURRENT[custody, message]
    if relation is Relation.CURRENT:
        return _CURRENT[custody, message]
    if message is Message.EXPIRE:
        return _YES
    if relation is Relation.REPEATED and message is Message.FINISH:
        return _YES
    return _NO


TABLE: Mapping[tuple[Custody, Message, Relation], Decision] = {
    (custody, message, relation): _row(custody, message, relation)
    for custody, message, relation in product(Custody, Message, Relation)
}
"""The specification: every custody × message × relation."""


def decide(custody: Custody, message: Message, relation: Relation) -> Decision:
    return TABLE[custody, message, relation]


@dataclass(frozen=True, slots=True)
class Fence:
    """The giver's record of an item's epochs."""

    epoch: int
    """The highest ever given; 0 before the first take."""
    finished_epoch: int = 0
    """The last epoch of which a finish was taken; 0 for none."""
    finished_digest: str = ""
    """The digest of that finish."""

    def relation(self, epoch: int, digest: str = "") -> Relation:
        """The relation of a message with `epoch`; `digest` of its content for a finish."""
        if epoch < self.epoch:
            # A repeated finish of an older epoch has its answer already, and must not be told to stop.
            repeated = digest and epoch == self.finished_epoch and digest == self.finished_digest
            return Relation.REPEATED if repeated else Relation.OLD
        if epoch > self.epoch or epoch == 0:
            return Relation.NEVER_GIVEN
        if epoch != self.finished_epoch:
            return Relation.CURRENT
        return Relation.CONTRADICTED if digest and digest != self.finished_digest else Relation.REPEATED


class RetryDecision(StrEnum):
    AGAIN = "again"
    GIVE_UP = "give-up"


THE_PAYLOADS_OWN = frozenset({"payload", "limit-wall", "limit-cpu", "limit-memory"})
"""Failures that another node would most likely see again: retried only as often as the job itself asks for."""


def after_failure(failure: str, failures: int, *, most: int, own_retries: int) -> RetryDecision:
    """The retry rule. `failures` counts the failed tries of this kind, the present one included: the payload's
    own failures are one kind, all others the second; `most` is the policy's, `own_retries` the job's.

    Every finish with a failure counts, and every lease that runs out on a held job. Lost offers, give-backs and
    releases are no failures.
    """
    allowed = own_retries if failure in THE_PAYLOADS_OWN else most
    return RetryDecision.AGAIN if failures <= allowed else RetryDecision.GIVE_UP


def outage_credit(last_alive: float, now: float, *, longest_gap: float) -> float:
    """Seconds by which all leases move when the giver was away, or its clock stepped; 0 in normal running.

    `last_alive` is the instant of the last alive row, `longest_gap` the longest regular time between two of them.
    Each lease moves by the gap, and by no more: so the lease of a dead taker ends however often the giver restarts. If
    the clock stepped back, all leases step back with it.
    """
    gap = now - last_alive
    return gap if abs(gap) > longest_gap else 0.0
