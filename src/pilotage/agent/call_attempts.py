"""Decides when a call is made again while the server is away. Pure: time and chance are arguments."""

from __future__ import annotations

from random import Random

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 15.0
"""Seconds between two attempts while the server is away."""


class CallAttempts:
    """The attempts of one call, from `now` on."""

    def __init__(self, now: float, rng: Random, *, patience: float, has_joined: bool) -> None:
        """`patience`: seconds until the last attempt. `has_joined`: the server has been trusted before."""
        self._until = now + patience
        self._rng = rng
        self._has_joined = has_joined
        self._pause = FIRST_PAUSE

    def pause_after_failure(self, now: float, retry_after: float, *, is_untrusted: bool) -> float | None:
        """Seconds until the next attempt; None: give up. `retry_after`: seconds that the server asks for."""
        wait = max(self._pause, retry_after) * self._rng.uniform(1.0, 1.3)
        # A first server that is not trusted would not be trusted later.
        if (is_untrusted and not self._has_joined) or now + wait > self._until:
            return None
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return wait
