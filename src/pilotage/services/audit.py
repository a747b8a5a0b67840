"""Changes with a row of the audit log, both in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pilotage.store.tables import audit_log
from pilotage.store.tables.audit_log import AuditRow
from pilotage.store.writer.transaction import Transaction

Result = TypeVar("Result")
Change = Callable[[Transaction], Result]
StateReader = Callable[[Transaction], str]
"""Reads the state of the changed object, in words without secrets; "" if it is not there."""


@dataclass(frozen=True, slots=True)
class AuditedCall:
    """A call with its sender, address and reason."""

    user: str
    group: str
    address: str
    call: str
    """The key of its row in the table of calls."""
    target: str
    """The object that it changes."""
    reason: str
    at: float


def audited(
    called: AuditedCall,
    change: Change[Result],
    *,
    state: StateReader | None = None,
    made: Callable[[Result], str] | None = None,
    owner: StateReader | None = None,
) -> Change[Result]:
    """`change`, with a row of the audit log in its transaction. A change that raises has no row.

    `state` is read before and after it. `made` tells the state after it from its result instead.
    `owner`: reads whose object it is. Changes of one's own objects have no row.
    """

    def run(tx: Transaction) -> Result:
        if owner is not None and owner(tx) == called.user:
            return change(tx)
        before = state(tx) if state is not None else ""
        result = change(tx)
        after = made(result) if made is not None else state(tx) if state is not None else ""
        record_change(tx, called, before=before, after=after)
        return result

    return run


def record_change(tx: Transaction, called: AuditedCall, *, before: str, after: str) -> None:
    """Write a row in the transaction of its change."""
    who = called.at, called.user, called.group, called.address
    audit_log.insert(tx.connection, AuditRow(*who, called.call, called.target, before, after, called.reason))
