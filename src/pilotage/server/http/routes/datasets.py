"""Routes for data sets: register, list and remove them, and change their replicas."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from fastapi import Response

from pilotage.core.datasets.arrangement import slices_of
from pilotage.core.datasets.facts import (
    ANYWHERE,
    BlockEntry,
    FileEntry,
    Replica,
    check_checksum,
    check_entry_name,
    check_lumis,
    check_replica,
)
from pilotage.core.errors import InvalidInput, NotFound
from pilotage.core.policy import Policy
from pilotage.server.context import Context
from pilotage.server.http.auditing import audited_call
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.pages import page
from pilotage.server.http.routes.submissions import group_of
from pilotage.server.loop_turns import in_turns
from pilotage.server.tokens import Caller
from pilotage.services.audit import audited
from pilotage.services.catalogue import locations, registration, removal, reports
from pilotage.services.catalogue.locations import BLOCKS_AT_ONCE, ReplicaChange
from pilotage.services.catalogue.registration import FILES_AT_ONCE, LUMIS_AT_ONCE, Added
from pilotage.services.catalogue.visibility import hidden_data_warnings, unknown_storage_warnings
from pilotage.store.tables import dataset_totals, datasets
from pilotage.store.tables.dataset_totals import Totals
from pilotage.store.tables.datasets import BlockRow, DataSetRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.call import ApiCall
from pilotage.wire.datasets import (
    ADD_FILES,
    CHANGE_REPLICAS,
    CLOSE_DATASET,
    CREATE_DATASET,
    LIST_BLOCKS,
    LIST_DATASETS,
    LIST_FILES,
    REMOVE_DATASET,
    REPORT_DATASET,
    BlocksQuery,
    DataSetChange,
    DataSetCreate,
    DataSetFile,
    DataSetQuery,
    DataSetReport,
    DataSetsQuery,
    DataSetSummary,
    FilesAdd,
    FilesAdded,
    FilesQuery,
    ReplicaLocation,
    ReplicasChange,
    ReplicasChanged,
)

Result = TypeVar("Result")
router = CallRouter("data sets")


@router.call(LIST_DATASETS)
def list_datasets(asked: DataSetsQuery, context: TheContext, _: TheCaller) -> Response:
    """The data sets by id. `contains`: only names with this text in them. Every user may see every data set."""
    connection = context.readers.connection()
    rows = datasets.page(connection, asked.after, asked.limit, contains=asked.contains, owner=asked.owner)
    totals = dataset_totals.totals(connection, [row.id for row in rows])
    return page("datasets", ((row.id, _summary(row, totals.get(row.id))) for row in rows), asked.limit)


@router.call(CREATE_DATASET)
async def create_dataset(body: DataSetCreate, context: TheContext, caller: TheCaller) -> DataSetSummary:
    """Make an open data set. One of this name that the caller may change is returned as it is."""
    context.disk.space.check()
    group = group_of(context.pool.policy, caller, body.group)
    row = await context.writer.acall(
        lambda tx: registration.create(
            tx, body.name, owner=caller.user, group=group, changer=caller.viewer(), now=context.clock()
        )
    )
    return await _read_summary(context, row)


@router.call(REPORT_DATASET)
def report_dataset(asked: DataSetQuery, context: TheContext, _: TheCaller) -> DataSetReport:
    """A data set with its totals, and the part of it at each site."""
    connection = context.readers.connection()
    row = registration.find(connection, asked.name)
    places = reports.places(connection, row.id)
    summary = _summary(row, reports.live_totals(connection, row.id))
    return DataSetReport(summary, places.sites, places.unknown, places.nowhere)


@router.call(LIST_BLOCKS)
def list_blocks(asked: BlocksQuery, context: TheContext, _: TheCaller) -> Response:
    """The blocks of a data set by id, with their replicas."""
    connection = context.readers.connection()
    row = registration.find(connection, asked.name)
    return page("blocks", reports.blocks(connection, row.id, asked.after, asked.limit), asked.limit)


@router.call(LIST_FILES)
def list_files(asked: FilesQuery, context: TheContext, _: TheCaller) -> Response:
    """The files of a block by id."""
    connection = context.readers.connection()
    row = _block(context, registration.find(connection, asked.name), asked.block)
    return page("files", reports.files(connection, row.id, asked.after, asked.limit), asked.limit)


@router.call(ADD_FILES)
async def add_files(body: FilesAdd, context: TheContext, caller: TheCaller) -> FilesAdded:
    """Add files to a block. They are stored in slices; after an error the same request may be sent again."""
    context.disk.space.check()
    name = check_entry_name(body.block, "block")
    places = _places(context.pool.policy, body.replicas)
    files = await _entries(body.files, context.monotonic)
    total = Added()
    sent = 0
    for part in slices_of(files, FILES_AT_ONCE, LUMIS_AT_ONCE):
        sent += len(part)
        entry, complete = BlockEntry(name, tuple(part), places), body.complete and sent == len(files)
        added = await context.writer.acall(
            _audited(
                context,
                caller,
                ADD_FILES,
                body.dataset,
                partial(
                    registration.add_block,
                    name=body.dataset,
                    entry=entry,
                    changer=caller.viewer(),
                    complete=complete,
                    now=context.clock(),
                ),
            )
        )
        total = Added(total.files + added.files, total.known + added.known, total.closed + added.closed)
    if total.closed:
        context.wake.intake.set()
    warnings = list(hidden_data_warnings(context.pool.policy, places))
    warnings += unknown_storage_warnings(context.pool.policy, places)
    return FilesAdded(total.files, total.known, total.closed, warnings)


async def _entries(files: Sequence[DataSetFile], monotonic: Callable[[], float]) -> tuple[FileEntry, ...]:
    entries: dict[str, FileEntry] = {}
    async for number, file in in_turns(enumerate(files), monotonic):
        try:
            name = check_entry_name(file.name, "name")
            entry = FileEntry(
                name, file.size, file.events, check_checksum(file.checksum), check_lumis(file.lumis)
            )
        except InvalidInput as error:
            raise InvalidInput(
                f"files.{number}: {error.message}", hint=error.hint, field=f"files.{number}.{error.field}"
            ) from None
        if entries.setdefault(name, entry) is not entry:
            raise InvalidInput(f"files.{number}: {name!r} is listed twice", field=f"files.{number}.name")
    return tuple(entries.values())


def _places(
    policy: Policy, places: Sequence[ReplicaLocation], *, further: bool = False
) -> tuple[Replica, ...]:
    """The checked places. `further`: of replicas that are added, whose prefix may be that of other sites."""
    checked: dict[str, Replica] = {}
    for place in places:
        site = place.site or home_site(policy)
        if site != ANYWHERE and site not in policy.sites:
            near = difflib.get_close_matches(site, policy.sites, 1)
            hint = f"did you mean {near[0]}?" if near else "see `pilotage site list`"
            raise NotFound(f"the policy has no site {site}", hint=hint)
        if site in checked:
            raise InvalidInput(f"the site {site} is given twice", field="replicas")
        checked[site] = (
            Replica(site, "") if further and not place.prefix else check_replica(site, place.prefix)
        )
    return tuple(sorted(checked.values()))


def home_site(policy: Policy) -> str:
    """The site of this server's machine: that of its local CE, or the only site of the policy."""
    local = {ce.site for ce in policy.ces.values() if ce.type == "local"}
    sites = local or set(policy.sites)
    if len(sites) != 1:
        raise InvalidInput(
            "the site of the files is needed: the policy has no local CE, or local CEs at several sites",
            hint="--site NAME",
            field="replicas",
        )
    return sites.pop()


