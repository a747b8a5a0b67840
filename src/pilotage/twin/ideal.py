"""The entitlement of groups and owners: the use that an ideal division of the same cores would have given them.

The ideal stops and continues jobs at will. So each group always has its share of the cores, as far as its jobs can use
it, and the others have the rest. In a group, its owners have equal parts in the same way. A real pool runs each job to
its end, so it can only follow the ideal after a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pilotage.core.policy import Policy
from pilotage.twin.columns import Array
from pilotage.twin.entitlement import entitled_cores
from pilotage.twin.result import JobRuns

EVERYBODY = -1
"""In place of an owner: all owners of a group that shares its share."""


@dataclass(frozen=True, slots=True)
class IdealUse:
    """The use of each party from each instant to the next one."""

    parties: Sequence[tuple[int, int]]
    """Places of group and owner."""
    core_seconds: Array
    """A row for each step, a column for each party."""

    def of_group(self, group: int) -> Array:
        """The core-seconds of a group in each step."""
        columns = [place for place, party in enumerate(self.parties) if party[0] == group]
        used: Array = self.core_seconds[:, columns].sum(axis=1)
        return used


def ideal_use(jobs: JobRuns, times: Array, core_seconds: Array, policy: Policy) -> IdealUse:
    """Divide the core-seconds between each two instants among the jobs that have come."""
    ideal = _IdealPool(jobs, policy)
    steps = zip(times[:-1].tolist(), times[1:].tolist(), core_seconds.tolist(), strict=True)
    served = [ideal.serve(begin, end, available) for begin, end, available in steps]
    return IdealUse(ideal.parties, np.array(served).reshape(len(served), len(ideal.parties)))


class _IdealPool:
    """The work that the ideal has left, job by job."""

    def __init__(self, jobs: JobRuns, policy: Policy) -> None:
        rows = jobs.rows
        sharing = np.array([policy.sharing(group) for group in jobs.groups.names], bool)
        owners = np.where(sharing[rows["group"]], EVERYBODY, rows["owner"]) if len(rows) else rows["owner"]
        keys, party = np.unique(np.stack([rows["group"], owners]), axis=1, return_inverse=True)
        self.parties = [(int(group), int(owner)) for group, owner in keys.T]
        # The jobs of a party stand together, in the order of their submission.
        order = np.lexsort((rows["submit"], party.reshape(-1)))
        self._party = party.reshape(-1)[order]
        self._submit = rows["submit"][order]
        self._processors = rows["processors"][order].astype(float)
        self._left = (rows["run"] * rows["processors"])[order]
        self._open = np.arange(len(rows))
        shares = policy.shares()
        self._shares = {place: shares.get(name, 0.0) for place, name in enumerate(jobs.groups.names)}

    def serve(self, begin: float, end: float, available: float) -> Array:
        """Give core-seconds to the jobs until `end`; the use of each party."""
        self._open = self._open[self._left[self._open] > 1e-6]
        here = self._open[self._submit[self._open] < end]
        longest = (end - np.maximum(self._submit[here], begin)) * self._processors[here]
        most, party = np.minimum(self._left[here], longest), self._party[here]
        parts = self._divide(np.bincount(party, most, len(self.parties)), available)
        before = np.cumsum(most) - most
        firsts = np.searchsorted(party, np.arange(len(self.parties)))
        offsets = np.append(before, 0.0)[firsts]
        given = np.clip(parts[party] - (before - offsets[party]), 0.0, most)
        self._left[here] -= given
        return parts

    def _divide(self, demands: Array, available: float) -> Array:
        """The core-seconds of each party: first among groups by their shares, then among the owners of each."""
        groups: dict[int, dict[int, float]] = {}
        for place, demand in enumerate(demands.tolist()):
            if demand > 0:
                groups.setdefault(self.parties[place][0], {})[place] = demand
        wanted = {group: sum(owners.values()) for group, owners in groups.items()}
        parts = np.zeros(len(self.parties))
        for group, part in entitled_cores(available, self._shares, wanted).items():
            owners = groups[group]
            for place, own in entitled_cores(part, dict.fromkeys(owners, 1.0), owners).items():
                parts[place] = own
        return parts
