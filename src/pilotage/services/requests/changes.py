"""The verbs on requests: each changes one row and its history at once. The work queue carries it out in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from pilotage.core.errors import Conflict, IllegalMove, InvalidInput
from pilotage.core.policy import Policy
from pilotage.core.requests.json_format import (
    specification_from_text,
    specification_to_text,
    splitting_to_text,
    stored_steps,
)
from pilotage.core.requests.specification import MAX_PRIORITY
from pilotage.core.requests.states import (
    ACTIVE,
    ENDED,
    RequestState,
    check_editable,
)
from pilotage.core.requests.step_changes import NO_STEP_CHANGES, RESOURCES, StepChanges
from pilotage.services.catalogue.removal import check_kept
from pilotage.services.requests.rights import Actor, request_to_change
from pilotage.services.requests.submission import approve_and_assign, use_uploads
from pilotage.store.tables import elements, requests
from pilotage.store.tables.requests import ALL_SITES, RequestRow
from pilotage.store.writer.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Change:
    """Who changes a request, when and why."""

    actor: Actor
    now: float
    reason: str = ""


def approve(tx: Transaction, number: int, change: Change) -> RequestRow:
    """Approve a new request; one with a team is assigned too."""
    change.actor.need_to_manage("approve")
    row = request_to_change(tx.connection, change.actor, number)
    return approve_and_assign(tx, row, change.actor, change.now, change.reason)


def reject(tx: Transaction, number: int, change: Change) -> RequestRow:
    """Refuse a request that is not assigned, or the result of one that has ended."""
    change.actor.need_to_manage("reject")
    row = request_to_change(tx.connection, change.actor, number)
    return _reject(tx, row, change)


def _reject(tx: Transaction, row: RequestRow, change: Change) -> RequestRow:
    """A resubmission has elements before it is assigned; they are cancelled."""
    if row.state in ACTIVE:
        raise IllegalMove(
            f"request {row.id} is {row.state}, and only its results can be rejected",
            hint=f"`pilotage request abort {row.id}` ends it",
        )
    if elements.has_available(tx.connection, row.id):
        return _end(tx, row, RequestState.REJECTED, change)
    return _move(tx, row, RequestState.REJECTED, change)


@dataclass(frozen=True, slots=True)
class SiteLists:
    """New lists and flags; None: as before."""

    sites: tuple[str, ...] | None = None
    """Empty: all sites."""
    banned: tuple[str, ...] | None = None
    trust_input: bool | None = None
    trust_pileup: bool | None = None

    @property
    def is_empty(self) -> bool:
        return (self.sites, self.banned, self.trust_input, self.trust_pileup) == (None, None, None, None)

    def apply(self, row: RequestRow, policy: Policy) -> RequestRow:
        """The row with these lists. Raises `InvalidInput` for sites that the policy has not."""
        for site in self.sites or ():
            if site not in policy.sites:
                known = ", ".join(policy.sites) or "none"
                raise InvalidInput(f"{site} is not in the policy", hint=f"sites: {known}", field="sites")
        changed = row
        if self.sites is not None:
            changed = replace(changed, sites=self.sites or ALL_SITES)
        if self.banned is not None:
            changed = replace(changed, banned_sites=self.banned)
        if self.trust_input is not None:
            changed = replace(changed, trust_input=self.trust_input)
        if self.trust_pileup is not None:
            changed = replace(changed, trust_pileup=self.trust_pileup)
        if changed.sites != ALL_SITES and set(changed.sites) <= set(changed.banned_sites):
            raise InvalidInput("no site would be left: all are banned", field="sites")
        return changed


def assign(
    tx: Transaction,
    number: int,
    team: str,
    lists: SiteLists,
    policy: Policy,
    change: Change,
    steps: StepChanges = NO_STEP_CHANGES,
) -> RequestRow:
    """Give a request a team, lists of sites, and other splittings and resources of its steps.

    A new request is approved, a failed one tried again. If the request is in the queue, its state stays. Elements that
    agents of the old team hold stay with them. Steps change before the request has work: `Conflict` after that.
    """
    change.actor.need_to_manage("assign")
    row = request_to_change(tx.connection, change.actor, number)
    if row.state is RequestState.NEW:
        row = _move(tx, row, RequestState.ASSIGNMENT_APPROVED, change)
    if row.state is RequestState.FAILED:
        # Nobody kept its data sets and the files of its programs meanwhile.
        used = requests.steps_of(tx.connection, number)
        check_kept(tx, {id_ for step in used for id_ in (*step.read, *step.written)})
        use_uploads(tx, row.owner, specification_from_text(row.specification), change.now)
    else:
        check_editable("team", row.state)
    changed = lists.apply(replace(row, team=team or row.team), policy)
    if not steps.is_empty:
        changed = _change_steps(tx, changed, steps)
    if not changed.team:
        raise InvalidInput("the request has no team", hint="name one: --team NAME", field="team")
    row = _change(tx, row, changed, "assign", change)
    if row.state not in (RequestState.ASSIGNMENT_APPROVED, RequestState.FAILED):
        return row
    return _move(tx, row, RequestState.ASSIGNED, change)


def _change_steps(tx: Transaction, row: RequestRow, steps: StepChanges) -> RequestRow:
    check_editable("splitting and resources", row.state)
    specification = steps.apply(specification_from_text(row.specification))
    text = specification_to_text(specification)
    splittings = [splitting_to_text(step.splitting) for step in stored_steps(text, row.id)]
    requests.save_specification(tx.connection, row.id, text, splittings)
    return replace(row, specification=text)


def set_priority(tx: Transaction, number: int, priority: int, change: Change) -> RequestRow:
    """Change the priority. The next pull and the next release use the new one."""
    if not 0 <= priority <= MAX_PRIORITY:
        raise InvalidInput(f"priority must be a number from 0 to {MAX_PRIORITY:,}", field="priority")
    row = request_to_change(tx.connection, change.actor, number)
    check_editable("priority", row.state)
    return _change(tx, row, replace(row, priority=priority), "priority", change)


def set_sites(tx: Transaction, number: int, lists: SiteLists, policy: Policy, change: Change) -> RequestRow:
    """Change the lists of sites and the trust flags."""
    row = request_to_change(tx.connection, change.actor, number)
    check_editable("sites", row.state)
    return _change(tx, row, lists.apply(row, policy), "sites", change)


def pause(tx: Transaction, number: int, change: Change) -> RequestRow:
    """Give no more elements of a request to agents, and release no more jobs. Jobs in the pool go on."""
    return _set_paused(tx, number, change, paused=True)


def resume(tx: Transaction, number: int, change: Change) -> RequestRow:
    """End the pause of a request."""
    return _set_paused(tx, number, change, paused=False)


def _set_paused(tx: Transaction, number: int, change: Change, *, paused: bool) -> RequestRow:
    row = request_to_change(tx.connection, change.actor, number)
    if row.paused == paused:
        return row
    check_editable("pause", row.state)
    kind = "pause" if paused else "resume"
    return requests.change_facts(
        tx.connection,
        row,
        replace(row, paused=paused),
        kind=kind,
        actor=change.actor.name,
        now=change.now,
        detail=change.reason,
    )


def abort(tx: Transaction, number: int, change: Change) -> RequestRow:
    """End a request: its elements and jobs are cancelled. One that is not assigned yet is rejected."""
    row = request_to_change(tx.connection, change.actor, number)
    if row.state in (RequestState.NEW, RequestState.ASSIGNMENT_APPROVED):
        return _reject(tx, row, replace(change, reason=change.reason or "withdrawn"))
    if row.state is RequestState.ABORTED:
        return row
    return _end(tx, row, RequestState.ABORTED, change)


def force_complete(tx: Transaction, number: int, change: Change) -> RequestRow:
    """End a request early: jobs that are done count, the others are cancelled."""
    row = request_to_change(tx.connection, change.actor, number)
    if row.state is RequestState.FORCE_COMPLETE:
        return row
    return _end(tx, row, RequestState.FORCE_COMPLETE, change)


def _end(tx: Transaction, row: RequestRow, state: RequestState, change: Change) -> RequestRow:
    if row.paused:
        # A request that ends by force still merges the outputs that it has.
        row = _set_paused(tx, row.id, change, paused=False)
    moved = _move(tx, row, state, change)
    requests.set_propagating(tx.connection, row.id, propagating=True)
    return replace(moved, propagating=True)


def close_out(tx: Transaction, number: int, change: Change) -> RequestRow:
    """Accept the result of a completed request."""
    return _decide(tx, number, RequestState.CLOSED_OUT, "close out", change)


def announce(tx: Transaction, number: int, change: Change) -> RequestRow:
    """Tell that the accepted result is there."""
    return _decide(tx, number, RequestState.ANNOUNCED, "announce", change)


def _decide(tx: Transaction, number: int, state: RequestState, verb: str, change: Change) -> RequestRow:
    """Move a request one state further, or leave it where it is if it has this state."""
    change.actor.need_to_manage(verb)
    row = request_to_change(tx.connection, change.actor, number)
    return row if row.state is state else _move(tx, row, state, change)


ARCHIVE_MOVES = {
    RequestState.COMPLETED: RequestState.CLOSED_OUT,
    RequestState.CLOSED_OUT: RequestState.ANNOUNCED,
    RequestState.ANNOUNCED: RequestState.NORMAL_ARCHIVED,
    RequestState.ABORTED_COMPLETED: RequestState.ABORTED_ARCHIVED,
    RequestState.REJECTED: RequestState.REJECTED_ARCHIVED,
}
"""The next state of a request that has ended, on its way to the archive."""


def archive(tx: Transaction, number: int, change: Change) -> RequestRow:
    """Walk an ended request through all states to its archived one."""
    row = request_to_change(tx.connection, change.actor, number)
    if row.state not in ENDED or row.state is RequestState.FAILED:
        raise Conflict(
            f"request {number} has not ended: it is {row.state}", hint="abort it, or wait for its end"
        )
    while row.state in ARCHIVE_MOVES:
        row = _move(tx, row, ARCHIVE_MOVES[row.state], change)
    return row


def _move(tx: Transaction, row: RequestRow, state: RequestState, change: Change) -> RequestRow:
    return requests.move(
        tx.connection, row, state, actor=change.actor.name, now=change.now, reason=change.reason
    )


def _change(tx: Transaction, row: RequestRow, changed: RequestRow, kind: str, change: Change) -> RequestRow:
    """Store changed facts; the work queue still has to carry them out at elements and jobs."""
    if changed == row:
        return row
    detail = _described_change(row, changed)
    return requests.change_facts(
        tx.connection,
        row,
        replace(changed, propagating=True),
        kind=kind,
        actor=change.actor.name,
        now=change.now,
        detail=f"{detail}: {change.reason}" if change.reason else detail,
    )


def _steps_text(row: RequestRow) -> str:
    """`process: FileBased files_per_job=2, processors=1 memory=2000`, by step."""
    return "; ".join(
        f"{step.name}: {step.splitting.algorithm} {_values(step.splitting.parameters)},"
        f" {_values((name, getattr(step.program.description, name)) for name in RESOURCES)}"
        for step in specification_from_text(row.specification).steps
    )


def _values(pairs: Iterable[tuple[str, object]]) -> str:
    return " ".join(f"{name}={value}" for name, value in pairs if value)


_FACTS: dict[str, Callable[[RequestRow], str]] = {
    "priority": lambda row: str(row.priority),
    "team": lambda row: row.team or "none",
    "sites": lambda row: " ".join(row.sites),
    "banned sites": lambda row: " ".join(row.banned_sites) or "none",
    "trust input": lambda row: str(row.trust_input).lower(),
    "trust pile-up": lambda row: str(row.trust_pileup).lower(),
    "steps": _steps_text,
}


def _described_change(old: RequestRow, new: RequestRow) -> str:
    """`priority 8000 → 9000, sites * → here`."""
    return ", ".join(
        f"{name} {text(old)} → {text(new)}" for name, text in _FACTS.items() if text(old) != text(new)
    )
