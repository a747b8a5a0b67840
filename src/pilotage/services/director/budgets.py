"""The budgets of CEs, from the policy and the store alone: every server gives the same answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pilotage.core.policy import Ce
from pilotage.core.policy.budget import BudgetStatus, budget_status, parse_budget, pilot_cost
from pilotage.core.provisioning.iteration import BatchOrder
from pilotage.core.provisioning.plan import PlannedPilot
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import ces, costs, pilot_submissions


def status_of(connection: Connection, name: str, ce: Ce, now: float) -> BudgetStatus | None:
    """The budget of a CE and its use; None: it has no budget."""
    if not ce.budget:
        return None
    budget = parse_budget(ce.budget)
    stamps = [
        f"{submission.stamp}/{index}"
        for submission in pilot_submissions.live(connection, name)
        for index in range(submission.pilots)
    ]
    listed = ces.by_name(connection, name).progress.listed or 0.0
    burning = costs.burning_pilots(connection, name, ce.wall, stamps, listed)
    used = costs.used_since(connection, name, now - budget.window)
    return budget_status(budget, used, burning, pilot_cost(ce.pilot_processors, ce.wall), now)


def exhausted(status: BudgetStatus | None) -> str:
    """The budget and its use, if it allows no further pilot; else empty."""
    return "" if status is None or status.room else status.explain()


def orders_within(status: BudgetStatus | None, orders: Sequence[BatchOrder]) -> tuple[BatchOrder, ...]:
    """The orders as far as the budget allows."""
    if status is None:
        return tuple(orders)
    room, allowed = status.room, []
    for order in orders:
        if room > 0:
            allowed.append(replace(order, pilots=min(room, order.pilots)))
            room -= allowed[-1].pilots
    return tuple(allowed)


def plan_within(
    status: BudgetStatus | None, ce: Ce, orders: Sequence[PlannedPilot]
) -> tuple[PlannedPilot, ...]:
    """The planned local pilots as far as the budget allows. Their sizes differ."""
    if status is None:
        return tuple(orders)
    ordered, allowed = 0.0, []
    for order in orders:
        cost = pilot_cost(order.processors, ce.wall)
        if status.allows(ordered + cost):
            allowed.append(order)
            ordered += cost
    return tuple(allowed)
