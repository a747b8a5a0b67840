"""Timing of exchanges: when the next one is due, when to retry, and when the lease ends. One exchange at a time.

Pure: instants are arguments, and nothing is sent from here.
"""

from __future__ import annotations

import math
import random
from typing import Optional

from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse, Take

from .pilot_config import PilotConfig

LEASE_FRACTION = 0.9
"""The pilot considers the lease over a tenth early."""
HEARTBEAT_FRACTION = 0.8
"""Fraction of the heartbeat period after which the pilot reports: the rest is a margin for a slow answer."""

_MIN_RETRY_PAUSE, _MAX_RETRY_PAUSE = 0.2, 30.0
_MIN_POLL, _POLL_GROWTH, _MAX_POLL = 0.25, 1.6, 15.0


class ExchangeTiming:
    """The exchange in flight, the unanswered take, and the instants at which to send again."""

    def __init__(self, config: PilotConfig, now: float, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self.in_flight: Optional[ExchangeRequest] = None
        self.take: Optional[Take] = None
        """The unanswered take; it is sent again unchanged until the server answers it."""
        self.take_number = 1
        self.take_at = now
        """Earliest instant for an exchange that only takes jobs."""
        self.empty_takes = 0
        """Consecutive takes without an offer, since the last exchange that reported about jobs."""
        self.sent_at = -math.inf
        self.retry_at = now
        self.due_at = now
        """When the next heartbeat is due."""
        self.lease_until = now + LEASE_FRACTION * config.lease
        self.away_since: Optional[float] = None
        self._heartbeat = config.heartbeat
        self._failures = 0

    def on_sent(self, request: ExchangeRequest, now: float) -> None:
        self.in_flight, self.sent_at, self.take = request, now, request.take

    def on_answer(self, response: ExchangeResponse, now: float) -> Optional[ExchangeRequest]:
        """Record an answer; returns the request that it answers, or None if none was in flight."""
        request, self.in_flight = self.in_flight, None
        if request is None:
            return None
        self._failures, self.away_since, self.retry_at = 0, None, now
        # Counted from the sending: the server counts from its commit, which is later.
        self.lease_until = self.sent_at + LEASE_FRACTION * (response.lease or self._config.lease)
        self._heartbeat = response.heartbeat or self._config.heartbeat
        self.due_at = now + HEARTBEAT_FRACTION * self._heartbeat
        if request.take:
            if request.finishes or request.releases or request.confirms:
                # The node was working: takes in quick succession with its last reports do not mean a lack of work.
                self.empty_takes = 0
            self._schedule_take(request.take, response, now)
        return request

    def _schedule_take(self, take: Take, response: ExchangeResponse, now: float) -> None:
        self.take = None
        if response.take_number or response.offers:
            self.take_number = max(self.take_number, response.take_number) + 1
        if response.offers:
            self.empty_takes = 0
        if response.offers and len(response.offers) >= take.count - take.ahead:
            self.take_at = now
            return
        longest = max(response.poll, _MIN_POLL) if response.poll > 0 else _MAX_POLL
        pause = min(
            _MIN_POLL * _POLL_GROWTH ** min(self.empty_takes, 20), longest, _MAX_POLL, self._heartbeat
        )
        self.take_at = now + pause * self._rng.uniform(0.8, 1.2)
        self.empty_takes += 1

    def on_failure(self, now: float, retry_after: float) -> bool:
        """Record a failed exchange; returns whether the server was available before it."""
        self.in_flight = None
        pause = min(
            _MIN_RETRY_PAUSE * 2.0 ** min(self._failures, 10), _MAX_RETRY_PAUSE, max(self._heartbeat, 1.0)
        )
        self._failures += 1
        self.retry_at = now + max(pause * self._rng.uniform(0.5, 1.0), retry_after)
        first = self.away_since is None
        if first:
            self.away_since = now
        return first

    def stop(self) -> None:
        """Forget the exchange and the take in flight: they will not be answered."""
        self.in_flight = self.take = None
