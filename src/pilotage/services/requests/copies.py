"""New requests from earlier ones: clones, and resubmissions of exactly the failed jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pilotage.core.errors import Conflict, Forbidden, InvalidInput, check_mistakes
from pilotage.core.policy import Policy
from pilotage.core.requests.json_format import specification_from_text
from pilotage.core.requests.parser import NAME
from pilotage.core.requests.specification import MAX_PRIORITY, Program, Specification
from pilotage.core.requests.states import SUCCESSFUL, RequestState
from pilotage.core.requests.step_changes import NO_STEP_CHANGES, StepChanges
from pilotage.core.requests.trace import with_trace_of_request
from pilotage.services.catalogue.removal import check_kept
from pilotage.services.requests.rights import Actor, request_to_change, seen_request
from pilotage.services.requests.submission import PreparedRequest, submit, with_uploads
from pilotage.services.workqueue.resubmission import check_parts, lock_chain, store_parts
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import request_waits, requests, resubmissions, submissions
from pilotage.store.tables.requests import ALL_SITES, RequestRow
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.submissions import UploadedInput

RESUBMITTABLE = (
    *(*SUCCESSFUL, RequestState.ABORTED_COMPLETED),
    *(RequestState.REJECTED, RequestState.FAILED),
)
"""States without further tries of failed jobs."""
RESUBMIT = "resubmit"
"""The kind of the event with the parts of a resubmission."""


def clone(
    policy: Policy,
    tx: Transaction,
    number: int,
    actor: Actor,
    *,
    changes: dict[str, Any],
    steps: StepChanges = NO_STEP_CHANGES,
    inputs: Sequence[UploadedInput] = (),
    key: str,
    trace: str = "",
    now: float,
) -> RequestRow:
    """Submit a request again, with its present priority, team and lists of sites, and with `changes`.

    Its output data sets get new names. Its programs have the files that were sent with the earlier request;
    `inputs` replace the files with their names; `steps` are other splittings and resources. Its jobs continue `trace`.
    """
    row = seen_request(tx.connection, actor, number)
    specification = replace(_present(row), resubmits=())
    with_new_names = tuple(
        replace(step, output=replace(step.output, dataset="")) if step.output.dataset else step
        for step in specification.steps
    )
    logs = specification.log_collect
    logs = logs if logs is None else replace(logs, dataset="")
    changed = _with_changes(replace(specification, steps=with_new_names, log_collect=logs), changes)
    owner = _owner_for(actor, row)
    changed = _with_inputs(policy, tx.connection, steps.apply(changed), inputs, owner)
    changed = with_trace_of_request(changed, trace)
    return submit(policy, tx, PreparedRequest(changed, owner, key, row.id), now)


@dataclass(frozen=True, slots=True)
class Resubmitted:
    """A new request of failed parts."""

    row: RequestRow
    parts: int
    """The failed parts that it makes again."""
    left_out: tuple[tuple[int, int], ...] = ()
    """Another resubmission, and the number of failed parts that it does or has done."""


def resubmit(
    policy: Policy,
    tx: Transaction,
    number: int,
    actor: Actor,
    *,
    steps: StepChanges = NO_STEP_CHANGES,
    inputs: Sequence[UploadedInput] = (),
    key: str,
    trace: str = "",
    now: float,
) -> Resubmitted:
    """A new request of exactly the failed parts of an ended one that no other resubmission has.

    These are the jobs that have failed for good, and the rest of elements that could not be split.
    `inputs` replace the files with their names in the programs; `steps` have other splittings and resources.
    """
    connection = tx.connection
    root = lock_chain(connection, seen_request(connection, actor, number))
    row = request_to_change(connection, actor, number)
    owner = _owner_for(actor, row)
    known = requests.by_key(connection, owner.user, key) if key else None
    if known is not None:
        return _resubmitted_before(connection, known, row, inputs, steps, key)
    if row.state not in RESUBMITTABLE:
        raise Conflict(
            f"request {number} is {row.state}: its failed jobs may still be tried again",
            hint=_how_it_ends(connection, row),
        )
    # Its parts name blocks of these data sets. Others may have got their names since.
    check_kept(tx, {id_ for step in requests.steps_of(connection, row.id) for id_ in step.read})
    parts = check_parts(connection, row, resubmissions.of_chain(connection, root))
    present = _present(row)
    specification = replace(present, resubmits=(*present.resubmits, row.id), open_for=0)
    specification = _with_inputs(policy, connection, steps.apply(specification), inputs, owner)
    specification = with_trace_of_request(specification, trace)
    new = submit(policy, tx, PreparedRequest(specification, owner, key, row.id, root=root), now)
    store_parts(tx, new, parts, now)
    left_out = tuple(sorted(parts.left_out.items()))
    document = {"of": row.id, "parts": parts.taken, "left_out": left_out}
    requests.record(connection, new, RESUBMIT, actor=actor.name, now=now, detail=json.dumps(document))
    return Resubmitted(new, parts.taken, left_out)


def _how_it_ends(connection: Connection, row: RequestRow) -> str:
    """How a request comes to its end, which may take hours if failed jobs pause before their next try."""
    hint = f"wait for its end: `pilotage request wait {row.id}`"
    if row.state in (RequestState.RUNNING_OPEN, RequestState.RUNNING_CLOSED):
        hint += f", or end it now: `pilotage request force-complete {row.id}`"
    retry = request_waits.next_retry(connection, row.id)
    when = "" if retry is None else f"{datetime.fromtimestamp(retry, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{hint}; the next retry of a failed job is at {when}" if when else hint


def _resubmitted_before(
    connection: Connection,
    known: RequestRow,
    row: RequestRow,
    inputs: Sequence[UploadedInput],
    steps: StepChanges,
    key: str,
) -> Resubmitted:
    """The answer to a resubmission that was sent before. Raises `Conflict` if the key belongs to another request."""
    specification = specification_from_text(known.specification)
    sent = {
        (file.name, file.digest) for program in specification.programs.values() for file in program.inputs
    }
    is_same = steps.apply(specification) == specification and all((x.name, x.digest) in sent for x in inputs)
    if known.root is None or known.origin != row.id or not is_same:
        raise Conflict(
            f"the key {key} belongs to another request ({known.id})",
            hint="a key identifies one request: use another key, or none",
        )
    event = next((e for e in requests.events_of(connection, known.id) if e.kind == RESUBMIT), None)
    document: dict[str, Any] = json.loads(event.detail) if event is not None else {"parts": 0, "left_out": []}
    left_out = tuple((request, parts) for request, parts in document["left_out"])
    return Resubmitted(known, document["parts"], left_out)


def _with_inputs(
    policy: Policy,
    connection: Connection,
    specification: Specification,
    inputs: Sequence[UploadedInput],
    owner: Actor,
) -> Specification:
    """The specification with `inputs` in place of the files with their names. Raises InvalidInput for other names."""
    if not inputs:
        return specification
    new = {file.name: file for file in inputs}
    known = {file.name for program in specification.programs.values() for file in program.inputs}
    check_mistakes(
        InvalidInput(
            f"no program of the request has the input file {name}",
            hint=f"it has: {', '.join(sorted(known)[:20]) or 'none'}; FILE=NAME sends a file under another name",
            field="inputs",
        )
        for name in sorted(new.keys() - known)
    )

    def sent(program: Program) -> list[UploadedInput]:
        return [
            UploadedInput(
                name=file.name,
                digest=new[file.name].digest if file.name in new else file.digest,
                size=file.size,
                executable=file.executable or (file.name in new and new[file.name].executable),
            )
            for file in program.inputs
        ]

    uploaded = {name: sent(program) for name, program in specification.programs.items()}

    def size_of(digest: str) -> int | None:
        return submissions.upload_size(connection, owner.user, digest)

    return with_uploads(specification, uploaded, size_of, policy)


def _owner_for(actor: Actor, row: RequestRow) -> Actor:
    """The actor who will own the copy. Uploaded files belong to the owner of the request."""
    if actor.user == row.owner:
        return actor
    raise Forbidden(
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
