"""Decides how long a pilot tries to enrol, and when it tries again. Pure: time and chance are arguments."""

from __future__ import annotations

import random
from typing import NamedTuple, Optional

UNTRUSTED_PATIENCE = 20.0
"""Seconds. A batch job that cannot trust its server should not hold a node for long."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
_LAST_ATTEMPT = 0.1
"""Seconds after the end of the patience at which the last attempt is made."""


class EnrolFailure(NamedTuple):
    """The server was unavailable for an attempt."""

    why: str
    untrusted: bool = False
    """Its certificate was refused."""
    retry_after: float = 0.0
    """Seconds that the server asked the pilot to wait."""


class EnrolRetry(NamedTuple):
    """The next attempt after a failure."""

    at: float
    """The instant of the next attempt. A signal to the pilot brings it forward, as the last one."""
    patience: float
    """Seconds that are left of the patience."""
    is_news: bool
    """The reason differs from the one of the last failure."""


class EnrolMachine:
    """The attempts of one pilot to enrol, from `now` on."""

    def __init__(self, patience: float, now: float, rng: random.Random) -> None:
        """`patience`: seconds for which a server that is unavailable is tried again."""
        self._rng = rng
        self._until = now + patience
        self._trusted_at = now
        self._pause = _FIRST_PAUSE
        self._told = ""

    def on_failure(self, failure: EnrolFailure, now: float, *, is_cancelled: bool) -> Optional[EnrolRetry]:
        """Decide after a failed attempt; None: give up. `is_cancelled`: the pilot has received a signal.

        After UNTRUSTED_PATIENCE seconds of refused certificates it gives up too: they do not pass by themselves.
        """
        end = self._until
        if failure.untrusted:
            end = min(end, self._trusted_at + UNTRUSTED_PATIENCE)
        else:
            self._trusted_at = now
        if now > end or is_cancelled:
            return None
        pause = max(failure.retry_after, self._pause * self._rng.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        is_news, self._told = failure.why != self._told, failure.why
        return EnrolRetry(min(now + pause, end + _LAST_ATTEMPT), end - now, is_news)
