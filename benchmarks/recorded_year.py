"""A year of waiting jobs and shares over time, as a pool with as many groups and owners as are recorded has it."""

from __future__ import annotations

from contextlib import closing
from random import Random

from benchmarks.filled import Store
from pilotage.core.intervals import DAY, KEPT, SPANS, IntervalPiece
from pilotage.core.queues.wait_reason import Reason
from pilotage.services.intervals.recording import MOST_OWNERS
from pilotage.store.tables import intervals
from pilotage.store.tables.intervals import EVERYBODY, ShareValues, WaitingCount

GROUPS = 20
REASONS = (Reason.NEEDS, Reason.LIMIT, Reason.SHARE, Reason.PILOT, Reason.SLOTS)


def record_year(store: Store, now: float) -> int:
    """Fill the intervals of a year up to `now`; returns the number of rows."""
    rng, rows = Random(1), 0
    with closing(store.open_writer()) as connection:
        connection.begin()
        for span in SPANS:
            last = int(now // span) * span
            for start in range(last - int(KEPT.get(span, 390 * DAY)), last, span):
                waiting, shares = _waiting(rng), _shares(rng)
                intervals.add(
                    connection, [IntervalPiece(span, start, float(span))], start + span, waiting, shares
                )
                rows += 1 + len(waiting) + len(shares)
        connection.commit()
    return rows


def _waiting(rng: Random) -> list[WaitingCount]:
    groups = [
        WaitingCount(EVERYBODY, f"g{group}", reason, rng.randrange(1, 100_000))
        for group in range(GROUPS)
        for reason in REASONS
    ]
    owners = [
        WaitingCount(f"o{owner}", f"g{owner % GROUPS}", reason, rng.randrange(1, 1000))
        for owner in range(MOST_OWNERS)
        for reason in rng.sample(REASONS, 2)
    ]
    return groups + owners


def _shares(rng: Random) -> list[ShareValues]:
    groups = [
        ShareValues("", f"g{group}", 1 / GROUPS, rng.random() / 10, rng.uniform(0.5, 2))
        for group in range(GROUPS)
    ]
    owners = [
        ShareValues(
            f"g{owner % GROUPS}", f"o{owner}", GROUPS / MOST_OWNERS, rng.random() / 10, rng.uniform(0.5, 2)
        )
        for owner in range(MOST_OWNERS)
    ]
    return groups + owners
