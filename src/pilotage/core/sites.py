"""The states of sites: normal, drain, down. An administrator sets them by the hour; the policy stands above them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pilotage.core.policy import Policy


class SiteState(StrEnum):
    """Whether new work goes to a site."""

    NORMAL = "normal"
    DRAIN = "drain"
    """Elements are not pulled for it, and pilots are submitted only for jobs that can run nowhere else."""
    DOWN = "down"
    """No pilot is submitted, and no job starts."""


def state_of_site(policy: Policy, site: str, switched: SiteState) -> SiteState:
    """The state of a site: `switched` by an administrator, unless the policy bans or drains it."""
    known = policy.sites.get(site)
    if known is None or known.banned or switched is SiteState.DOWN:
        return SiteState.DOWN
    return SiteState.DRAIN if known.draining else switched


def slots_of_sites(policy: Policy, local_cores: Mapping[str, int]) -> dict[str, int]:
    """The jobs of one core that the pilots of each site can run at the same time, by the limits of its CEs.

    `local_cores`: the cores of each local CE, as far as they are known. Else it counts by its policy, or as one core.
    """
    slots = dict.fromkeys(policy.sites, 0)
    for name, ce in policy.ces.items():
        if ce.site not in slots:
            continue
        if ce.type == "local":
            slots[ce.site] += ce.processors or local_cores.get(name, 1)
        else:
            slots[ce.site] += ce.max_running * ce.pilot_processors
    return slots
