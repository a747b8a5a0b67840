"""The route to submit several submissions that depend on each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.dependencies import EACH
from pilotage.core.jobs.description import MAX_JOBS, validate_description
from pilotage.core.jobs.graphs import FIELDS, NamedJob, order_jobs, with_ids
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
    NamedSubmission,
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
        for part in prepared:
            ids = {name: response.submission for name, response in accepted.items()}
            parents: dict[str, Any] = {**with_ids(part.job, ids)}
            described = validate_description(replace(part.submission.description, **parents))
            accepted[part.job.name] = await accept_prepared(
                context, replace(part.submission, description=described)
            )
    context.wake.local_ces.set()
    return GraphResponse([accepted[job.name] for job in body.submissions])


def _prepare(
    context: Context, caller: Caller, body: GraphRequest, known_offers: Sequence[KnownOffer]
) -> list[_Prepared]:
    """All submissions, parsed and checked, each after its parents."""
    named: dict[str, NamedJob] = {}
    given: dict[str, NamedSubmission] = {}
    for sent in body.submissions:
        if not sent.name or sent.name in given or not sent.key:
            raise InvalidInput("each submission of a graph needs a key, and a name of its own", field="name")
        if sent.description is None or any(field in sent.description for field in FIELDS):
            raise InvalidInput(
                f"submission {sent.name} needs a description, and its parents beside it", field="description"
            )
        given[sent.name] = sent
        parents = {field: tuple(getattr(sent, field)) for field in FIELDS if getattr(sent, field)}
        named[sent.name] = NamedJob(sent.name, {}, parents)
    ordered = order_jobs(named)
    parts = [_Prepared(job, prepare(context, caller, given[job.name], known_offers)) for job in ordered]
    _check_counts(parts)
    return parts


def _check_counts(parts: Sequence[_Prepared]) -> None:
    counts = {part.job.name: part.submission.count for part in parts}
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
