"""Partitions: names of CEs for Slurm's commands, from the policy. Without its table, each CE and site is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from pilotage.core.policy.refuser import Refuser, known_names
from pilotage.core.policy.storage_model import EVERY_SITE, PLAIN_NAME
from pilotage.core.policy.table import PolicyTable
from pilotage.core.setting import Setting

if TYPE_CHECKING:
    from pilotage.core.policy.model import Policy

WHOLE_POOL: Final = "all"
"""The default partition of a policy without a table of partitions."""


class JobPartition(PolicyTable, frozen=True):
    """The table `partitions.NAME`."""

    ces: Annotated[tuple[str, ...], Setting("CEs of the partition")] = ()
    sites: Annotated[
        tuple[str, ...], Setting("sites whose CEs all belong to the partition; `*`: every site")
    ] = ()
    default: Annotated[
        bool,
        Setting("true: jobs that name no partition go there; without a default, such jobs are refused"),
    ] = False

    def all_ces(self, policy: Policy) -> list[str]:
        """Its CEs and all CEs of its sites, in the order of the policy."""
        return [
            name
            for name, ce in policy.ces.items()
            if name in self.ces or ce.site in self.sites or EVERY_SITE in self.sites
        ]


def partitions_of(policy: Policy) -> dict[str, JobPartition]:
    """The partitions by name. A CE is named before a site of the same name."""
    if policy.partitions:
        return policy.partitions
    listed = {WHOLE_POOL: JobPartition(sites=(EVERY_SITE,), default=True)}
    for site in sorted(policy.sites):
        for ce in sorted(name for name, settings in policy.ces.items() if settings.site == site):
            listed.setdefault(ce, JobPartition(ces=(ce,)))
    for site in sorted(policy.sites):
        listed.setdefault(site, JobPartition(sites=(site,)))
    return listed


def check_partitions(policy: Policy, refuse: Refuser) -> None:
    """Refuse partitions without CEs, with unknown CEs or sites, and a second default."""
    default = ""
    for name, partition in policy.partitions.items():
        here = ("partitions", name)
        if not PLAIN_NAME.fullmatch(name):
            hint = "use letters, digits, - and _"
            refuse(f"the name {name[:80]!r} of a partition cannot be used", *here, hint=hint)
        if not partition.ces and not partition.sites:
            hint = 'name `ces` or `sites`; sites = ["*"] is the whole pool'
            refuse(f"partition {name} has no CE and no site", *here, hint=hint)
        for ce in partition.ces:
            if ce not in policy.ces:
                hint = known_names(policy.ces)
                refuse(f"partition {name}: there is no CE {ce}", *here, "ces", hint=hint)
        for site in partition.sites:
            if site != EVERY_SITE and site not in policy.sites:
                hint = known_names(policy.sites)
                refuse(f"partition {name}: there is no site {site}", *here, "sites", hint=hint)
        if partition.default and default:
            refuse(f"partitions {default} and {name} are both the default", *here, "default")
        default = name if partition.default else default
