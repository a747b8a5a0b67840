"""A copied database becomes that of an instance of its own, without the pilots of the other one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from pilotage.core.secret_source import SecretSource
from pilotage.services.pilots.lifecycle import PilotEnd, end_silent_pilot
from pilotage.services.repairs.run import open_stopped
from pilotage.store.tables import instance, pilot_submissions, pilots
from pilotage.store.writer.transaction import Transaction

OTHERS = "it is a pilot of the home that this one was copied from"


def adopt_database(
    do: Callable[[Callable[[Transaction], Any]], Any],
    uuid: str,
    *,
    clock: Callable[[], float],
    rng: Random,
    secrets: SecretSource,
) -> int:
    """Make the database that of the instance `uuid`; how many pilots of the other one it had.

    Their jobs wait again. Directors do not know their batch jobs any more, so they leave these alone. `do` carries out
    a request in a transaction of its own.
    """

    def adopt(tx: Transaction) -> int:
        pool, now, prefix = open_stopped(tx, rng, secrets, None), clock(), f"{uuid}/"
        live = pilots.live(tx.connection)
        for pilot in live:
            end_silent_pilot(pool, tx, pilot, PilotEnd.CANCELLED, OTHERS, now)
            pilots.disown(tx.connection, pilot.stamp, prefix + pilot.stamp)
        pilot_submissions.disown_live(tx.connection, prefix, now, OTHERS)
        instance.become_another(tx.connection, uuid)
        return len(live)

    return int(do(adopt))
