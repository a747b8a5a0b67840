"""`pilotage request submit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.requests.lists import note_approval
from pilotage.cli.requests.wait import watch_request
from pilotage.cli.session import LONG_PATIENCE, PATIENCE, Session, connected
from pilotage.cli.submit import show_warnings
from pilotage.cli.time_format import format_size
from pilotage.client.request_files import RequestUpload, prepare_request, read_request_file
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.requests import RequestAccepted


@connected
def submit(
    session: Session,
    files: Annotated[list[Path], CommandArgument("Request files: TOML, YAML or JSON", "FILE...")],
    name: Annotated[str, CommandOption("Name of the request", "NAME")] = "",
    team: Annotated[str, CommandOption("Team of agents", "NAME")] = "",
    group: Annotated[str, CommandOption("Group of the jobs", "NAME")] = "",
    priority: Annotated[int | None, CommandOption("Priority, 0 to 999999", "NUMBER")] = None,
    campaign: Annotated[str, CommandOption("Label of related requests", "TEXT")] = "",
    key: Annotated[
        str, CommandOption("Submit only once with this key, however often it is sent", "TEXT")
    ] = "",
    yes: Annotated[bool, CommandOption("Also submit a request with very many jobs")] = False,
    strict: Annotated[bool, CommandOption("Refuse a request with data at none of its sites")] = False,
    dry_run: Annotated[bool, CommandOption("Check the request and show its size; submit nothing")] = False,
    wait: Annotated[bool, CommandOption("Wait until the requests have ended")] = False,
) -> int | None:
    """Submit requests: process a data set, or generate events, with one program or with several steps.

    docs/reference/requests.md lists the fields of a request file. Options override its fields.
    """
    if key and len(files) > 1:
        raise InvalidInput("--key applies to one request: give one file")
    given = {"name": name, "team": team, "group": group, "campaign": campaign}
    overrides: dict[str, Any] = {field: value for field, value in given.items() if value}
    if priority is not None:
        overrides["priority"] = priority
    prepared = [
        prepare_request(*read_request_file(path, overrides), key=key, confirmed=yes, strict=strict)
        for path in files
    ]
    with session.client(patience=LONG_PATIENCE if wait else PATIENCE) as client:
        if dry_run:
            _show_checks(session, client, prepared)
            return None
        return _send(session, client, prepared, wait)


def _send(session: Session, client: Client, prepared: list[RequestUpload], wait: bool) -> int | None:
    accepted: list[RequestAccepted] = []
    for request in prepared:
        try:
            answer = _upload(session, client, request)
        except KeyboardInterrupt:
            again = f"repeat the command with --key {request.body.key}"
            session.screen.note(f"the server may have accepted the request; {again}: it is not stored twice")
            raise
        accepted.append(answer)
        _show_accepted(session, answer)
    code = 0
    for answer in accepted if wait else ():
        code = max(code, watch_request(session, client, answer.request.id).code)
    session.screen.json({"requests": accepted})
    return code


def _upload(session: Session, client: Client, request: RequestUpload) -> RequestAccepted:
    with session.screen.progress("uploading") as advance:
        return client.send_request(request, lambda done, total: advance(done, total, ""))


def _show_accepted(session: Session, answer: RequestAccepted) -> None:
    show_warnings(session.screen, answer.warnings)
    row = answer.request
    session.screen.line(f"request {row.id} ({row.name}): {row.state}, about {plural(answer.jobs, 'job')}")
    note_approval(session, row)


def _show_checks(session: Session, client: Client, prepared: list[RequestUpload]) -> None:
    """Print the size and the warnings of each request."""
    checks = [client.check_request(request) for request in prepared]
    if session.as_json:
        session.screen.json({"requests": checks})
        return
    for request, check in zip(prepared, checks, strict=True):
        show_warnings(session.screen, check.warnings)
        size = format_size(sum(file.size for file in request.files))
        session.screen.line(
            f"{request.specification.name}: about {plural(check.jobs, 'job')} as group {check.group}"
        )
        session.screen.line(f"  steps: {', '.join(check.steps)}")
        if check.input_datasets:
            data = f"{plural(check.input_datasets, 'data set')} with {plural(check.input_files, 'file')}"
            events = f", {plural(check.input_events, 'event')}" if check.input_events else ""
            session.screen.line(f"  input: {data} of {format_size(check.input_size)}{events}")
        if check.core_seconds is not None:
            session.screen.line(
                f"  time: about {check.core_seconds / 3600:,.1f} core-hours of a reference core"
            )
        if check.output_size is not None:
            session.screen.line(f"  output: about {format_size(check.output_size)}")
        if request.files:
            session.screen.line(f"  sandbox: {plural(len(request.files), 'file')} of {size}, to be uploaded")
