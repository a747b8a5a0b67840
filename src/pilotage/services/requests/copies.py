"""New requests from earlier ones: clones, and resubmissions of exactly the failed jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pilotage.core.errors import Conflict, InvalidInput
from pilotage.core.requests.json_format import specification_from_text
from pilotage.core.requests.parser import NAME
from pilotage.core.requests.specification import MAX_PRIORITY, Specification
from pilotage.core.requests.states import SUCCESSFUL, RequestState
from pilotage.core.workqueue.states import ElementJobState
from pilotage.services.pool.state import Pool
from pilotage.services.requests.rights import Actor, request_to_change, seen_request
from pilotage.services.requests.submission import PreparedRequest, submit
from pilotage.store.tables import element_masks, request_progress
from pilotage.store.tables.requests import ALL_SITES, RequestRow
from pilotage.store.writer.transaction import Transaction

RESUBMITTABLE = (
    *(*SUCCESSFUL, RequestState.ABORTED_COMPLETED),
    *(RequestState.REJECTED, RequestState.FAILED),
)
"""States without further tries of failed jobs."""


def clone(
    pool: Pool, tx: Transaction, number: int, actor: Actor, *, changes: dict[str, Any], key: str, now: float
) -> RequestRow:
    """Submit a request again, with its present priority, team and lists of sites, and with `changes`.

    Its output data sets get new names. Its programs have the files that were sent with the earlier request.
    """
    row = seen_request(tx.connection, actor, number)
    specification = replace(_present(row), resubmits=())
    steps = tuple(
        replace(step, output=replace(step.output, dataset="")) if step.output.dataset else step
        for step in specification.steps
    )
    logs = specification.log_collect
    logs = logs if logs is None else replace(logs, dataset="")
    changed = _with_changes(replace(specification, steps=steps, log_collect=logs), changes)
    return submit(pool, tx, PreparedRequest(changed, _owner_for(actor, row), key, row.id), now)


def resubmit(pool: Pool, tx: Transaction, number: int, actor: Actor, *, key: str, now: float) -> RequestRow:
    """A new request of exactly the failed parts of an ended one.

    These are the jobs that have failed for good, and the rest of elements that could not be split.
    """
    row = request_to_change(tx.connection, actor, number)
    if row.state not in RESUBMITTABLE:
        raise Conflict(
            f"request {number} is {row.state}: its failed jobs may still be tried again",
            hint="wait for its end: `pilotage request wait`",
        )
    counts = request_progress.jobs_by_request(tx.connection, [row.id])
    has_failed_job = any(state == ElementJobState.EXHAUSTED and jobs for _, state, jobs in counts)
    if not has_failed_job and not element_masks.has_unsplit(tx.connection, row.id):
        raise Conflict(
            f"no job of request {number} has failed for good, and all of its elements could be split",
            hint="`pilotage request clone` runs all",
        )
    present = _present(row)
    specification = replace(present, resubmits=(*present.resubmits, row.id), open_for=0)
    return submit(pool, tx, PreparedRequest(specification, _owner_for(actor, row), key, row.id), now)


def _owner_for(actor: Actor, row: RequestRow) -> Actor:
    """The actor who will own the copy. Uploaded files belong to the owner of the request."""
    if actor.user == row.owner:
        return actor
    raise InvalidInput(
        f"request {row.id} belongs to {row.owner}, who alone may run its program again",
        hint="submit its file yourself",
    )


def _present(row: RequestRow) -> Specification:
    """The specification with the facts that have changed since."""
    return replace(
        specification_from_text(row.specification),
        priority=row.priority,
        team=row.team,
        sites=None if row.sites == ALL_SITES else row.sites,
        banned_sites=row.banned_sites,
        trust_input=row.trust_input,
        trust_pileup=row.trust_pileup,
    )


def _with_changes(specification: Specification, changes: dict[str, Any]) -> Specification:
    name = changes.get("name", specification.name)
    if not NAME.match(name):
        raise InvalidInput(
            f"{name[:60]!r} cannot be a name", hint="use letters, digits and . _ -", field="name"
        )
    priority = changes.get("priority", specification.priority)
    if not 0 <= priority <= MAX_PRIORITY:
        raise InvalidInput(f"priority must be a number from 0 to {MAX_PRIORITY:,}", field="priority")
    return replace(specification, **changes)
