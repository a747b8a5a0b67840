"""The partitions of the policy, with the states and limits of their CEs."""

from __future__ import annotations

from collections.abc import Callable

from pilotage.core.pilots.wall_time import wall_of_new_pilot
from pilotage.core.policy import Policy
from pilotage.core.policy.partitions import partitions_of
from pilotage.core.sites import SiteState
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import ces
from pilotage.store.tables.ces import CeSwitch
from pilotage.wire.sites import PartitionSummary

_STATES = {SiteState.NORMAL: "up", SiteState.DRAIN: "drain", SiteState.DOWN: "down"}
"""From the best to the worst."""


def partition_summaries(
    policy: Policy, site_state: Callable[[str], SiteState], connection: Connection
) -> list[PartitionSummary]:
    """All partitions in the order of the policy."""
    rows = ces.all_rows(connection)
    off = {name for name, row in rows.items() if row.switch is not CeSwitch.ON}
    states = {
        name: _STATES[SiteState.DOWN if name in off else site_state(ce.site)]
        for name, ce in policy.ces.items()
    }
    summaries = []
    for name, partition in partitions_of(policy).items():
        members = partition.all_ces(policy)
        known = {states[ce] for ce in members}
        summaries.append(
            PartitionSummary(
                name=name,
                default=partition.default,
                ces=members,
                sites=[] if partition.ces else list(partition.sites),
                state=next((state for state in _STATES.values() if state in known), "down"),
                wall=max((wall_of_new_pilot(policy.ces[ce].wall) for ce in members), default=0.0),
            )
        )
    return summaries
