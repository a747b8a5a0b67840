"""Routes for outside catalogues, and for the data sets that are copied from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pilotage.core.datasets.facts import check_data_set_name
from pilotage.core.errors import (
    Forbidden,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    PilotageError,
    Unreachable,
)
from pilotage.server.catalogue_clients import log_change
from pilotage.server.context import Context
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.routes.submissions import group_of
from pilotage.services.catalogue import following
from pilotage.services.catalogue.following import catalogue_of
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import catalogues, dataset_totals, datasets, followed_datasets, registrations
from pilotage.wire.catalogues import (
    FOLLOW_DATASET,
    LIST_CATALOGUES,
    SHOW_CATALOGUE,
    TEST_CATALOGUE,
    CatalogueReport,
    CatalogueSummary,
    DataSetFollow,
    DataSetFollowed,
    FollowedSummary,
)
from pilotage.wire.datasets import DataSetSummary
from pilotage.wire.limits import GivenName

router = CallRouter("outside catalogues")

Value = TypeVar("Value")

PATIENCE = 15.0
"""Seconds for the answer of a catalogue while a person waits."""

_threads = DaemonThreads("catalogue of a request")


@router.call(LIST_CATALOGUES)
def list_catalogues(context: TheContext, _: TheCaller) -> list[CatalogueSummary]:
    """The outside catalogues of the policy, and how they answer."""
    return _summaries(context, context.readers.connection())


def _summaries(context: Context, connection: Connection) -> list[CatalogueSummary]:
    known, counts = catalogues.by_name(connection), followed_datasets.counts(connection)
    outputs = registrations.counts(connection)
    summaries = []
    for name, section in sorted(context.pool.policy.catalogues.items()):
        number, oldest = counts.get(name, (0, None))
        summary = CatalogueSummary(name, section.type, number, oldest=oldest)
        if (row := known.get(name)) is not None:
            summary.software, summary.problem = row.software, row.problem
            summary.since, summary.answered = row.since, row.answered
        if (count := outputs.get(name)) is not None:
            summary.registered, summary.waiting, summary.registration_problem = count
        summaries.append(summary)
    return summaries


def _summary(context: Context, connection: Connection, name: str) -> CatalogueSummary:
    for summary in _summaries(context, connection):
        if summary.name == name:
            return summary
    raise NotFound(f"the policy has no catalogue {name}", hint="see `pilotage catalogue list`")


@router.call(SHOW_CATALOGUE)
def show_catalogue(catalogue: GivenName, context: TheContext, _: TheCaller) -> CatalogueReport:
    """One outside catalogue, and the data sets that are copied from it."""
    connection = context.readers.connection()
    summary = _summary(context, connection, catalogue)
    rows = followed_datasets.of_catalogue(connection, catalogue)
    return CatalogueReport(
        summary, [FollowedSummary(row.name, row.read, row.problem, row.note) for row in rows]
    )


@router.call(TEST_CATALOGUE)
async def ask_catalogue(catalogue: GivenName, context: TheContext, _: TheCaller) -> CatalogueSummary:
    """Log in to an outside catalogue now. The answer, or the problem, is stored and returned."""
    adapter = context.work.catalogues.adapter(context.pool.policy, catalogue)
    problem = software = ""
    try:
        software = await _ask(adapter.greet)
    except PilotageError as error:
        problem = str(error)
    change = await context.writer.acall(
        lambda tx: following.record_answer(tx, catalogue, context.clock(), problem=problem, software=software)
    )
    log_change(change)
    if not problem:
        context.wake.catalogues.set()
    return await context.quick_read(partial(_summary, context, name=catalogue))


@router.call(FOLLOW_DATASET)
async def follow_dataset(body: DataSetFollow, context: TheContext, caller: TheCaller) -> DataSetFollowed:
    """Copy a data set from an outside catalogue. If it is copied already, the catalogue is read at once."""
    context.disk.space.check()
    group = group_of(context.pool.policy, caller, body.group)
    warning = await ensure_followed(context, body.name, owner=caller.user, group=group)
    row, totals = await context.quick_read(partial(_read, name=body.name))
    return DataSetFollowed(DataSetSummary(*row, *totals), [warning] if warning else [])


def _read(connection: Connection, name: str) -> tuple[datasets.DataSetRow, dataset_totals.Totals]:
    row = datasets.by_name(connection, name)
    if row is None:
        raise NotFound(f"there is no data set {name}", hint="it was removed just now")
    return row, dataset_totals.totals(connection, [row.id]).get(row.id, dataset_totals.Totals())


async def ensure_followed(context: Context, name: str, *, owner: str, group: str) -> str:
    """Copy the data set from now on, and read it soon. Returns a warning if the catalogue does not answer now.

    Raises `NotFound` if the catalogue does not know it.
    """
    policy = context.pool.policy
    check_data_set_name(name)
    catalogue = catalogue_of(policy, name)
    known = await context.quick_read(partial(datasets.by_name, name=name))
    if known is not None and not known.catalogue:
        raise InvalidInput(f"the data set {name} is registered here, and copied from no catalogue")
    warning = ""
    if known is None:
        adapter = context.work.catalogues.adapter(policy, catalogue or name.partition(":")[0])
        there = name.partition(":")[2]
        try:
            await _ask(lambda: adapter.check(there))
        except (Unreachable, NotAuthenticated, Forbidden) as error:
            warning = f"catalogue {catalogue}: {error}; {name} is read when it answers again"
        except NotFound:
            raise NotFound(
                f"catalogue {catalogue} does not know {there}",
                hint=f"the name is {catalogue}: and the name there, such as {catalogue}:SCOPE:NAME",
            ) from None
    now = context.clock()
    await context.writer.acall(
        lambda tx: following.follow(tx, policy, name, owner=owner, group=group, now=now)
    )
    context.wake.catalogues.set()
    return warning


async def _ask(make: Callable[[], Value]) -> Value:
    asked = asyncio.get_running_loop().run_in_executor(_threads, make)
    try:
        return await asyncio.wait_for(asked, PATIENCE)
    except TimeoutError:
        raise Unreachable(f"the catalogue has not answered for {PATIENCE:g} s") from None
