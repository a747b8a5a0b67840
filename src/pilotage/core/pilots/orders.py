"""Orders to leave. A pilot's row holds its order until the pilot has ended."""

from __future__ import annotations

from enum import StrEnum


class LeaveOrder(StrEnum):
    """An order, from the mildest to the strongest. A row may hold a turn's order instead, which is a drain."""

    DRAIN = "drain"
    """Take no more jobs, and leave when the present ones have ended."""
    CANCEL = "cancel"
    """Give the jobs back at the next call, and leave."""
    KILL = "kill"
    """Leave as for CANCEL; the batch system cancels the pilot's batch job too."""


_STRENGTH = {"": 0, LeaveOrder.DRAIN: 1, LeaveOrder.CANCEL: 2, LeaveOrder.KILL: 3}

ENDS_AS_DELETED = frozenset({LeaveOrder.CANCEL, LeaveOrder.KILL})
"""A pilot that ends after one of these orders was ended by a person: its jobs lose no try."""


def is_stronger(order: LeaveOrder, present: str) -> bool:
    """Whether an order replaces the present one of a row; "": the row has none."""
    return _STRENGTH[order] > _STRENGTH.get(present, 1)


def order_for(asked: LeaveOrder, *, called_home: bool) -> LeaveOrder:
    """The order for one pilot. A pilot that has not called home has no jobs, and only its batch system can end it."""
    return asked if called_home else LeaveOrder.KILL