@router.call(CHANGE_REPLICAS)
async def change_replicas(body: ReplicasChange, context: TheContext, caller: TheCaller) -> ReplicasChanged:
    """Add, remove or forget the replicas of a data set or of one block. Elements follow within seconds."""
    policy = context.pool.policy
    if not (body.add or body.remove or body.forget):
        raise InvalidInput("nothing to change: give add, remove or forget")
    if body.forget and (body.add or body.remove):
        raise InvalidInput("forget goes with neither add nor remove", field="forget")
    change = ReplicaChange(_places(policy, body.add, further=True), tuple(body.remove), body.forget)
    connection = context.readers.connection()
    row = registration.find(connection, body.dataset)
    registration.need_rights(row, caller.viewer())
    registration.check_own(row)
    ids = (
        datasets.block_ids(connection, row.id)
        if body.block is None
        else [_block(context, row, body.block).id]
    )
    moved = 0
    for first in range(0, len(ids), BLOCKS_AT_ONCE):
        part = ids[first : first + BLOCKS_AT_ONCE]
        moved += await context.writer.acall(
            _audited(
                context,
                caller,
                CHANGE_REPLICAS,
                body.dataset,
                partial(locations.change_replicas, blocks=part, change=change, now=context.clock()),
            )
        )
    context.wake.locations.set()
    return ReplicasChanged(len(ids), moved)


def _block(context: Context, row: DataSetRow, name: str) -> BlockRow:
    block = datasets.block_named(context.readers.connection(), row.id, name)
    if block is None:
        raise NotFound(
            f"the data set {row.name} has no block {name}", hint=f"see `pilotage dataset show {row.name}`"
        )
    return block


@router.call(CLOSE_DATASET)
async def close_dataset(body: DataSetChange, context: TheContext, caller: TheCaller) -> DataSetSummary:
    """Close a data set and its open blocks: no more files will come. Its owner, or an administrator."""
    row = await context.writer.acall(
        _audited(
            context,
            caller,
            CLOSE_DATASET,
            body.name,
            lambda tx: registration.close(tx, body.name, changer=caller.viewer()),
        )
    )
    context.wake.intake.set()
    return await _read_summary(context, row)


@router.call(REMOVE_DATASET)
async def remove_dataset(body: DataSetChange, context: TheContext, caller: TheCaller) -> DataSetSummary:
    """Remove a data set from the catalogue; its files stay where they are. Refused while a request uses it."""
    name = body.name
    summary = await _read_summary(context, registration.find(context.readers.connection(), name))
    await context.writer.acall(
        _audited(
            context,
            caller,
            REMOVE_DATASET,
            name,
            lambda tx: removal.remove(tx, name, changer=caller.viewer(), now=context.clock()),
        )
    )
    context.wake.locations.set()
    return summary


def _audited(
    context: Context,
    caller: Caller,
    call: ApiCall[Any, Any],
    name: str,
    change: Callable[[Transaction], Result],
) -> Callable[[Transaction], Result]:
    """`change` of a data set, with a row of the audit log if it is another user's."""

    def state(tx: Transaction) -> str:
        row = datasets.by_name(tx.connection, name)
        return f"{'open' if row.open else 'closed'}, of {row.owner}" if row else "not there"

    def owner(tx: Transaction) -> str:
        row = datasets.by_name(tx.connection, name)
        return row.owner if row else ""

    called = audited_call(context, caller, call, f"data set {name}")
    return audited(called, change, state=state, owner=owner)


async def _read_summary(context: Context, row: DataSetRow) -> DataSetSummary:
    totals = await context.quick_read(lambda connection: dataset_totals.totals(connection, [row.id]))
    return _summary(row, totals.get(row.id))


def _summary(row: DataSetRow, totals: Totals | None) -> DataSetSummary:
    return DataSetSummary(*row, *(totals or Totals()))
