"""Partitions: each CE and each site of the pool, and one for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pilotage.cli.slurm.job_view import DEFAULT_PARTITION
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.sites import SiteSummary


def partitions(sites: list[SiteSummary]) -> dict[str, list[SiteSummary]]:
    """The sites of each partition. A CE is named before a site of the same name."""
    listed: dict[str, list[SiteSummary]] = {DEFAULT_PARTITION: list(sites)}
    for site in sites:
        for ce in site.ces:
            listed.setdefault(ce, []).append(site)
    for site in sites:
        listed.setdefault(site.name, [site])
    return listed


def partition_fields(client: Client, text: str) -> dict[str, Any]:
    """The fields `grid_ces` or `sites` for `--partition a,b`; none for the partition of all."""
    sites = client.sites()
    ces = {ce for site in sites for ce in site.ces}
    names = [part.strip() for part in text.split(",") if part.strip()]
    known = partitions(sites)
    for name in names:
        if name not in known:
            raise InvalidInput(
                f"invalid partition: there is no CE and no site {name}",
                hint=f"one of {', '.join(sorted(known))}",
            )
    if not names or (DEFAULT_PARTITION in names and DEFAULT_PARTITION not in ces):
        return {}
    chosen_sites = [name for name in names if name not in ces]
    if not chosen_sites:
        return {"grid_ces": names}
    if len(chosen_sites) == len(names):
        return {"sites": names}
    of_sites = [ce for name in chosen_sites for site in known[name] for ce in site.ces]
    return {"grid_ces": list(dict.fromkeys([name for name in names if name in ces] + of_sites))}
