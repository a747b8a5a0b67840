"""Whether jobs can read the places of data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pilotage.core.datasets.facts import Replica
from pilotage.core.folders import shows
from pilotage.core.policy import Policy
from pilotage.wire.isolation import SYSTEM_FOLDERS


def hidden_data_warnings(policy: Policy, places: Iterable[Replica]) -> Iterator[str]:
    """A warning for each place that all CEs of its site hide from payloads; it names the key that shows it."""
    for place in dict.fromkeys(places):
        ces = [name for name, ce in policy.ces.items() if ce.site == place.site]
        hiding = [
            name
            for name in ces
            if policy.ces[name].isolation == "require"
            and not shows(SYSTEM_FOLDERS, place.prefix)
            and not shows(policy.ces[name].visible_paths, place.prefix)
        ]
        if ces and hiding == ces and place.prefix.startswith("/"):
            keys = ", ".join(f"ces.{name}.visible" for name in ces)
            yield (
                f'payloads at {place.site} do not see {place.prefix}, since isolation = "require" hides it:'
                f' add "{place.prefix}" to {keys} in the policy'
            )


def unknown_storage_warnings(policy: Policy, places: Iterable[Replica]) -> Iterator[str]:
    """A warning for each address in an S3 service that is in no `storage` table, so pilots cannot copy its files."""
    for prefix in dict.fromkeys(place.prefix for place in places):
        if prefix.startswith("s3://") and policy.storage_with(prefix) is None:
            yield (
                f"no table `storage` of the policy has {prefix}: pilots copy no files from there, and programs of jobs"
                " are given the addresses"
            )
