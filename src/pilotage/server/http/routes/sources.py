"""Route for the source of a submission: its owner can submit it again."""

from __future__ import annotations

import json

from pilotage.core.errors import Conflict
from pilotage.core.ids import SubmissionId
from pilotage.server.http.call_router import CallRouter
from pilotage.server.http.callers import TheCaller, TheContext
from pilotage.server.http.routes.jobs import selection_of
from pilotage.services.submission.chunked import owned_submission
from pilotage.store.tables import listing
from pilotage.store.tables import submissions as rows
from pilotage.wire import limits
from pilotage.wire.submissions import SHOW_SOURCE, JobValues, SourceQuery, SubmissionSource, UploadedInput

router = CallRouter("submission")


@router.call(SHOW_SOURCE)
def source(
    submission_id: limits.Id, asked: SourceQuery, context: TheContext, caller: TheCaller
) -> SubmissionSource:
    """The submitted description, and a page of the selected jobs with their parameter values. Owners only.

    The jobs of a request are made again by the request alone: outside of it, their input would be processed twice.
    """
    connection = context.readers.connection()
    record = owned_submission(rows.by_id(connection, SubmissionId(submission_id)), submission_id, caller.user)
    if record.request is not None:
        raise Conflict(
            f"the jobs of submission {submission_id} work for request {record.request}",
            hint=f"`pilotage request resubmit {record.request}` makes its failed parts again",
        )
    own_selection = listing.restrict_to_submission(selection_of(asked), submission_id)
    ids = listing.job_ids(connection, own_selection, caller.viewer(), asked.after, asked.limit)
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
        next=ids[-1] if len(ids) == asked.limit else None,
    )
