"""Registers the output files of a finished job, in the transaction of its finish.

Only an accepted finish comes here. A file that cannot be registered is a failure of the job: it is never lost silently.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from pilotage.core.datasets.facts import (
    ANYWHERE,
    FileEntry,
    Replica,
    check_checksum,
    check_entry_name,
    check_lumis,
)
from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.jobs.request_types import REQUEST_TYPES
from pilotage.core.policy import Policy
from pilotage.core.requests.json_format import stored_steps
from pilotage.core.requests.specification import CLEANUP, Output
from pilotage.core.splitting.mask import Mask
from pilotage.services.catalogue.locations import ReplicaChange, change_replicas
from pilotage.services.catalogue.outputs import BlockLimits, WrittenFile, register_outputs
from pilotage.services.jobs.data_orders import element_job_of, folder_of
from pilotage.services.jobs.storage_places import is_folder_of
from pilotage.services.pool.job_caches import JobCaches
from pilotage.services.pool.records import StepOutputs
from pilotage.services.pool.state import Pool
from pilotage.store.tables import data_orders, datasets, replicas
from pilotage.store.tables.data_orders import OrderRow
from pilotage.store.tables.jobs import JobRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.data import StoredFile
from pilotage.wire.pilot import Finish

log = logging.getLogger(__name__)


class OutputRefusal(NamedTuple):
    """Why a successful job counts as failed. Nothing was registered."""

    reason: str
    failure: str = "output"
    is_final: bool = True
    """No further attempt would do better."""


def register_files(
    pool: Pool, tx: Transaction, finish: Finish, job: JobRow, pilot: PilotRow, now: float
) -> OutputRefusal | None:
    """Register the files of a successful finish, if its job works for a request. Returns why that cannot be done."""
    if not _works_for_request(pool, tx, job):
        return None
    element_job = element_job_of(job.parameters)
    row = data_orders.by_element_jobs(tx.connection, [element_job]).get(element_job)
    if row is None:
        return OutputRefusal("its request was removed")
    if row.type == CLEANUP:
        _forget_removed(tx, row, pilot.site, now)
    if not finish.files:
        return None
    if row.output_dataset is None or row.dataset is None:
        return OutputRefusal("its output data set was removed")
    target = OutputTarget(row.output_dataset, row.dataset, row, _outputs_of(pool.jobs, tx, row).files)
    try:
        outputs = _outputs(pool, tx, finish.files, target, finish, pilot.site)
    except InvalidInput as error:
        return OutputRefusal(f"its output was not registered: {error}")
    taken = _foreign_names(tx, target, [output.file.name for output in outputs])
    if taken:
        return OutputRefusal(f"its output was not registered: {row.dataset} has a file {taken[0]} already")
    taken = list(register_outputs(tx, element_job, outputs, now, BlockLimits.of(pool.policy)))
    if taken:
        # Others are registered: the transaction fails, and the next try finds the name above.
        raise Conflict(f"another transaction has registered {taken[0]} just now", hint="try again")
    return None


def register_logs(
    pool: Pool, tx: Transaction, finish: Finish, job: JobRow, pilot: PilotRow, now: float
) -> None:
    """Register the logs of an attempt, failed or not. Logs that cannot be registered leave the job as it is."""
    if finish.logs is None or not _works_for_request(pool, tx, job):
        return
    element_job = element_job_of(job.parameters)
    row = data_orders.by_element_jobs(tx.connection, [element_job]).get(element_job)
    if row is None or row.log_dataset is None or row.logs is None:
        return
    target = OutputTarget(row.log_dataset, row.logs, row, _outputs_of(pool.jobs, tx, row).logs)
    try:
        outputs = _outputs(pool, tx, [finish.logs], target, finish, pilot.site)
    except InvalidInput as error:
        log.warning("the logs of job %d were not registered: %s", finish.job, error)
        return
    register_outputs(tx, element_job, outputs, now, BlockLimits.of(pool.policy))


class OutputTarget(NamedTuple):
    """A data set that an element job writes."""

    dataset: int
    name: str
    row: OrderRow
    output: Output
    """With the places that the request names."""


def _outputs_of(jobs: JobCaches, tx: Transaction, row: OrderRow) -> StepOutputs:
    """The outputs of the row's step, which never change."""
    known = jobs.step_outputs.use((row.request, row.step))
    if known is None:
        request = data_orders.requests(tx.connection, [row.request])[row.request]
        step = stored_steps(request.specification, row.request)[row.step]
        known = jobs.step_outputs[row.request, row.step] = StepOutputs(step.output, step.logs)
    return known


