"""Route for the source of a submission: its owner can submit it again."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from pilotage.core.ids import SubmissionId
from pilotage.server.context import Context
from pilotage.server.http.callers import caller_of, context_of
from pilotage.server.http.edge import CheckedRoute
from pilotage.server.http.routes.jobs import selection_of
from pilotage.server.tokens import Caller
from pilotage.services.submission.chunked import owned_submission
from pilotage.store.tables import listing
from pilotage.store.tables import submissions as rows
from pilotage.store.tables.selections import JobSelection
from pilotage.wire import limits
from pilotage.wire.limits import MAX_PAGE
from pilotage.wire.submissions import JobValues, SubmissionSource, UploadedInput

router = APIRouter(prefix="/v1/submissions", tags=["submission"], route_class=CheckedRoute)


@router.get("/{submission_id}/source")
def source(
    submission_id: Annotated[limits.Id, Path()],
    selection: JobSelection = Depends(selection_of),
    after: limits.Cursor = 0,
    limit: int = Query(100, ge=1, le=MAX_PAGE),
    context: Context = Depends(context_of),
    caller: Caller = Depends(caller_of),
) -> SubmissionSource:
    """The submitted description, and a page of the selected jobs with their parameter values. Owners only."""
    connection = context.readers.connection()
    record = owned_submission(rows.by_id(connection, SubmissionId(submission_id)), submission_id, caller.user)
    own_selection = listing.restrict_to_submission(selection, submission_id)
    ids = listing.job_ids(connection, own_selection, caller.viewer(), after, limit)
    values = listing.parameters_of(connection, ids)
    copies = [item for item in json.loads(record.inputs) if item["mode"] == "copy"]
    return SubmissionSource(
        submission=submission_id,
        group=record.group,
        description=json.loads(record.description),
        names=list(record.names),
        inputs=[
            UploadedInput(item["name"], item["source"], item["size"], item["executable"]) for item in copies
        ],
        jobs=[JobValues(id_, values[id_]) for id_ in ids if id_ in values],
        next=ids[-1] if len(ids) == limit else None,
    )
