"""The route to submit several submissions that depend on each other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.dependencies import EACH
from pilotage.core.jobs.description import MAX_JOBS, JobDescription, validate_description
from pilotage.core.jobs.graphs import (
    FIELDS,
    AcceptedName,
    NamedJob,
    check_sources,
    inputs_with_ids,
    order_jobs,
    sources_of,
    with_ids,
)
from pilotage.core.queues.offer_history import KnownOffer
from pilotage.server.context import Context
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.routes.submissions import accept_prepared, prepare
from pilotage.server.tokens import Caller
from pilotage.services.submission.accept import PreparedSubmission
from pilotage.wire.submissions import (
    SUBMIT_GRAPH,
    GraphRequest,
    GraphResponse,
    SubmitResponse,
)

router = CallRouter("graph")


@dataclass(frozen=True, slots=True)
class _Prepared:
    job: NamedJob
    submission: PreparedSubmission


@router.call(SUBMIT_GRAPH)
async def submit_graph(body: GraphRequest, context: TheContext, caller: TheCaller) -> GraphResponse:
    """Accept submissions in the order of their dependencies. Each needs a key: the same call again goes on."""
    context.disk.space.check()
    with context.work.gate.place():
        known_offers = await context.work.prospects.known()
        prepared = await asyncio.to_thread(partial(_prepare, context, caller, body, known_offers))
        accepted: dict[str, SubmitResponse] = {}
        known: dict[str, AcceptedName] = {}
        for part in prepared:
            described = _with_ids(part, known)
            accepted[part.job.name] = await accept_prepared(
                context, replace(part.submission, description=described)
            )
            answer = accepted[part.job.name]
            known[part.job.name] = AcceptedName(answer.submission, answer.first)
    context.wake.local_ces.set()
    return GraphResponse([accepted[job.name] for job in body.submissions])


def _with_ids(part: _Prepared, known: Mapping[str, AcceptedName]) -> JobDescription:
    description = part.submission.description
    fields: dict[str, Any] = {**with_ids(part.job, known)}
    fields["input_sandbox"] = inputs_with_ids(description.input_sandbox, known)
    return validate_description(replace(description, **fields))


def _prepare(
    context: Context, caller: Caller, body: GraphRequest, known_offers: Sequence[KnownOffer]
) -> list[_Prepared]:
    """All submissions, parsed and checked, each after its parents."""
    named: dict[str, NamedJob] = {}
    prepared: dict[str, PreparedSubmission] = {}
    for sent in body.submissions:
        if not sent.name or sent.name in named or not sent.key:
            raise InvalidInput("each submission of a graph needs a key, and a name of its own", field="name")
        if sent.description is None or any(field in sent.description for field in FIELDS):
            raise InvalidInput(
                f"submission {sent.name} needs a description, and its parents beside it", field="description"
            )
        submission = prepared[sent.name] = prepare(context, caller, sent, known_offers)
        parents = {field: tuple(getattr(sent, field)) for field in FIELDS if getattr(sent, field)}
        sources = sources_of(submission.description.input_sandbox)
        named[sent.name] = NamedJob(sent.name, {}, parents, sources)
    parts = [_Prepared(job, prepared[job.name]) for job in order_jobs(named)]
    _check_counts(parts)
    return parts


def _check_counts(parts: Sequence[_Prepared]) -> None:
    counts = {part.job.name: part.submission.count for part in parts}
    check_sources((part.job for part in parts), counts)
    total = sum(counts.values())
    if total > MAX_JOBS:
        raise InvalidInput(f"the graph has {total:,} jobs; the limit is {MAX_JOBS:,}")
    for part in parts:
        for parent in part.job.parents.get(EACH, ()):
            if parent in counts and counts[parent] != counts[part.job.name]:
                raise InvalidInput(
                    f"{EACH}: {parent} has {counts[parent]:,} jobs, and {part.job.name} has {counts[part.job.name]:,}",
                    hint="both need the same number of jobs",
                    field=EACH,
                )
