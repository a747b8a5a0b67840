"""Methods of the client for requests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage import wire
from pilotage.client.changes import ChangeCursor, ChangeMethods
from pilotage.client.typed_requests import verb_on
from pilotage.core.requests.states import ENDED
from pilotage.wire.limits import LONGEST_POLL
from pilotage.wire.queries import PageQuery

if TYPE_CHECKING:
    from pilotage.client.inputs import Progress
    from pilotage.client.request_files import RequestUpload
    from pilotage.wire.requests import (
        RequestAccepted,
        RequestAssignment,
        RequestCheck,
        RequestClone,
        RequestDetail,
        RequestElement,
        RequestEvent,
        RequestSites,
        RequestSummary,
        ResubmissionAccepted,
        StepChange,
    )
    from pilotage.wire.submissions import UploadedInput

ENDED_STATES = frozenset(str(state) for state in ENDED)


PROGRESS_PERIOD = 5.0
"""Seconds between two looks at the jobs of a request, whose numbers no change of the request tells."""


class RequestMethods(ChangeMethods):
    """Methods of the client that submit, show and change requests."""

    def submit_request(
        self,
        request: Mapping[str, Any] | Path | str,
        *,
        key: str = "",
        confirmed: bool = False,
        strict: bool = False,
    ) -> RequestAccepted:
        """Submit a request: a file (TOML, YAML or JSON), or a mapping with the same names.

        `key` identifies the request: sent again it is not stored twice. `confirmed` accepts one with very many jobs,
        `strict` refuses one whose data is at none of its sites. Raises InvalidInput, Conflict.
        """
        from pilotage.client.request_files import prepare_request, read_request_file

        mapping, folder = (
            (request, Path()) if isinstance(request, Mapping) else read_request_file(Path(request))
        )
        prepared = prepare_request(mapping, folder, key=key, confirmed=confirmed, strict=strict)
        return self.send_request(prepared)

    def send_request(self, prepared: RequestUpload, progress: Progress | None = None) -> RequestAccepted:
        """Upload the files of a prepared request, and submit it."""
        from pilotage.client.inputs import upload

        if prepared.files:
            upload(self._transport, prepared.files, progress)
        return self.call(wire.requests.SUBMIT_REQUEST, prepared.body)

    def check_request(self, prepared: RequestUpload) -> RequestCheck:
        """Return the size and the warnings of a request; nothing is stored or sent."""
        return self.call(wire.requests.CHECK_REQUEST, prepared.body)

    def requests(
        self,
        *,
        states: Sequence[str] = (),
        owner: str = "",
        team: str = "",
        campaign: str = "",
        name: str = "",
    ) -> Iterator[RequestSummary]:
        """Iterate over the requests that you may see, newest first."""
        asked = wire.requests.RequestsQuery(list(states) or None, owner, team, campaign, name)
        return self._pages(
            wire.requests.LIST_REQUESTS, asked, lambda answer: answer.requests, cursor="before"
        )

    request = verb_on(lambda: wire.requests.SHOW_REQUEST)

    def request_history(self, request: int) -> Iterator[RequestEvent]:
        """Iterate over the events of a request, oldest first."""
        return self._pages(
            wire.requests.SHOW_HISTORY, PageQuery(), lambda answer: answer.events, request=request
        )

    def request_elements(
        self, request: int, *, states: Sequence[str] = (), step: str = "", unchanged: float = 0.0
    ) -> Iterator[RequestElement]:
        """Iterate over the elements of a request by id. `unchanged`: the least number of seconds in their state.

        Raises NotFound for an unknown request or step, InvalidInput for an unknown state.
        """
        asked = wire.requests.ElementsQuery(states=list(states) or None, step=step, unchanged=unchanged)
        return self._pages(
            wire.requests.LIST_ELEMENTS, asked, lambda answer: answer.elements, request=request
        )

    def wait_for_request(
        self,
        request: int,
        *,
        timeout: float | None = None,
        progress: Callable[[RequestDetail], None] | None = None,
    ) -> RequestDetail:
        """Wait until a request has ended, or `timeout` seconds have passed; return its last state."""
        feed = ChangeCursor(self.read_changes, request=request)
        longest = LONGEST_POLL if progress is None else PROGRESS_PERIOD
        until = None if timeout is None else time.monotonic() + timeout
        before: RequestDetail | None = None
        while True:
            detail = self.request(request)
            if progress and detail != before:
                progress(detail)
            left = None if until is None else until - time.monotonic()
            if detail.request.state in ENDED_STATES or (left is not None and left <= 0):
                return detail
            before = detail
            feed.await_change(longest if left is None else min(left, longest))

    approve_request = verb_on(lambda: wire.requests.APPROVE_REQUEST)

    reject_request = verb_on(lambda: wire.requests.REJECT_REQUEST)

    def assign_request(self, request: int, assignment: RequestAssignment) -> RequestSummary:
        """Give a request a team, lists of sites, splittings and resources. Needs PRODUCTION_MANAGEMENT."""
        return self.call(wire.requests.ASSIGN_REQUEST, assignment, request=request)

    set_request_priority = verb_on(lambda: wire.requests.SET_REQUEST_PRIORITY)

    def set_request_sites(self, request: int, sites: RequestSites) -> RequestSummary:
        """Change the lists of sites and the trust flags of a request; its waiting jobs follow."""
        return self.call(wire.requests.SET_REQUEST_SITES, sites, request=request)

    pause_request = verb_on(lambda: wire.requests.PAUSE_REQUEST)

    resume_request = verb_on(lambda: wire.requests.RESUME_REQUEST)

    abort_request = verb_on(lambda: wire.requests.ABORT_REQUEST)

    force_complete_request = verb_on(lambda: wire.requests.FORCE_COMPLETE_REQUEST)

    close_out_request = verb_on(lambda: wire.requests.CLOSE_OUT_REQUEST)

    announce_request = verb_on(lambda: wire.requests.ANNOUNCE_REQUEST)

    archive_request = verb_on(lambda: wire.requests.ARCHIVE_REQUEST)

    def clone_request(
        self,
        request: int,
        changes: RequestClone | None = None,
        *,
        programs: Mapping[str, Path | str] | None = None,
    ) -> RequestSummary:
        """Submit a request again, with some facts changed; return the new request. Its outputs get new names.

        `programs`: as for `resubmit_request`.
        """
        body = changes or wire.requests.RequestClone()
        body = replace(body, key=body.key or str(uuid.uuid4()), inputs=self._sent(programs))
        return self.call(wire.requests.CLONE_REQUEST, body, request=request)

    def resubmit_request(
        self,
        request: int,
        *,
        key: str = "",
        programs: Mapping[str, Path | str] | None = None,
        steps: StepChange | None = None,
    ) -> ResubmissionAccepted:
        """Make the failed parts of an ended request again; return the new request.

        `programs`: local files that replace the files of these names in the programs of all steps.
        `steps`: other resources; a resubmission keeps the splitting.
        Parts that another resubmission does or has done are left out. Raises Conflict if no part remains.
        """
        body = wire.requests.RequestResubmission(
            key or str(uuid.uuid4()), self._sent(programs), steps or wire.requests.StepChange()
        )
        return self.call(wire.requests.RESUBMIT_REQUEST, body, request=request)

    def _sent(self, programs: Mapping[str, Path | str] | None) -> list[UploadedInput]:
        """Upload files, by the name of the file that each replaces."""
        from pilotage.client.inputs import gather_files, upload

        files = gather_files((name, Path(path)) for name, path in (programs or {}).items())
        if files:
            upload(self._transport, files)
        return [file.uploaded() for file in files]

    why_request = verb_on(lambda: wire.request_why.WHY_REQUEST)

    why_element = verb_on(lambda: wire.request_why.WHY_ELEMENT)
