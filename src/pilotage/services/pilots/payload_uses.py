"""The use of payloads that run: noted as pilots tell it, and looked up for people.

It stays in memory: only people read it, and a heartbeat later it is old. A row for each running job and heartbeat
would be most of the writing of a pool that computes. After a restart it comes again with the next heartbeats.
Several servers on one database tell it each other by their change rows, as they tell which pilots speak to them. So
each server can answer, at the cost of one row for all messages of a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from pilotage.core.ids import JobId, PilotId
from pilotage.core.jobs.states import WITH_USE
from pilotage.services.pool.known_pilots import Uses
from pilotage.services.pool.peers import PeerUpdate
from pilotage.services.pool.state import Pool
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.payload_use import JobUse, PayloadUse
from pilotage.wire.pilot import ExchangeRequest


def note_uses(
    pool: Pool, tx: Transaction, messages: Iterable[tuple[PilotId, ExchangeRequest]], now: float
) -> None:
    """Keep the use of running payloads that these messages tell. A message without any changes nothing.

    No rollback takes it back, as no sign of life: it is true in any case.
    """
    uses: dict[PilotId, Uses] = {
        pilot: {JobId(use.job): (use.epoch, _job_use(use, now)) for use in request.uses}
        for pilot, request in messages
        if request.uses and pilot in pool.pilots.last_seen
    }
    pool.pilots.uses.update(uses)
    if uses and pool.peers.shared:
        pool.peers.publish(tx, PeerUpdate(uses=uses))


def _job_use(use: PayloadUse, now: float) -> JobUse:
    at = now - use.age
    return JobUse(
        at=at,
        ran=use.ran,
        cpu=use.cpu,
        busy=use.busy,
        memory=use.memory,
        peak=use.peak,
        output_at=None if use.silent is None else at - use.silent,
    )


def use_of(pool: Pool, job: int, epoch: int, state: str, pilot: int | None) -> JobUse | None:
    """The use of a job; None: it does not run, or its pilot has not told yet. For any thread."""
    if pilot is None or state not in WITH_USE:
        return None
    of_epoch, use = pool.pilots.uses.get(PilotId(pilot), {}).get(JobId(job), (epoch, None))
    return use if of_epoch == epoch else None
