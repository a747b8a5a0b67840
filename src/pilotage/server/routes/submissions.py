"""Submitting jobs and the files that they need."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from pilotage.core.errors import Forbidden, InvalidInput, Overloaded
from pilotage.core.jobs.description import Submission
from pilotage.core.jobs.jdl import parse_jdl
from pilotage.core.jobs.texts import from_yaml, parse_yaml_mapping
from pilotage.server.context import Context, caller_of, context_of
from pilotage.server.duties import forget_staged
from pilotage.server.edge import CheckedRoute
from pilotage.server.tokens import Caller
from pilotage.services.making import Making
from pilotage.services.submission import (
    Accepting,
    Prepared,
    check_places,
    identity_of,
    resolve_inputs,
    response,
    warnings_for,
)
from pilotage.store import submissions as rows
from pilotage.store.transaction import Transaction
from pilotage.wire.limits import Digest
from pilotage.wire.people import Parameters, SubmitRequest, SubmitResponse, UploadedInput

router = APIRouter(prefix="/v1", tags=["submission"], route_class=CheckedRoute)


@router.post("/submissions")
async def submit(
    body: SubmitRequest, context: Context = Depends(context_of), caller: Caller = Depends(caller_of)
) -> SubmitResponse:
    """Accept jobs. Answered when all of them wait in their task queue."""
    context.sandbox.check_space()
    with context.bulk.place():
        accepting = Accepting.of(await asyncio.to_thread(prepare, context, caller, body))
        submission = await _accept(context, accepting)
        await context.bulk.make(context.pool, Making(submission.id))
    context.wake_director.set()
    return response(submission)


async def _accept(context: Context, accepting: Accepting) -> rows.Submission:
    """Store all of it. What was stored of one that then cannot be is taken back."""
    pool, clock = context.pool, context.clock
    try:
        while True:
            submission = await context.bulk.write(lambda tx: accepting.step(pool, tx, clock()))
            if submission is not None:
                return submission
    except BaseException:
        if accepting.submission is not None:
            await asyncio.shield(forget_staged(context, accepting.submission.id))
        raise


def prepare(context: Context, caller: Caller, body: SubmitRequest) -> Prepared:
    """Read and check a submission; nothing is stored."""
    return prepared_of(context, caller, _read(body), body.group, body.key, body.inputs)


def prepared_of(
    context: Context,
    caller: Caller,
    submission: Submission,
    group: str,
    key: str,
    uploaded: Sequence[UploadedInput],
    expected: int | None = None,
) -> Prepared:
    """Check what was read against the policy and the files that this caller has uploaded."""
    policy = context.pool.policy
    group = group or caller.group
    user = policy.users.get(caller.user)
    if user is None:
        raise Forbidden(f"the policy has no user {caller.user}", hint="add [users.NAME] and apply the policy")
    if group not in user.groups:
        raise Forbidden(f"{caller.user} is not in group {group}", hint="`pilotage whoami` shows your group")
    description = submission.description
    check_places(description, policy)
    connection = context.readers.connection()
    inputs = resolve_inputs(
        description, uploaded, lambda digest: rows.upload_size(connection, caller.user, digest), policy
    )
    warnings = tuple(warnings_for(description, policy, context.capacity))
    return Prepared(
        owner=caller.user,
        group=group,
        key=key,
        description=description,
        names=submission.names,
        rows=submission.parameters,
        inputs=inputs,
        identity=identity_of(description, caller.user, group, policy),
        warnings=warnings,
        expected=expected,
    )


def _read(body: SubmitRequest) -> Submission:
    given = [kind for kind in ("description", "jdl", "yaml") if getattr(body, kind) is not None]
    if len(given) != 1:
        raise InvalidInput("give exactly one of description, jdl and yaml")
    if body.parameters is not None and body.description is None:
        raise InvalidInput("parameters go with description; JDL and YAML carry their own")
    if body.jdl is not None:
        return parse_jdl(body.jdl)
    if body.yaml is not None:
        return from_yaml(body.yaml)
    assert body.description is not None
    mapping = dict(body.description)
    if body.parameters is not None and body.parameters.names:
        mapping["parameters"] = _columns(body.parameters)
    return parse_yaml_mapping(mapping)


def _columns(parameters: Parameters) -> dict[str, list[Any]]:
    width = len(parameters.names)
    for place, row in enumerate(parameters.rows):
        if len(row) != width:
            raise InvalidInput(f"row {place} of the parameters has {len(row)} values for {width} names")
    return {name: [row[k] for row in parameters.rows] for k, name in enumerate(parameters.names)}


@router.head("/uploads/{digest}")
def known(
    digest: Digest, context: Context = Depends(context_of), caller: Caller = Depends(caller_of)
) -> Response:
    """204 if this owner has uploaded the file before."""
    size = rows.upload_size(context.readers.connection(), caller.user, digest)
    there = size is not None and context.sandbox.input_path(digest).exists()
    return Response(status_code=204 if there else 404)


@router.put("/uploads/{digest}", status_code=201)
async def upload(
    digest: Digest,
    request: Request,
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> Response:
    """Store one input file under its SHA-256."""
    context.sandbox.check_space()
    most = context.pool.policy.jobs.max_input_file
    size = await context.sandbox.put_input(digest, request.stream(), most)
    now = context.clock()

    def note(tx: Transaction) -> None:
        # An upload of before of the same bytes may have been removed as too old just now, file and all.
        if not context.sandbox.input_path(digest).exists():
            raise Overloaded("the file could not be kept", hint="send it again", retry_after=1.0)
        rows.note_upload(tx.connection, caller.user, digest, size, now)

    await context.writer.acall(note)
    body = msgspec.json.encode({"digest": digest, "size": size})
    return Response(body, 201, media_type="application/json")
