"""Totals of steps: a splitting may name the most files or events that a step of a request processes at all.

The total counts over all elements of the step, in the order of the intake. The element that reaches it gets a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pilotage.core.requests.plan import PlannedStep
from pilotage.core.requests.start_policy import PlannedElement, StartPlan
from pilotage.core.splitting.algorithm import Algorithm
from pilotage.core.splitting.totals import first_part
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_masks, elements


def limit_to_total(
    connection: Connection,
    request: int,
    rows: Sequence[PlannedStep],
    algorithm: Algorithm,
    plan: StartPlan,
) -> tuple[StartPlan, bool]:
    """The part of a plan that is still processed, and whether the total is reached now.

    `rows`: the planned rows of one step of the request, one for each input.
    """
    positions = [row.position for row in rows]
    rest = algorithm.total - elements.sum_of_steps(connection, request, positions, algorithm.total_unit)
    kept: list[PlannedElement] = []
    for element in plan.elements:
        if rest <= 0:
            break
        if _amount(element, algorithm) > rest:
            element = _first_part(connection, element, algorithm.with_total(rest))
        kept.append(element)
        rest -= _amount(element, algorithm)
    return replace(plan, elements=tuple(kept)), rest <= 0


def _amount(element: PlannedElement, algorithm: Algorithm) -> int:
    return element.files if algorithm.total_unit == "files" else element.events


def _first_part(connection: Connection, element: PlannedElement, algorithm: Algorithm) -> PlannedElement:
    files = element_masks.files_of_blocks(connection, element.blocks)
    mask, amount = first_part(files, element.mask, algorithm)
    jobs = algorithm.estimate_jobs(amount)
    return replace(element, mask=mask, jobs=jobs, events=amount.events, files=amount.files, size=amount.size)
