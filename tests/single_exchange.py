"""One message of a pilot, answered in a transaction of its own."""

from __future__ import annotations

from pilotage.core.errors import PilotageError
from pilotage.services.pilots.exchange import exchange_many
from pilotage.services.pool.state import Pool
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import ExchangeRequest, ExchangeResponse


def exchange(
    pool: Pool, tx: Transaction, hashed: str, request: ExchangeRequest, now: float
) -> ExchangeResponse:
    """Answer one message of a pilot. Raises `NotAuthenticated` and `Superseded`."""
    [answer] = exchange_many(pool, tx, [(hashed, request)], now)
    if isinstance(answer, PilotageError):
        raise answer
    return answer
