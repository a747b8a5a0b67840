"""Carry out repairs: all checks in their order, each in batches, until no check finds a row that can be mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from pilotage.core.errors import Conflict
from pilotage.core.secret_source import SecretSource
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.services.repairs import chains, counters, jobs, requests
from pilotage.services.repairs.repair import ACTOR, Repair, RepairRun
from pilotage.store.cluster.id_allocator import Counters
from pilotage.store.integrity.check import Check, Ids
from pilotage.store.integrity.policy import policy_in_force
from pilotage.store.integrity.registry import CHECKS
from pilotage.store.tables import instance
from pilotage.store.tables.events import record
from pilotage.store.writer.transaction import Transaction

REPAIRS: Final[Mapping[str, Repair]] = {
    **jobs.REPAIRS,
    **chains.REPAIRS,
    **requests.REPAIRS,
    **counters.REPAIRS,
}
"""The repair of each check, by its name."""

AT_ONCE = 100
"""Rows mended by one transaction."""
ROUNDS = 3
"""A repair may uncover a state that an earlier check looks for."""


@dataclass(frozen=True, slots=True)
class Mended:
    """Rows mended by one transaction."""

    check: Check
    ids: Ids


def mend_all(
    do: Callable[[Callable[[Transaction], Any]], Any],
    *,
    clock: Callable[[], float],
    rng: Random,
    secrets: SecretSource,
    counters: Counters | None,
) -> Iterator[Mended]:
    """Mend all rows with a repair, and tell each batch once it is stored. No server uses the database meanwhile.

    `do` carries out a request in a transaction of its own.
    """
    pool = do(lambda tx: open_stopped(tx, rng, secrets, counters))
    run = RepairRun(pool, clock())
    for _ in range(ROUNDS):
        has_mended = False
        for check in CHECKS:
            last: int | str | None = None
            while ids := do(partial(_mend, run, check=check, after=last)):
                has_mended, last = True, ids[-1]
                yield Mended(check, ids)
        if not has_mended:
            return


def open_stopped(tx: Transaction, rng: Random, secrets: SecretSource, counters: Counters | None) -> Pool:
    """The pool of a database that no server uses."""
    known, current = instance.load(tx.connection), instance.current_policy(tx.connection)
    if known is None or current is None:
        raise Conflict("the row of the instance or its policy is missing", hint="restore a backup")
    stored = policy_in_force(tx.connection)
    if stored is None:
        raise Conflict(
            f"the stored policy, version {current.version}, is not valid for this version of Pilotage",
            hint="`pilotage up` says why, and how to go on; repair the database afterwards",
        )
    # Limits of running jobs would be counted by queue, and a queue may be missing. Nothing starts here.
    policy = msgspec.structs.replace(stored, limits=())
    return open_pool(
        tx,
        policy,
        version=current.version,
        incarnation=known.incarnation,
        rng=rng,
        secrets=secrets,
        home_owner="",
        id_floor=known.id_floor,
        load=False,
        counters=counters,
    )


def _mend(run: RepairRun, tx: Transaction, check: Check, after: int | str | None) -> Ids:
    """Mend the next rows of a check, with an event; returns them."""
    if check.by_hand or not check.applies(tx.connection):
        return []
    ids = check.next_ids(tx.connection, after, AT_ONCE)
    if ids:
        REPAIRS[check.name](run, tx, ids)
        detail = f"{check.what}: {', '.join(map(str, ids))}"
        record(tx.connection, run.pool.ids.events, at=run.now, kind="repaired", actor=ACTOR, detail=detail)
    return ids
