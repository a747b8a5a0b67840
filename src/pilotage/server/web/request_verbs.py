"""The verbs of requests on pages: when they are possible, their words, and the call that carries one out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pilotage.core.errors import InvalidInput
from pilotage.core.policy.model import ADMINISTRATOR, PRODUCTION_MANAGEMENT
from pilotage.core.requests.states import EDITABLE, ENDED, REQUEST_STATES, RequestState
from pilotage.server.tokens import Caller
from pilotage.server.web.forms import SentForm
from pilotage.wire.call import ApiCall
from pilotage.wire.requests import (
    ABORT_REQUEST,
    ANNOUNCE_REQUEST,
    APPROVE_REQUEST,
    ARCHIVE_REQUEST,
    ASSIGN_REQUEST,
    CLOSE_OUT_REQUEST,
    FORCE_COMPLETE_REQUEST,
    PAUSE_REQUEST,
    REJECT_REQUEST,
    RESUBMIT_REQUEST,
    RESUME_REQUEST,
    SET_REQUEST_PRIORITY,
    RequestAssignment,
    RequestChange,
    RequestPriority,
    RequestSummary,
)
from pilotage.wire.submissions import UploadedInput

_ARCHIVED = (RequestState.NORMAL_ARCHIVED, RequestState.ABORTED_ARCHIVED, RequestState.REJECTED_ARCHIVED)


@dataclass(frozen=True, slots=True)
class RequestVerb:
    """One verb."""

    words: str
    effect: str
    call: ApiCall[Any, Any]
    managers: bool = False
    """Only production managers have the right."""
    danger: bool = False
    input: str = ""
    """The words of the value that it needs besides a reason."""
    file: str = ""
    """The words of the files that it may be given. Such a verb takes no reason."""


VERBS = {
    "approve": RequestVerb("Approve", "It may get a team; with a team it gets work.", APPROVE_REQUEST, True),
    "assign": RequestVerb("Assign", "The agents of the team get its work.", ASSIGN_REQUEST, input="Team"),
    "pause": RequestVerb(
        "Pause", "Agents get none of its elements, and none of its made jobs are released.", PAUSE_REQUEST
    ),
    "resume": RequestVerb("Resume", "Its pause ends.", RESUME_REQUEST),
    "priority": RequestVerb(
        "Change the priority", "Its waiting jobs follow.", SET_REQUEST_PRIORITY, input="Priority"
    ),
    "resubmit": RequestVerb(
        "Run the failed parts again",
        "A new request makes the jobs that failed for good, and the elements that could not be split.",
        RESUBMIT_REQUEST,
        input="Name of the program's file that the sent one replaces; empty: the same name",
        file="Mended files of the program, if there are any",
    ),
    "close-out": RequestVerb("Close out", "Its result is accepted.", CLOSE_OUT_REQUEST, True),
    "announce": RequestVerb("Announce", "Its accepted result is made known.", ANNOUNCE_REQUEST, True),
    "archive": RequestVerb("Archive", "It is kept for the record only.", ARCHIVE_REQUEST),
    "force-complete": RequestVerb(
        "Complete now",
        "Jobs that are done count, the others are cancelled.",
        FORCE_COMPLETE_REQUEST,
        danger=True,
    ),
    "reject": RequestVerb("Reject", "It is refused, or its result is.", REJECT_REQUEST, True, danger=True),
    "abort": RequestVerb("Abort", "Its elements and jobs are cancelled.", ABORT_REQUEST, danger=True),
}


def possible_verbs(request: RequestSummary, caller: Caller) -> dict[str, RequestVerb]:
    """The verbs that a request in this state takes, and that the user has the right to."""
    state = RequestState(request.state)
    manages = bool(caller.properties & {ADMINISTRATOR, PRODUCTION_MANAGEMENT})
    following, pausable = REQUEST_STATES.rows[state].next, state in EDITABLE["pause"]
    failed = request.failed_jobs + request.failed_elements > 0
    possible = {
        "approve": state is RequestState.NEW,
        "assign": manages and state in EDITABLE["team"],
        "pause": pausable and not request.paused,
        "resume": request.paused,
        "priority": state in EDITABLE["priority"],
        "resubmit": state in ENDED and failed,
        "close-out": RequestState.CLOSED_OUT in following,
        "announce": RequestState.ANNOUNCED in following,
        "archive": state in ENDED and state is not RequestState.FAILED and state not in _ARCHIVED,
        "force-complete": RequestState.FORCE_COMPLETE in following,
        "reject": RequestState.REJECTED in following,
        "abort": RequestState.ABORTED in following,
    }
    return {name: verb for name, verb in VERBS.items() if possible[name] and (manages or not verb.managers)}


def sent_programs(form: SentForm) -> list[tuple[UploadedInput, bytes]]:
    """The mended files of a resubmission, by the name of the file that each replaces."""
    inner = form.fields.get("value", "").strip()
    if inner and len(form.files) != 1:
        raise InvalidInput("a name is for one file", hint="send one file, or leave the name empty")
    programs = [
        (UploadedInput(inner or file.name, hashlib.sha256(file.data).hexdigest(), len(file.data)), file.data)
        for file in form.files
    ]
    twice = [name for name, count in Counter(file.name for file, _ in programs).items() if count > 1]
    if twice:
        raise InvalidInput(f"two files have the name {twice[0]}", hint="send one file for each name")
    return programs


def asked_of(name: str, form: Mapping[str, str]) -> object:
    """The message of a verb, from the fields of its form."""
    reason, value = form.get("reason", "").strip(), form.get("value", "").strip()
    if name == "assign":
        return RequestAssignment(team=value, reason=reason)
    if name != "priority":
        return RequestChange(reason)
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise InvalidInput("the priority is not a number", hint="0 to 999999")
    return RequestPriority(int(value), reason)
