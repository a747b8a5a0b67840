"""Data orders: the input files, events and storage places of jobs of requests, for the pilots that get these jobs.

The orders of all jobs of a transaction are made with three statements. Jobs of users cost nothing here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pilotage.core.policy import Policy
from pilotage.core.requests.json_format import stored_steps
from pilotage.core.requests.plan import LOG_FILE, PlannedStep
from pilotage.core.requests.specification import MERGE, REMOVE, Output
from pilotage.core.splitting.mask import FileRange, Mask
from pilotage.services.jobs.storage_places import place_for_pilots, places_to_give, sources_of
from pilotage.services.pool.state import Pool
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import data_orders
from pilotage.store.tables.data_orders import OrderRow, ReplicaOfFile, RequestText
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.data import DataFile, DataOrder, StoragePlace
from pilotage.wire.pilot import OfferedJob

ANYWHERE = "*"
"""The site of replicas that every site can read."""
MAX_SEED = 900_000_000
"""Generators of high energy physics accept seeds up to this number."""


class OfferedRequestJob(NamedTuple):
    """A job of a request that is offered to a pilot."""

    offer: OfferedJob
    element_job: int
    site: str
    """The site of the pilot."""


def element_job_of(parameters: str | None) -> int:
    """The element job of a job of a request, from the parameters of its row; 0: there is none."""
    values = json.loads(parameters) if parameters else []
    return values[0] if values and isinstance(values[0], int) else 0


def add_orders(pool: Pool, tx: Transaction, offered: Sequence[OfferedRequestJob]) -> None:
    """Add the data orders to the payloads of these offers."""
    if not offered:
        return
    connection = tx.connection
    rows = data_orders.by_element_jobs(connection, sorted({job.element_job for job in offered}))
    requests = data_orders.requests(connection, sorted({row.request for row in rows.values()}))
    masks = {id_: Mask.from_json(json.loads(row.mask)) for id_, row in rows.items()}
    files = sorted({part.file for mask in masks.values() for part in mask.ranges})
    replicas = _by_file(data_orders.files_with_replicas(connection, files)) if files else {}
    for job in offered:
        row = rows.get(job.element_job)
        order = (
            DataOrder()
            if row is None
            else _order(pool, tx, row, requests[row.request], masks[row.element_job], replicas, job.site)
        )
        job.offer.payload = replace(job.offer.payload, data=order)


def paths_of(connection: Connection, files: Sequence[int], site: str) -> dict[str, str]:
    """Where a site reads these files, by their names in the data set."""
    replicas = _by_file(data_orders.files_with_replicas(connection, files)) if files else {}
    return {rows[0].name: _path(rows, site) for rows in replicas.values()}


def _by_file(rows: Sequence[ReplicaOfFile]) -> dict[int, list[ReplicaOfFile]]:
    grouped: dict[int, list[ReplicaOfFile]] = defaultdict(list)
    for row in rows:
        grouped[row.file].append(row)
    return grouped


def _order(
    pool: Pool,
    tx: Transaction,
    row: OrderRow,
    request: RequestText,
    mask: Mask,
    replicas: Mapping[int, Sequence[ReplicaOfFile]],
    site: str,
) -> DataOrder:
    step = stored_steps(request.specification, request.id)[row.step]
    files = [_file(part, replicas.get(part.file, ()), site) for part in mask.ranges]
    removes = step.action == REMOVE
    return DataOrder(
        request=request.id,
        request_name=request.name,
        step=step.name,
        type=step.type,
        element=row.element,
        files=files,
        first_event=mask.first_event,
        events=mask.events or row.events,
        first_lumi=mask.first_lumi,
        lumis=mask.lumis,
        seed=1 + row.element_job % MAX_SEED,
        outputs=list(step.output.files) if row.dataset else [],
        max_output=_largest_output(pool.policy, step),
        dataset=row.dataset or "",
        folder=folder_of(step.input if removes else row.dataset or ""),
        places=_places(pool, tx, step.output, site),
        action=step.action,
        # Lost attempts of the same elements may have left files there.
        sweep=sorted({file.name.split("/")[0] for file in files}) if removes else [],
        log_name=LOG_FILE if row.logs else "",
        log_folder=folder_of(row.logs or ""),
        log_places=_places(pool, tx, step.logs, site) if row.logs else [],
        sources=sources_of(pool.policy, (file.path for file in files)),
    )


def _largest_output(policy: Policy, step: PlannedStep) -> int:
    """Bytes of all outputs of one job. The step's own limit does not count for jobs that merge."""
    most, own = policy.requests.max_output_size, step.output.max_size
    return most if step.type == MERGE or not own else min(most, own)


def _places(pool: Pool, tx: Transaction, output: Output, site: str) -> list[StoragePlace]:
    return [place_for_pilots(pool.policy, path) for path in places_to_give(pool, tx, output, site)]


def folder_of(dataset: str) -> str:
    """The folder of a data set below a storage place. No name leads out of the place."""
    parts = [part for part in dataset.split("/") if part]
    return "/".join(part if part.strip(".") else "_" * len(part) for part in parts)


def _file(part: FileRange, replicas: Sequence[ReplicaOfFile], site: str) -> DataFile:
    """A file as the pilot finds it. A file that was removed keeps its range, and the pilot reports it as missing."""
    if not replicas:
        return DataFile(
            name=f"file {part.file}", path="", first_event=part.first, event_count=max(0, part.events)
        )
    first = replicas[0]
    whole = part.first == 0 and part.events < 0
    lumis = [list(lumi) for lumi in part.lumis]
    if whole and not lumis and first.lumis:
        lumis = json.loads(first.lumis)
    return DataFile(
        name=first.name,
        path=_path(replicas, site),
        size=first.size,
        checksum=first.checksum,
        events=first.events,
        first_event=part.first,
        event_count=max(0, first.events - part.first) if part.events < 0 else part.events,
        lumis=lumis,
    )


def _path(replicas: Sequence[ReplicaOfFile], site: str) -> str:
    """The path of a file at a site. A job that trusts the list of sites may read it from elsewhere, if it has a URL."""
    by_site = {replica.site: replica.prefix for replica in replicas if replica.prefix is not None}
    prefix = by_site.get(site) or by_site.get(ANYWHERE)
    if prefix is None:
        prefix = next((known for known in by_site.values() if "://" in known), None)
    return f"{prefix}/{replicas[0].name}" if prefix else ""
