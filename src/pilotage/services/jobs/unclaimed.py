"""Objects that attempts have stored and that no data set names, since the attempts were refused.

An object counts only if its attempt is one of this pool and was refused. Its folder is of a data set that the job's
request writes, and no replica of a file has its address.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from pilotage.outside.storage.operations import ListedObject
from pilotage.services.jobs.data_orders import folder_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import refused_attempts
from pilotage.wire.storage import UnclaimedObject

_OBJECT = re.compile(
    r"(?P<folder>.+)/[0-9]{1,18}/(?P<job>[0-9]{1,18})-(?P<epoch>[0-9]{1,9})(-[0-9]{1,18})?/."
)
"""The name of an output below its place, as a pilot makes it: DATA SET/ELEMENT/JOB-EPOCH-TIME/FILE."""


def unclaimed_objects(
    connection: Connection, address: str, objects: Sequence[ListedObject], before: float
) -> list[UnclaimedObject]:
    """The unclaimed ones of these objects of a place; they and the ends of their attempts are from before `before`."""
    named = {listed.url: _OBJECT.match(listed.url.removeprefix(f"{address}/")) for listed in objects}
    jobs = sorted({int(match["job"]) for match in named.values() if match is not None})
    if not jobs:
        return []
    folders: dict[tuple[int, int], set[str]] = defaultdict(set)
    for row in refused_attempts.refused(connection, jobs, before):
        folders[row.job, row.epoch].add(folder_of(row.dataset))
    nameless = []
    for listed in objects:
        match = named[listed.url]
        if match is None or listed.modified >= before:
            continue
        job, epoch = int(match["job"]), int(match["epoch"])
        if match["folder"] in folders[job, epoch]:
            nameless.append(UnclaimedObject(listed.url, listed.size, job, epoch, listed.modified))
    known = (
        refused_attempts.registered(connection, address, [row.url for row in nameless]) if nameless else set()
    )
    return [row for row in nameless if row.url not in known]
