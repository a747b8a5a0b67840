"""Methods of the client for requests."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage import wire
from pilotage.client.answers import decode
from pilotage.client.polling import PollInterval
from pilotage.client.typed_requests import TypedRequests
from pilotage.core.requests.states import ENDED
from pilotage.wire.limits import MAX_PAGE

if TYPE_CHECKING:
    from pilotage.client.inputs import Progress
    from pilotage.client.request_files import RequestUpload
    from pilotage.wire.request_why import RequestWhy
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


class RequestMethods(TypedRequests):
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
        answer = self._transport.request("POST", "/v1/requests", json=prepared.body, idempotent=True)
        return decode(answer.content, wire.requests.RequestAccepted)

    def check_request(self, prepared: RequestUpload) -> RequestCheck:
        """Return the size and the warnings of a request; nothing is stored or sent."""
        return self._post("/v1/requests/check", prepared.body, wire.requests.RequestCheck)

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
        asked: dict[str, Any] = {"limit": MAX_PAGE, "states": list(states) or None}
        asked |= {"owner": owner, "team": team, "campaign": campaign, "name": name}
        while True:
            query = {key: value for key, value in asked.items() if value}
            answer = self._get("/v1/requests", wire.requests.RequestsPage, query)
            yield from answer.requests
            if answer.next is None:
                return
            asked["before"] = answer.next

    def request(self, request: int) -> RequestDetail:
        """Return one request with its elements, jobs, sites and errors. Raises NotFound."""
        return self._get(f"/v1/requests/{request}", wire.requests.RequestDetail)

    def request_history(self, request: int) -> Iterator[RequestEvent]:
        """Iterate over the events of a request, oldest first."""
        query: dict[str, Any] = {"limit": MAX_PAGE}
        while True:
            answer = self._get(f"/v1/requests/{request}/history", wire.requests.RequestHistory, query)
            yield from answer.events
            if answer.next is None:
                return
            query["after"] = answer.next

    def request_elements(
        self, request: int, *, states: Sequence[str] = (), step: str = "", unchanged: float = 0.0
    ) -> Iterator[RequestElement]:
        """Iterate over the elements of a request by id. `unchanged`: the least number of seconds in their state.

        Raises NotFound for an unknown request or step, InvalidInput for an unknown state.
        """
        asked: dict[str, Any] = {
            "limit": MAX_PAGE,
            "states": list(states),
            "step": step,
            "unchanged": unchanged,
        }
        query = {key: value for key, value in asked.items() if value}
        while True:
            answer = self._get(f"/v1/requests/{request}/elements", wire.requests.ElementsPage, query)
            yield from answer.elements
            if answer.next is None:
                return
            query["after"] = answer.next

    def wait_for_request(
        self,
        request: int,
        *,
        timeout: float | None = None,
        progress: Callable[[RequestDetail], None] | None = None,
    ) -> RequestDetail:
        """Wait until a request has ended, or `timeout` seconds have passed; return its last state."""
        pace = PollInterval(0.2, 5.0)
        until = None if timeout is None else time.monotonic() + timeout
        before: RequestDetail | None = None
        while True:
            detail = self.request(request)
            if progress and detail != before:
                progress(detail)
            left = None if until is None else until - time.monotonic()
            if detail.request.state in ENDED_STATES or (left is not None and left <= 0):
                return detail
            pace.pause(detail != before, at_most=left)
            before = detail

    def approve_request(self, request: int, reason: str = "") -> RequestSummary:
        """Approve a new request; one with a team is assigned too. Needs PRODUCTION_MANAGEMENT."""
        return self._change(request, "approve", wire.requests.RequestChange(reason))

    def reject_request(self, request: int, reason: str = "") -> RequestSummary:
        """Refuse a request, or the result of one that has ended. Needs PRODUCTION_MANAGEMENT."""
        return self._change(request, "reject", wire.requests.RequestChange(reason))

    def assign_request(self, request: int, assignment: RequestAssignment) -> RequestSummary:
        """Give a request a team, lists of sites, splittings and resources. Needs PRODUCTION_MANAGEMENT."""
        return self._change(request, "assign", assignment)

    def set_request_priority(self, request: int, priority: int, reason: str = "") -> RequestSummary:
        """Change the priority of a request; its waiting jobs follow."""
        return self._change(request, "priority", wire.requests.RequestPriority(priority, reason))

    def set_request_sites(self, request: int, sites: RequestSites) -> RequestSummary:
        """Change the lists of sites and the trust flags of a request; its waiting jobs follow."""
        return self._change(request, "sites", sites)

    def pause_request(self, request: int, reason: str = "") -> RequestSummary:
        """Give no more elements of a request to agents, and release no more jobs. Jobs in the pool go on."""
        return self._change(request, "pause", wire.requests.RequestChange(reason))

    def resume_request(self, request: int, reason: str = "") -> RequestSummary:
        """End the pause of a request."""
        return self._change(request, "resume", wire.requests.RequestChange(reason))

    def abort_request(self, request: int, reason: str = "") -> RequestSummary:
        """End a request; its elements and jobs are cancelled."""
        return self._change(request, "abort", wire.requests.RequestChange(reason))

    def force_complete_request(self, request: int, reason: str = "") -> RequestSummary:
        """End a request early: jobs that are done count, the others are cancelled."""
        return self._change(request, "force-complete", wire.requests.RequestChange(reason))

    def close_out_request(self, request: int, reason: str = "") -> RequestSummary:
        """Accept the result of a completed request. Needs PRODUCTION_MANAGEMENT."""
        return self._change(request, "close-out", wire.requests.RequestChange(reason))

    def announce_request(self, request: int, reason: str = "") -> RequestSummary:
        """Tell that the accepted result of a request is there. Needs PRODUCTION_MANAGEMENT."""
        return self._change(request, "announce", wire.requests.RequestChange(reason))

    def archive_request(self, request: int, reason: str = "") -> RequestSummary:
        """Walk an ended request to its archived state."""
        return self._change(request, "archive", wire.requests.RequestChange(reason))

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
        return self._change(request, "clone", body)

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
        return self._post(f"/v1/requests/{request}/resubmit", body, wire.requests.ResubmissionAccepted)

    def _sent(self, programs: Mapping[str, Path | str] | None) -> list[UploadedInput]:
        """Upload files, by the name of the file that each replaces."""
        from pilotage.client.inputs import gather_files, upload

        files = gather_files((name, Path(path)) for name, path in (programs or {}).items())
        if files:
            upload(self._transport, files)
        return [file.uploaded() for file in files]

    def why_request(self, request: int) -> RequestWhy:
        """Explain why a request is not further: each site's conditions, and changes that help. Raises NotFound."""
        return self._get(f"/v1/requests/{request}/why", wire.request_why.RequestWhy)

    def why_element(self, element: int) -> RequestWhy:
        """Explain why an element of a request is not further. Raises NotFound."""
        return self._get(f"/v1/elements/{element}/why", wire.request_why.RequestWhy)

    def _change(self, request: int, verb: str, body: object) -> RequestSummary:
        return self._post(f"/v1/requests/{request}/{verb}", body, wire.requests.RequestSummary)
