"""The verbs of `pilotage request` that change requests, or make new ones of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.option_groups import with_option_groups
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.requests.choice import RequestChoice
from pilotage.cli.requests.lists import note_approval
from pilotage.cli.requests.step_options import StepOptions
from pilotage.cli.session import ReasonOption, Session, connected
from pilotage.core.errors import Conflict, Forbidden, InvalidInput, NotFound, PilotageError
from pilotage.core.plurals import plural
from pilotage.core.requests.states import BEFORE_INTAKE, EDITABLE, ENDED, UNFINISHED, RequestState

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.requests import RequestSummary

R = RequestState
REFUSALS = (Forbidden, NotFound, Conflict, InvalidInput)
"""Answers about one request, after which the others are tried."""

ACTS_ON: dict[str, Collection[RequestState]] = {
    "approve": (R.NEW,),
    "reject": BEFORE_INTAKE,
    "assign": (*BEFORE_INTAKE, R.FAILED),
    "priority": EDITABLE["priority"],
    "sites": EDITABLE["sites"],
    "pause": EDITABLE["pause"],
    "resume": EDITABLE["pause"],
    "abort": frozenset(UNFINISHED) - {R.ABORTED, R.FORCE_COMPLETE},
    "force-complete": (R.RUNNING_OPEN, R.RUNNING_CLOSED),
    "close-out": (R.COMPLETED,),
    "announce": (R.CLOSED_OUT,),
    "archive": ENDED - {R.FAILED, R.NORMAL_ARCHIVED, R.ABORTED_ARCHIVED, R.REJECTED_ARCHIVED},
}
"""The states in which a filter without `--state` chooses requests, by verb."""

IdsArgument = Annotated[
    list[int] | None,
    CommandArgument("Numbers of requests; none: a filter chooses them", "[REQUEST]..."),
]
KeyOption = Annotated[str, CommandOption("Submit only once with this key, however often it is sent", "TEXT")]
SitesOption = Annotated[str | None, CommandOption("Sites, separated by commas; ANY: all", "NAMES")]
BannedOption = Annotated[str | None, CommandOption("Banned sites; empty: none", "NAMES", may_be_empty=True)]
ProgramOption = Annotated[
    list[str] | None,
    CommandOption("File that replaces the program's file of its name, or of NAME: FILE=NAME", "FILE"),
]
TrustInputOption = Annotated[
    bool | None,
    CommandOption("Whether sites without the input may run it", names="--trust-input/--no-trust-input"),
]
TrustPileupOption = Annotated[
    bool | None,
    CommandOption("Whether sites without the pile-up may run it", names="--trust-pileup/--no-trust-pileup"),
]


def _act(
    session: Session,
    name: str,
    ids: list[int] | None,
    choice: RequestChoice,
    verb: Callable[[Client, int], RequestSummary],
) -> None:
    """Apply a verb to each chosen request, and show the state that it has then.

    A refusal does not keep it from the other requests. All refusals are reported together at the end.
    """
    choice.check(ids or [])
    rows: list[RequestSummary] = []
    refusals: dict[int, PilotageError] = {}
    with session.client() as client:
        numbers = choice.requests(session, client, ids or [], name, ACTS_ON[name])
        for number in numbers:
            try:
                row = verb(client, number)
            except REFUSALS as refusal:
                refusals[number] = refusal
                continue
            rows.append(row)
            state = f"{row.state}, paused" if row.paused else row.state
            session.screen.line(f"request {row.id} ({row.name}) is {state}, priority {row.priority}")
    if session.as_json and rows:
        session.screen.json({"requests": rows})
    if refusals:
        raise _one_error(refusals, len(numbers))


def _verb(
    name: str, send: Callable[[Client, int, str], RequestSummary], text: str
) -> Callable[..., int | None]:
    """The command of a verb that takes a reason only. `text`: its help."""

    def command(
        session: Session, choice: RequestChoice, ids: IdsArgument = None, reason: ReasonOption = ""
    ) -> None:
        _act(session, name, ids, choice, lambda client, number: send(client, number, reason))

    command.__name__, command.__doc__ = name, text
    return connected(with_option_groups(command))


def _one_error(refusals: dict[int, PilotageError], requests: int) -> PilotageError:
    """The error of a single request, or one with a line for each refusal. The first one decides the exit code."""
    first = next(iter(refusals.values()))
    if requests == 1:
        return first
    lines = [f"request {number}: {refusal.message}" for number, refusal in refusals.items()]
    head = f"{len(refusals):,} of {plural(requests, 'request')} {'is' if len(refusals) == 1 else 'are'} not changed:"
    return type(first)("\n  ".join([head, *lines]), hint=first.hint)


approve = _verb(
    "approve",
    lambda client, number, reason: client.approve_request(number, reason),
    "Approve new requests. A request with a team is assigned too.",
)


reject = _verb(
    "reject",
    lambda client, number, reason: client.reject_request(number, reason),
    "Refuse requests that are not assigned, or the results of ended ones.",
)


@connected
@with_option_groups
def assign(
    session: Session,
    choice: RequestChoice,
    steps: StepOptions,
    ids: IdsArgument = None,
    team: Annotated[str, CommandOption("Team of agents; otherwise the one it has", "NAME")] = "",
    sites: SitesOption = None,
    banned_sites: BannedOption = None,
    trust_input: TrustInputOption = None,
    trust_pileup: TrustPileupOption = None,
    reason: ReasonOption = "",
) -> None:
    """Assign requests to a team of agents, which then take their work.

    Splitting and resources can change until a request has work: before it is assigned, and after it has failed.
    """
    body = wire.requests.RequestAssignment(
        team, _names(sites), _names(banned_sites), trust_input, trust_pileup, reason, steps.change()
    )
    _act(session, "assign", ids, choice, lambda client, number: client.assign_request(number, body))


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [] if any(name.upper() == "ANY" for name in names) else names


@connected
@with_option_groups
def priority(
    session: Session,
    choice: RequestChoice,
    numbers: Annotated[
        list[int],
        CommandArgument("Numbers of requests; 0 to 999999, higher goes first", "[REQUEST]... PRIORITY"),
    ],
    reason: ReasonOption = "",
) -> None:
    """Change the priority of requests. Their elements and waiting jobs follow at once."""
    *ids, new = numbers
    _act(
        session,
        "priority",
        ids,
        choice,
        lambda client, number: client.set_request_priority(number, new, reason),
    )


@connected
@with_option_groups
def sites(
    session: Session,
    choice: RequestChoice,
    ids: IdsArgument = None,
    sites: SitesOption = None,
    banned_sites: BannedOption = None,
    trust_input: TrustInputOption = None,
    trust_pileup: TrustPileupOption = None,
    reason: ReasonOption = "",
) -> None:
    """Change the lists of sites of requests. Their elements and waiting jobs follow at once."""
    body = wire.requests.RequestSites(_names(sites), _names(banned_sites), trust_input, trust_pileup, reason)
    _act(session, "sites", ids, choice, lambda client, number: client.set_request_sites(number, body))


pause = _verb(
    "pause",
    lambda client, number, reason: client.pause_request(number, reason),
    "Hold the further work of requests back: no elements for agents, no new jobs. Jobs in the pool go on.",
)


resume = _verb(
    "resume",
    lambda client, number, reason: client.resume_request(number, reason),
    "Let paused requests go on.",
)


abort = _verb(
    "abort",
    lambda client, number, reason: client.abort_request(number, reason),
    "End requests: their elements and jobs are cancelled. Results that are done stay.",
)


force_complete = _verb(
    "force-complete",
    lambda client, number, reason: client.force_complete_request(number, reason),
    "End requests early as completed: done jobs count, the others are cancelled.",
)


close_out = _verb(
    "close-out",
    lambda client, number, reason: client.close_out_request(number, reason),
    "Accept the results of completed requests.",
)


announce = _verb(
    "announce",
    lambda client, number, reason: client.announce_request(number, reason),
    "Tell that the accepted results of requests are there.",
)


archive = _verb(
    "archive",
    lambda client, number, reason: client.archive_request(number, reason),
    "Put ended requests into the archive.",
)


@connected
@with_option_groups
def clone(
    session: Session,
    steps: StepOptions,
    request: Annotated[int, CommandArgument("Number of the request", "REQUEST")],
    name: Annotated[str, CommandOption("Name of the new request", "NAME")] = "",
    team: Annotated[str, CommandOption("Another team", "NAME")] = "",
    campaign: Annotated[str | None, CommandOption("Another label", "TEXT")] = None,
    priority: Annotated[int | None, CommandOption("Another priority, 0 to 999999", "NUMBER")] = None,
    program: ProgramOption = None,
    key: KeyOption = "",
) -> None:
    """Submit a request again as a new one, with the files that were sent with it. Its outputs get new names."""
    changes = wire.requests.RequestClone(name, team, campaign, priority, key, steps=steps.change())
    with session.client() as client:
        row = client.clone_request(request, changes, programs=_files_by_name(program))
    _show_new(session, row, f"a clone of request {request}")


@connected
@with_option_groups
def resubmit(
    session: Session,
    steps: StepOptions,
    request: Annotated[int, CommandArgument("Number of the request", "REQUEST")],
    program: ProgramOption = None,
    key: KeyOption = "",
) -> None:
    """Make exactly the failed parts of a request again, as a new request. Its results join the first one's data sets.

    These are the jobs that have failed for good, and elements that could not be split into jobs. `--splitting` makes
    smaller jobs of them, such as `--splitting events_per_job=100`.
    Parts that another resubmission does or has done are left out.
    """
    with session.client() as client:
        row = client.resubmit_request(
            request, key=key, programs=_files_by_name(program), steps=steps.change()
        )
    parts = f"{row.parts:,} failed {'part' if row.parts == 1 else 'parts'} of request {request}"
    _show_new(session, row, parts)
    for other in row.left_out:
        noun = "part" if other.parts == 1 else "parts"
        session.screen.line(f"left out: {other.parts:,} {noun} that request {other.request} does or has done")


def _files_by_name(given: list[str] | None) -> dict[str, Path]:
    """The local files of --program, by the name of the file that each replaces."""
    files: dict[str, Path] = {}
    for text in given or ():
        path, equals, name = text.rpartition("=")
        local = Path(path if equals else text)
        if (name := name if equals else local.name) in files:
            raise InvalidInput(f"--program gives the file {name} twice", hint="give one file for each name")
        files[name] = local
    return files


def _show_new(session: Session, row: RequestSummary, origin: str) -> None:
    session.screen.json(row)
    session.screen.line(f"request {row.id} ({row.name}): {origin}; {row.state}")
    note_approval(session, row)
