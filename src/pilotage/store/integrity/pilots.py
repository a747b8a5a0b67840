"""Checks of pilots: leases, ends, and jobs that are shown as stalled."""

from __future__ import annotations

from typing import Final

from pilotage.core.pilots.states import FINAL
from pilotage.store.engine.connection import Connection
from pilotage.store.integrity.check import Check, quoted, text_literal
from pilotage.store.integrity.policy import policy_in_force

_FINAL: Final = quoted(FINAL)


SURELY_HEARD: Final = 600
"""Seconds."""


def _stalled_though_heard(connection: Connection) -> str:
    """Stalled jobs of pilots whose lease was renewed long after the jobs were marked. The lease is that of the policy.

    An outage moves leases too, and a pause of a server is not recorded: `SURELY_HEARD` is longer than such pauses.
    """
    policy = policy_in_force(connection)
    leases = {} if policy is None else {name: ce.lease for name, ce in policy.ces.items()}
    cases = " ".join(
        f"WHEN {text_literal(name)} THEN CAST({length} AS double precision)"
        for name, length in sorted(leases.items())
    )
    lease = f"CASE p.ce {cases} END" if cases else "NULL"
    return (
        "SELECT j.id FROM jobs j JOIN pilots p ON p.id = j.pilot_id JOIN events e ON e.id = j.last_event"
        f" WHERE j.state = 'Stalled' AND p.ended IS NULL AND e.kind = 'stalled' AND p.lease_until - ({lease})"
        " > e.at + (SELECT coalesce(sum(o.up - o.down), 0) FROM outages o WHERE o.up > e.at)"
        f" + {SURELY_HEARD}"
    )


CHECKS: Final = (
    Check(
        "stalled-though-heard",
        "stalled jobs of pilots that were heard since",
        "They run, and are shown as if their pilots were silent.",
        _stalled_though_heard,
    ),
    Check(
        "pilots-ended-or-not",
        "pilots that have ended without a time of it, or have a time and go on",
        "The director counts them as live, or gives up a pilot that is there.",
        f"SELECT id FROM pilots WHERE (state IN ({_FINAL})) <> (ended IS NOT NULL)",
    ),
    Check(
        "pilots-without-lease",
        "running pilots without a lease",
        "If they are silent, nobody ever takes their jobs.",
        "SELECT id FROM pilots WHERE ended IS NULL AND state = 'Running' AND lease_until IS NULL",
    ),
)
