"""The slots of sites: how much work an agent may hold for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlotRules:
    """From the policy."""

    pending_fraction: float = 0.5
    """Pending slots, as a part of the available slots."""
    queue_depth: float = 1.0
    site_floor: int = 1
    """Slots of a site for an agent, at least."""


def pending_slots(available: int, rules: SlotRules) -> int:
    """The number of jobs that may wait at a site with `available` slots."""
    return int(available * rules.pending_fraction)


def slots_of_site(available: int, agents: int, rules: SlotRules) -> int:
    """The slots of a site for one of `agents` live, not draining agents of the team.

    Running jobs are not subtracted: jobs that run are not counted against the slots either.
    """
    total = (available + pending_slots(available, rules)) * rules.queue_depth
    return max(int(total / max(agents, 1)), rules.site_floor)


def slots_of_sites(available: Mapping[str, int], agents: int, rules: SlotRules) -> dict[str, int]:
    return {site: slots_of_site(count, agents, rules) for site, count in available.items()}


def lesser_slots(own: Mapping[str, int], sent: Mapping[str, int]) -> dict[str, int]:
    """The slots that an agent is served by: the lesser of the server's and its own, for sites that both name."""
    return {site: min(count, sent[site]) for site, count in own.items() if site in sent}
