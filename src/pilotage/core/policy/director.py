"""The table `director` of the policy: how many pilots are submitted, and by which submit pools.

Keys that "DIRAC Taskqueue Director" names have its names in the document.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

import msgspec

from pilotage.core.glue.schema import DEFAULT_RANK
from pilotage.core.policy.table import PolicyTable
from pilotage.core.setting import SECONDS, YEAR, Setting

LOCAL_POOL = "Local"
BATCH_POOL = "Batch"
UNHANDLED_POOLS = ("DIRAC", LOCAL_POOL)
"""Pools that iterations leave out: a local CE plans its pilots in its own cycle."""

DEFAULT_NORMALIZATION = "CPUPower"
"""`CPUNormalization` of a pool that says nothing: `ces.*.cpu_power` as it is."""

Demand = Literal["dirac", "matched"]


class SubmitPool(
    PolicyTable,
    frozen=True,
    rename={
        "min_threads": "minThreadsInPool",
        "max_threads": "maxThreadsInPool",
        "total_threads": "totalThreadsInPool",
        "rank": "Rank",
        "cpu_normalization": "CPUNormalization",
        "enable_list_match": "EnableListMatch",
    },
):
    enabled: Annotated[bool, Setting("false: no pilot is submitted through the pool")] = True
    handled: Annotated[
        bool | None,
        Setting("false: another director submits its pilots; absent: false for DIRAC and Local, else true"),
    ] = None
    endpoints: Annotated[
        tuple[str, ...],
        Setting(
            "access points of a batch system that has several; local and slurm have none of their own, so each entry"
            " is refused: the CEs of the pool take their part (docs/explanation/director.md)"
        ),
    ] = ()
    min_threads: Annotated[
        int,
        Setting(
            "threads that wait for submissions; no effect with the batch systems of today: threads start with the"
            " first submission, and stay",
            0,
            1000,
        ),
    ] = 0
    max_threads: Annotated[int, Setting("submissions at the same time at most", 1, 1000)] = 4
    total_threads: Annotated[
        int,
        Setting("submissions that may wait or run in the pool; a full pool takes no further one", 1, 10**6),
    ] = 100
    rank: Annotated[
        str,
        Setting(
            "ClassAd expression over the ad of a CE: with EnableListMatch the highest value comes first, and CEs for"
            " which it is no number come last"
        ),
    ] = DEFAULT_RANK
    cpu_normalization: Annotated[
        str,
        Setting(
            "ClassAd expression over the ad of a CE: the speed of its cores in reference cores, by which the wall"
            " time of its pilots is scaled to CPU time"
        ),
    ] = DEFAULT_NORMALIZATION
    enable_list_match: Annotated[
        bool, Setting("true: CEs are filled in the order of Rank; false: at random, weighted by their room")
    ] = False

    def changed_keys(self, besides: Collection[str] = ()) -> list[str]:
        """The keys whose values are not the defaults."""
        return [
            field.encode_name
            for field in msgspec.structs.fields(self)
            if getattr(self, field.name) != field.default and field.encode_name not in besides
        ]


class Director(
    PolicyTable,
    frozen=True,
    rename={
        "pilots_per_iteration": "pilotsPerIteration",
        "lowest_cpu_boost": "lowestCPUBoost",
        "extra_pilot_fraction": "extraPilotFraction",
        "extra_pilots": "extraPilots",
        "max_pilot_waiting_hours": "maxPilotWaitingHours",
        "known_pools": "SubmitPools",
        "default_pools": "DefaultSubmitPools",
        "generic_pilot_dn": "GenericPilotDN",
        "generic_pilot_group": "GenericPilotGroup",
        "private_pilot_fraction": "PrivatePilotFraction",
    },
):
    demand: Annotated[
        Demand,
        Setting(
            "matched (each waiting job counted once over all CEs) or dirac (pilots by priority and waiting jobs, drawn"
            " at random)"
        ),
    ] = "matched"
    period: Annotated[float, Setting("seconds between two iterations with demand dirac", 1.0, YEAR)] = 60.0
    pilots_per_iteration: Annotated[
        float, Setting("pilots of one iteration by priority, and as many by waiting jobs", 0, 10**9)
    ] = 100.0
    lowest_cpu_boost: Annotated[
        float, Setting("CPU seconds: queues below are not boosted any more than at this value", 1, 10**12)
    ] = 7200.0
    extra_pilot_fraction: Annotated[
        float, Setting("waiting pilots of a queue beyond its waiting jobs, as a fraction of these", 0, 1000)
    ] = 0.2
    extra_pilots: Annotated[int, Setting("waiting pilots of a queue beyond that fraction", 0, 10**6)] = 4
    max_pilot_waiting_hours: Annotated[
        float, Setting("hours after which a waiting pilot is no longer counted as waiting", 0, 10**6)
    ] = 6.0
    cancel_after: Annotated[
        float,
        Setting(
            "with demand matched: seconds after which a waiting pilot that no queue needs is cancelled",
            *SECONDS,
        ),
    ] = 60.0
    known_pools: Annotated[
        tuple[str, ...] | None, Setting("submit pools known to the system; absent: all pools that CEs name")
    ] = None
    default_pools: Annotated[
        tuple[str, ...] | None, Setting("submit pools of a queue that names none; absent: all known ones")
    ] = None
    generic_pilot_dn: Annotated[str, Setting("owner under which generic pilots are submitted")] = ""
    generic_pilot_group: Annotated[str, Setting("group under which generic pilots are submitted")] = ""
    private_pilot_fraction: Annotated[
        float, Setting("chance of private pilots for a queue that accepts both types", 0, 1)
    ] = 0.0
    pools: dict[str, SubmitPool] = msgspec.field(default_factory=dict)

    def pool(self, name: str) -> SubmitPool:
        """The settings of a pool; defaults if the policy has no table for it."""
        return self.pools.get(name, SubmitPool())

    def is_handled(self, name: str) -> bool:
        """Whether this director submits the pilots of a pool."""
        handled = self.pool(name).handled
        return name not in UNHANDLED_POOLS if handled is None else handled
