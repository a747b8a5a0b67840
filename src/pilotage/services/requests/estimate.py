"""The size of a request before it is split, and the sites of its data, as the catalogue knows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pilotage.core.datasets.facts import ANYWHERE, ELSEWHERE
from pilotage.core.requests.specification import Specification, Step, StepSplitting
from pilotage.core.splitting.algorithm import KILOBYTE, Amount
from pilotage.core.splitting.parser import parse_splitting
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import dataset_blocks, dataset_totals, location_sets
from pilotage.store.tables.dataset_totals import Totals
from pilotage.store.tables.datasets import DataSetRow


def amounts_of(connection: Connection, rows: Mapping[str, DataSetRow]) -> dict[str, Totals]:
    """The contents of these data sets by their names."""
    totals = dataset_totals.totals(connection, [row.id for row in rows.values()]) if rows else {}
    return {name: totals.get(row.id, Totals()) for name, row in rows.items()}


def total_of(amounts: Iterable[Totals]) -> Totals:
    """The sum of these contents."""
    return Totals(*(sum(values) for values in zip(Totals(), *amounts, strict=True)))


def estimated_jobs(request: Specification, amounts: Mapping[str, Totals]) -> int:
    """About the number of jobs of the steps with an input of their own, or a number of events."""
    return sum(_jobs_of(step, amounts) for step in request.steps if step.input or step.events)


def _jobs_of(step: Step, amounts: Mapping[str, Totals]) -> int:
    if step.events:
        return jobs_of_amount(step.splitting, Amount(events=step.events))
    return sum(_jobs_of_dataset(step.splitting, amounts[name]) for name in step.input)


def _jobs_of_dataset(splitting: StepSplitting, contents: Totals) -> int:
    """Each block is split by itself, so a data set has at least as many jobs as blocks."""
    amount = Amount(files=contents.files, events=contents.events, size=contents.size)
    return max(contents.blocks, jobs_of_amount(splitting, amount)) if contents.files else 0


class ExpectedNeeds(NamedTuple):
    """Expected needs of a request, by the parameters of its splitting. None: it does not give the parameter."""

    core_seconds: float | None = None
    """Seconds of reference cores, by `time_per_event`."""
    output_size: int | None = None
    """Bytes, by `size_per_event`."""


UNKNOWN_EFFORT = ExpectedNeeds()


def estimated_effort(request: Specification, amounts: Mapping[str, Totals]) -> ExpectedNeeds:
    """The effort of the steps with an input of their own, or a number of events."""
    seconds, size = [], []
    for step in request.steps:
        events = step.events or sum(amounts[name].events for name in step.input)
        given = dict(step.splitting.parameters)
        if events and (per_event := given.get("time_per_event")) is not None:
            seconds.append(events * float(per_event))
        if events and (per_event := given.get("size_per_event")) is not None:
            size.append(round(events * float(per_event) * KILOBYTE))
    return ExpectedNeeds(sum(seconds) if seconds else None, sum(size) if size else None)


def jobs_of_amount(splitting: StepSplitting, amount: Amount) -> int:
    return parse_splitting(splitting.algorithm, dict(splitting.parameters)).estimate_jobs(amount)


def sites_with_data(connection: Connection, dataset: int) -> frozenset[str] | None:
    """The sites with at least one block of a data set; None: of some block the location is not known.

    `ELSEWHERE` is in it if each block has an address that can be read from other sites.
    """
    sets = dataset_blocks.location_sets_of(connection, dataset)
    if not sets or location_sets.UNKNOWN in sets:
        return None
    known = location_sets.sites_of(connection, sets)
    everywhere = all(sites & {ANYWHERE, ELSEWHERE} for sites in known.values())
    sites = frozenset(site for sites in known.values() for site in sites)
    return sites if everywhere else sites - {ELSEWHERE}
