"""A server's own policy as the twin serves it: with the CEs of the twin, and without anything outside of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from pilotage.core.policy import Ce, Policy
from pilotage.core.policy.isolation import ISOLATED
from pilotage.twin.ces import TwinCe
from pilotage.twin.columns import Array
from pilotage.twin.preparation import PreparedJobs, before, startable, without
from pilotage.twin.workload import TraceJobs


def served_policy(policy: Policy, ces: Sequence[TwinCe]) -> Policy:
    """The policy with the CEs of the twin only. A local CE has the cores of the twin's node, not of this machine.

    Duties ask, and clean up, the storage and the catalogues that a policy names. A run in virtual time must not.
    """
    known = {ce.name: ce for ce in ces}
    served = {name: _served(settings, known[name]) for name, settings in policy.ces.items() if name in known}
    sites = {name: msgspec.structs.replace(site, storage=()) for name, site in policy.sites.items()}
    return msgspec.structs.replace(policy, ces=served, sites=sites, storage={}, catalogues={})


def _served(settings: Ce, ce: TwinCe) -> Ce:
    # A CE gets no pilots until its relay runs, and the relay would be started on the real host of `reach`.
    settings = msgspec.structs.replace(settings, forward_hook="", reach="", relay="")
    if not settings.serves_everybody:
        # The owner of the home is no person of the twin. The history tells whose jobs ran there.
        settings = msgspec.structs.replace(settings, owners="any", isolation=ISOLATED)
    if settings.type != "local":
        return settings
    memory = max(kind.memory for kind in ce.nodes)
    # No pilot of a local CE is larger than its node.
    return msgspec.structs.replace(
        settings, processors=ce.cores, memory=memory, pilot_processors=ce.cores, pilot_memory=memory
    )


def prepare_recorded_jobs(
    jobs: TraceJobs, policies: Mapping[str, Policy], ces: Sequence[TwinCe], until: float | None
) -> PreparedJobs:
    """The jobs of a record that can start with each of the policies, by their names.

    Other than a trace, a record need not fit its policies: jobs that a policy does not admit are left out and counted.
    """
    notes: list[str] = []
    jobs = before(jobs, until, notes)
    for name, policy in policies.items():
        notes += _odd_ces(name, policy, ces)
        jobs = without(jobs, _admitted(jobs, policy), f"are of owners whom {name} does not admit", notes)
    served = {name: served_policy(policy, ces) for name, policy in policies.items()}
    return startable(jobs, served, ces, notes)


def _odd_ces(name: str, policy: Policy, ces: Sequence[TwinCe]) -> Iterator[str]:
    known = {ce.name for ce in ces}
    for ce in policy.ces:
        if ce not in known:
            yield f"CE {ce} of {name} has no history, so it gets no pilots here"
    for ce in sorted(known - policy.ces.keys()):
        yield f"{name} has no CE {ce}, so nothing runs there"


def _admitted(jobs: TraceJobs, policy: Policy) -> Array:
    """Whether the policy admits the owner and the group of each job."""
    owners, groups = jobs.owners.names, jobs.groups.names
    rows = jobs.rows
    pairs, place = np.unique(np.stack([rows["owner"], rows["group"]]), axis=1, return_inverse=True)
    admitted = np.array([policy.admits(owners[owner], groups[group]) for owner, group in pairs.T], bool)
    kept: Array = admitted[place.reshape(-1)]
    return kept
