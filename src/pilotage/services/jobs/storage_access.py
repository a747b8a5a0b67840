"""The files in storage that is no folder which one attempt at a job may read, write and remove.

A pilot has no key of such storage. The server makes an address for each request, if the job needs the file.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from pilotage.core.errors import Forbidden
from pilotage.core.policy import Policy
from pilotage.core.requests.json_format import stored_steps
from pilotage.core.requests.specification import REMOVE
from pilotage.core.splitting.mask import Mask
from pilotage.services.jobs.data_orders import folder_of, paths_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import data_orders

WRITES = frozenset({"put", "begin", "part", "complete", "abort"})
"""Operations of a file that the attempt writes."""


class StorageAccess(NamedTuple):
    """The rights of one attempt."""

    own: re.Pattern[str]
    """The addresses of files that it writes."""
    inputs: frozenset[str] = frozenset()
    """The addresses of files that it reads."""
    swept: tuple[str, ...] = ()
    """The ends of the folders that a cleanup empties, each with a slash at its end."""

    def place(self, policy: Policy, operation: str, url: str) -> str:
        """The name of the place with a file. Raises `Forbidden` if the attempt may not do this."""
        storage = policy.storage_with(url)
        if storage is None or ".." in url.split("/"):
            raise Forbidden("the address is in no table `storage.NAME` of the policy")
        below = url.removeprefix(f"{storage[1].address}/")
        is_swept = any(below.startswith(folder) for folder in self.swept)
        if operation in WRITES:
            allowed = self.own.match(below) is not None
        elif operation == "get":
            allowed = url in self.inputs
        elif operation == "remove":
            allowed = (
                is_swept or self.own.match(below) is not None or (bool(self.swept) and url in self.inputs)
            )
        else:
            allowed = operation == "list" and is_swept
        if not allowed:
            raise Forbidden(f"the job may not {operation} this file")
        return storage[0]


def access_of(
    connection: Connection, element_job: int, job: int, epoch: int, site: str
) -> StorageAccess | None:
    """The rights of an attempt at a site; None: its request was removed, or the job is none of a request."""
    row = data_orders.by_element_jobs(connection, [element_job]).get(element_job)
    if row is None:
        return None
    request = data_orders.requests(connection, [row.request])[row.request]
    step = stored_steps(request.specification, request.id)[row.step]
    folders = [folder_of(name) for name in (row.dataset, row.logs) if name]
    names = "|".join(map(re.escape, folders)) or "(?!)"
    own = re.compile(rf"({names})/{row.element}/{job}-{epoch}(-[0-9]+)?/.")
    files = sorted({part.file for part in Mask.from_json(json.loads(row.mask)).ranges})
    paths = paths_of(connection, files, site)
    if step.action != REMOVE:
        return StorageAccess(own, frozenset(paths.values()))
    elements = {name.split("/")[0] for name in paths}
    swept = tuple(f"{folder_of(step.input)}/{element}/" for element in sorted(elements))
    return StorageAccess(own, frozenset(paths.values()), swept)
