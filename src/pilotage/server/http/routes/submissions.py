"""Routes to submit and check jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pilotage.core.errors import Forbidden, InvalidInput
from pilotage.core.jobs.description import Submission
from pilotage.core.jobs.jdl import parse_jdl
from pilotage.core.jobs.parsers import from_yaml, parse_yaml_mapping
from pilotage.core.jobs.trace import with_trace
from pilotage.core.plurals import plural
from pilotage.core.policy import Policy
from pilotage.core.queues.offer_history import KnownOffer
from pilotage.server.context import Context
from pilotage.server.duties.startup import forget_staged
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.spans import present_header
from pilotage.server.tokens import Caller
from pilotage.services.submission.accept import (
    ChunkedInsert,
    PreparedSubmission,
    check_acceptable,
    check_per_job_files,
    check_places,
    identity_of,
    resolve_inputs,
    response,
)
from pilotage.services.submission.job_creation import JobCreator
from pilotage.services.submission.mails import mail_warnings
from pilotage.services.submission.quota import jobs_of
from pilotage.services.submission.warnings import submission_warnings
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import ces
from pilotage.store.tables import submissions as rows
from pilotage.store.writer.transaction import LockingRequest, Transaction
from pilotage.telemetry.tracer import child_span
from pilotage.wire.submissions import (
    CHECK_SUBMISSION,
    SUBMIT,
    Parameters,
    SubmissionCheck,
    SubmitRequest,
    SubmitResponse,
    UploadedInput,
)

router = CallRouter("submission")


@router.call(SUBMIT)
async def submit(body: SubmitRequest, context: TheContext, caller: TheCaller) -> SubmitResponse:
    """Accept jobs. The answer is sent when all of them wait in their task queue."""
    return await accept_jobs(body, context, caller)


async def accept_jobs(body: SubmitRequest, context: Context, caller: Caller) -> SubmitResponse:
    """Accept jobs, and make them."""
    context.disk.space.check()
    with context.work.gate.place():
        known_offers = await context.work.prospects.known()
        prepared = await asyncio.to_thread(lambda: prepare(context, caller, body, known_offers))
        answer = await accept_prepared(context, prepared)
    context.wake.local_ces.set()
    return answer


async def accept_prepared(context: Context, prepared: PreparedSubmission) -> SubmitResponse:
    """Store a checked submission, and make its jobs."""
    insert = await asyncio.to_thread(ChunkedInsert.of, prepared, context.work.gate.pace)
    submission = await _insert(context, insert)
    if not insert.has_jobs:
        with child_span("create jobs"):
            await context.work.gate.make(context.pool, JobCreator(submission.id))
    return response(submission)


async def _insert(context: Context, insert: ChunkedInsert) -> rows.SubmissionRow:
    """Store the whole submission. If that fails, remove the rows stored so far."""
    pool, clock, gate = context.pool, context.clock, context.work.gate

    def step(tx: Transaction) -> rows.SubmissionRow | None:
        return insert.step(pool, tx, clock())

    try:
        with child_span("transaction"):
            submission = await gate.write(LockingRequest(jobs_of(insert.prepared.owner), step))
        while submission is None:
            with child_span("transaction"):
                submission = await gate.write(step)
        return submission
    except BaseException:
        if insert.submission is not None:
            await asyncio.shield(forget_staged(context, insert.submission.id))
        raise


@router.call(CHECK_SUBMISSION)
async def check(body: SubmitRequest, context: TheContext, caller: TheCaller) -> SubmissionCheck:
    """The errors and warnings of a submission; nothing is stored. Its files need not be uploaded."""
    known_offers = await context.work.prospects.known()
    prepared = await asyncio.to_thread(prepare, context, caller, body, known_offers, trial=True)
    return await check_prepared(context, prepared)


async def check_prepared(context: Context, prepared: PreparedSubmission) -> SubmissionCheck:
    """Check a prepared submission against the store as well."""
    pool, clock = context.pool, context.clock
    context.disk.space.check()
    await context.writer.acall(lambda tx: check_acceptable(pool, tx, prepared, clock()))
    return SubmissionCheck(prepared.expected or prepared.count, list(prepared.warnings))


def prepare(
    context: Context,
    caller: Caller,
    body: SubmitRequest,
    known_offers: Sequence[KnownOffer],
    *,
    trial: bool = False,
) -> PreparedSubmission:
    """Read and check a submission; nothing is stored."""
    sent = SubmissionInput(_parse(body), body.group, body.key, body.inputs)
    return prepare_submission(context, caller, sent, known_offers, trial=trial)


@dataclass(frozen=True, slots=True)
class SubmissionInput:
    """A parsed submission, with the other fields of its request."""

    submission: Submission
    group: str
    key: str
    uploaded: Sequence[UploadedInput]
    expected: int | None = None
    """For rows in chunks: the announced maximum number of rows, if any."""


def prepare_submission(
    context: Context,
    caller: Caller,
    sent: SubmissionInput,
    known_offers: Sequence[KnownOffer],
    *,
    trial: bool = False,
) -> PreparedSubmission:
    """Check a submission against the policy and the files that this caller has uploaded.

    With `trial` files may be missing: their announced sizes count.
    """
    policy = context.pool.policy
    group = group_of(policy, caller, sent.group)
    submission, description = sent.submission, with_trace(sent.submission.description, present_header())
    check_places(description, policy)
    connection = context.readers.connection()
    announced = {item.digest: item.size for item in sent.uploaded} if trial else {}
    size_of = size_reader(connection, caller.user, announced)
    inputs = resolve_inputs(description, submission.names, sent.uploaded, size_of, policy)
    if not trial:
        common = sum(item.size for item in inputs)
        sizes_of = partial(rows.upload_sizes, connection, caller.user)
        check_per_job_files(description, submission.names, submission.parameters, common, sizes_of, policy)
    identity = identity_of(description, caller.user, group, policy)
    return PreparedSubmission(
        owner=caller.user,
        group=group,
        key=sent.key,
        description=description,
        names=submission.names,
        rows=submission.parameters,
        inputs=inputs,
        identity=identity,
        warnings=(
            *submission_warnings(
                description, submission.names, identity, policy, known_offers, ces.switched_off(connection)
            ),
            *mail_warnings(policy, description, caller.user),
        ),
        expected=sent.expected,
    )


def size_reader(
    connection: Connection, user: str, announced: Mapping[str, int]
) -> Callable[[str], int | None]:
    """Tells the size of an uploaded file of the user. A missing one has its announced size."""

    def size_of(digest: str) -> int | None:
        size = rows.upload_size(connection, user, digest)
        return announced.get(digest) if size is None else size

    return size_of


def group_of(policy: Policy, caller: Caller, wanted: str) -> str:
    """The group to submit as. Raises Forbidden if the caller is not in it."""
    group = wanted or caller.group
    user = policy.users.get(caller.user)
    if user is None:
        raise Forbidden(f"the policy has no user {caller.user}", hint="add [users.NAME] and apply the policy")
    if group not in user.groups:
        raise Forbidden(f"{caller.user} is not in group {group}", hint="`pilotage whoami` shows your group")
    return group


def _parse(body: SubmitRequest) -> Submission:
    sent = [kind for kind in ("description", "jdl", "yaml") if getattr(body, kind) is not None]
    if len(sent) != 1:
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
            raise InvalidInput(
                f"row {place} of the parameters has {plural(len(row), 'value')} for {plural(width, 'name')}"
            )
    return {name: [row[k] for row in parameters.rows] for k, name in enumerate(parameters.names)}