def _works_for_request(pool: Pool, tx: Transaction, job: JobRow) -> bool:
    """Whether a job is one of a request. For other jobs this is one look into memory, mostly."""
    identity = pool.queues.identities.get(job.queue)
    if identity is not None and identity.job_type not in REQUEST_TYPES:
        return False
    return pool.jobs.submissions.get(tx, job.submission).row.request is not None


def _forget_removed(tx: Transaction, row: OrderRow, site: str, now: float) -> None:
    """A cleanup has removed whole blocks: they have no replica any more where it has found them."""
    files = sorted({part.file for part in Mask.from_json(json.loads(row.mask)).ranges})
    blocks = data_orders.blocks_of_files(tx.connection, files)
    stored = replicas.of_blocks(tx.connection, blocks)
    gone: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for block in blocks:
        prefixes = {replica.site: replica.prefix for replica in stored.get(block, ())}
        used = prefixes.get(site, prefixes.get(ANYWHERE, ""))
        # Sites that read the same address have lost the files, too.
        same = (name for name, prefix in prefixes.items() if "://" in prefix and prefix == used)
        gone[tuple(dict.fromkeys((site, *same)))].append(block)
    for sites, of_sites in gone.items():
        change_replicas(tx, of_sites, ReplicaChange(remove=sites), now)


def _foreign_names(tx: Transaction, target: OutputTarget, names: Sequence[str]) -> list[str]:
    """The names that another job has registered in the data set."""
    known = datasets.files_named(tx.connection, target.dataset, names)
    return [name for name, file in known.items() if file.element_job != target.row.element_job]


def _outputs(
    pool: Pool, tx: Transaction, files: Sequence[StoredFile], target: OutputTarget, finish: Finish, site: str
) -> list[WrittenFile]:
    """The files as the catalogue has them. Raises InvalidInput for a name or place that this job was not given."""
    folder = folder_of(target.name)
    for prefix in sorted({file.prefix for file in files}):
        if not is_folder_of(pool, tx, prefix, folder, target.output, site):
            raise InvalidInput(
                f"{prefix} is not the folder of {target.name} at a storage place of this job", field="prefix"
            )
    return [_output(pool.policy, file, target, finish, site) for file in files]


def _output(policy: Policy, file: StoredFile, target: OutputTarget, finish: Finish, site: str) -> WrittenFile:
    own = re.compile(rf"{target.row.element}/{finish.job}-{finish.epoch}(-[0-9]+)?/.")
    name = check_entry_name(file.name, "name")
    # One path has one name, so that no file is registered twice.
    if not own.match(name) or posixpath.normpath(name) != name:
        raise InvalidInput(f"{name} is not in the folder of this attempt", field="name")
    lumis = check_lumis(merged_lumis(file.lumis))
    entry = FileEntry(name, file.size, file.events, check_checksum(file.checksum), lumis)
    storage = policy.storage_with(file.prefix)
    first, *also = (site,) if storage is None else storage[1].readers(site)
    return WrittenFile(target.dataset, entry, Replica(first, file.prefix), tuple(also))


def merged_lumis(spans: Sequence[list[int]]) -> list[list[int]]:
    """The ranges, sorted and without overlap: two inputs of a job may share a lumi."""
    merged: list[list[int]] = []
    for run, first, last in sorted(spans):
        if merged and merged[-1][0] == run and first <= merged[-1][2] + 1:
            merged[-1][2] = max(merged[-1][2], last)
        else:
            merged.append([run, first, last])
    return merged
