"""The limit of waiting jobs of an owner, which holds for all servers together."""

from __future__ import annotations

from pilotage.core.errors import Overloaded
from pilotage.core.jobs.states import JobState
from pilotage.core.policy import Policy
from pilotage.store.tables import accepted_jobs
from pilotage.store.writer.transaction import Transaction

WAITING = (JobState.WAITING,)
NOT_STARTED = (JobState.WAITING, JobState.BLOCKED, JobState.HELD)


def jobs_of(owner: str) -> str:
    """The lock that a transaction takes before its first look at the jobs of an owner, if it may accept more."""
    return f"jobs of {owner}"


def check_room(policy: Policy, tx: Transaction, owner: str, count: int, *, blocked: bool = False) -> None:
    """Raises `Overloaded` if `count` more jobs would exceed the owner's limit of waiting jobs.

    `blocked`: the jobs do not begin to wait, and Blocked and Held jobs count too. To accept them, the transaction needs
    the lock `jobs_of(owner)`: else another server accepts jobs meanwhile.
    """
    most = policy.jobs.max_waiting_per_owner
    if count + accepted_jobs.count(tx.connection, owner, NOT_STARTED if blocked else WAITING) > most:
        raise Overloaded(
            f"{owner} would have more than {most:,} waiting jobs (jobs.max_waiting_per_owner)",
            hint="submit again when some of them have started",
            retry_after=10.0,
        )
