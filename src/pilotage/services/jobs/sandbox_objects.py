"""The files of sandboxes in the buckets that `sandboxes` of the policy names.

They lie below `sandboxes/INSTANCE` of the place, so pools may share a bucket. Rights of jobs to data sets never count
for these addresses.
"""

from __future__ import annotations

from typing import NamedTuple

from pilotage.core.errors import Forbidden
from pilotage.core.policy import Policy
from pilotage.services.jobs.storage_access import WRITES
from pilotage.services.pool.state import Pool
from pilotage.wire.data import S3, StoragePlace

_FOLDER = "sandboxes"


def sandbox_place(pool: Pool) -> StoragePlace | None:
    """The place of outputs of jobs that are offered now; None: the folder of the server."""
    return _place(pool, pool.policy.sandboxes.storage)


def input_place(pool: Pool) -> StoragePlace | None:
    """The place that clients send large input files to now; None: they send them to the server."""
    return _place(pool, pool.policy.sandboxes.inputs)


def _place(pool: Pool, name: str) -> StoragePlace | None:
    if not name:
        return None
    place = pool.policy.storage[name]
    return StoragePlace(name, f"{place.address}/{_FOLDER}/{pool.server.instance}", S3, place.patience)


class SandboxObject(NamedTuple):
    """An object in a folder of sandboxes."""

    place: str
    """The table `storage.NAME` that has it."""
    path: str
    """Below the folder of sandboxes of this pool; empty: it is in that of another pool."""

    def output_of(self, job: int, epoch: int, operation: str) -> str:
        """The name of the output of an attempt. Raises `Forbidden` if the attempt may not do this."""
        folder = f"outputs/{job}/{epoch}/"
        if operation not in WRITES or not self.path.startswith(folder):
            raise Forbidden(f"the job may not {operation} this file of a sandbox")
        return self.path.removeprefix(folder)

    def input_digest(self, operation: str) -> str:
        """The digest of an input file that is read; empty: this is something else."""
        folder, _, rest = self.path.partition("/")
        return rest.partition("/")[0] if folder == "inputs" and operation == "get" else ""


def sandbox_object(policy: Policy, instance: str, url: str) -> SandboxObject | None:
    """The object of a sandbox with an address; None: it is in no folder of sandboxes."""
    storage = policy.storage_with(url)
    if storage is None or storage[1].type != S3:
        return None
    below = url.removeprefix(f"{storage[1].address}/")
    if not below.startswith(f"{_FOLDER}/"):
        return None
    own = f"{_FOLDER}/{instance}/"
    return SandboxObject(storage[0], below.removeprefix(own) if below.startswith(own) else "")
