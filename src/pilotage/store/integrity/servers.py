"""Checks of the instance, and of the rows of servers that share a database: duties, and places of limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pilotage.store.cluster import limit_leases
from pilotage.store.engine.connection import Connection
from pilotage.store.integrity.check import Check
from pilotage.store.integrity.policy import policy_in_force
from pilotage.store.tables import counts, submissions


def _wrong_limits(connection: Connection) -> Iterator[str]:
    """The keys of shared limits whose free places and used places are not as many as the limit."""
    policy = policy_in_force(connection)
    states = limit_leases.states(connection)
    if policy is None or not any(state.running is not None for state in states.values()):
        return
    limits = {limit.key: limit for limit in policy.matching_limits()}
    held, allocations = counts.held_counts_and_allocations(connection)
    identities = dict(submissions.all_queues(connection))
    for key, state in sorted(states.items()):
        limit, text = limits.get(key), limit_leases.key_to_text(key)
        # A new limit is counted once every server has the policy with it.
        if limit is None or state.running is None:
            continue
        jobs = sum(
            number
            for queue, site, ce, number in held
            if limit.applies_at(site, ce) and queue in identities and limit.applies_to(identities[queue])
        )
        if state.free + sum(allocations.get(text, ())) + jobs != state.running:
            yield text


CHECKS: Final = (
    Check(
        "instance",
        "lost rows of the instance or its policy",
        "A part of the database is lost.",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM submissions UNION ALL SELECT 1 FROM instance)"
        " AND (NOT EXISTS (SELECT 1 FROM instance) OR NOT EXISTS (SELECT 1 FROM policies))",
        by_hand="Restore a backup.",
    ),
    Check(
        "duties-of-gone-servers",
        "duties of servers that are not there any more",
        "The rows of an evicted server were not deleted with it.",
        "SELECT name FROM duties WHERE holder <> '' AND holder NOT IN (SELECT name FROM servers)",
        only="postgresql",
    ),
    Check(
        "places-of-gone-servers",
        "servers that are not there any more, with places of limits",
        "Nobody can use these places, so fewer jobs run than the limit allows.",
        "SELECT server FROM limit_blocks WHERE server NOT IN (SELECT name FROM servers)",
        only="postgresql",
    ),
    Check(
        "limit-places",
        "shared limits whose free and used places do not add up",
        "More jobs run than the limit allows, or fewer than it allows.",
        search=_wrong_limits,
        only="postgresql",
    ),
)
