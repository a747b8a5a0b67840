"""Why batch jobs of pilots wait: the class of each reason, the action for it, and the deadline.

A batch job that waits counts against `max_waiting`, so none may wait for ever. Each adapter
has a table from its native reasons to these classes; it is total, as a reason that it does not name is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import inf
from typing import NamedTuple

DAY = 86400.0


class WaitClass(StrEnum):
    """Whose turn it is to end a wait. The later in this order, the less likely it ends by itself."""

    TRANSIENT = "transient"
    """It waits for its turn: cores, priority, an earlier job."""
    STAGING = "staging"
    """Its data are on their way."""
    POLICY = "policy"
    """A limit of an account or QOS that other jobs use up now."""
    SITE = "site"
    """Nodes, a partition, a queue or a reservation are closed: an administrator of the site opens them."""
    USER = "user"
    """Somebody holds it."""
    UNKNOWN = "unknown"
    """The batch system gives a reason that Pilotage does not know."""
    ERROR = "error"
    """The batch system tried to start it, failed, and does not try again."""
    IMPOSSIBLE = "impossible"
    """It can never start as it was submitted."""


class WaitAction(StrEnum):
    WAIT = "wait"
    """It ends by itself."""
    CANCEL = "cancel"
    """It is cancelled at its deadline, and the CE pauses."""


class WaitRule(NamedTuple):
    action: WaitAction
    deadline: float
    """Seconds from the first listing that showed the class."""


SETTLED = -1.0
"""A deadline of the CE's settle time."""

RULES: Mapping[WaitClass, WaitRule] = {
    WaitClass.TRANSIENT: WaitRule(WaitAction.WAIT, inf),
    WaitClass.STAGING: WaitRule(WaitAction.WAIT, inf),
    WaitClass.POLICY: WaitRule(WaitAction.WAIT, inf),
    WaitClass.SITE: WaitRule(WaitAction.CANCEL, 7 * DAY),
    WaitClass.USER: WaitRule(WaitAction.CANCEL, 7 * DAY),
    WaitClass.UNKNOWN: WaitRule(WaitAction.CANCEL, 7 * DAY),
    WaitClass.ERROR: WaitRule(WaitAction.CANCEL, SETTLED),
    WaitClass.IMPOSSIBLE: WaitRule(WaitAction.CANCEL, SETTLED),
}
"""The specification: every class."""

_ORDER = {cls: place for place, cls in enumerate(WaitClass)}


def worst(classes: Iterable[WaitClass]) -> WaitClass | None:
    """The class that is least likely to end by itself; None: there is none."""
    return max(classes, key=_ORDER.__getitem__, default=None)


def best(classes: Iterable[WaitClass]) -> WaitClass | None:
    """The class that is most likely to end by itself; None: there is none."""
    return min(classes, key=_ORDER.__getitem__, default=None)


def deadline_of(wait: WaitClass, since: float, settle: float) -> float:
    """When a wait that began at `since` is ended; infinite: never."""
    seconds = RULES[wait].deadline
    return since + (settle if seconds == SETTLED else seconds)


def has_deadline(wait: WaitClass) -> bool:
    return RULES[wait].action is WaitAction.CANCEL
