"""`pilotage submit`: files or a command become jobs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilotage.cli.described import Options, described
from pilotage.cli.moments import size_text
from pilotage.cli.screen import Screen
from pilotage.cli.session import LONG_PATIENCE, PATIENCE, Session, connected
from pilotage.cli.wait import verdict, watch_to_end
from pilotage.client.describing import Described, read_file, read_text
from pilotage.client.inputs import LocalFile
from pilotage.client.submitting import Prepared, prepare, prepare_rows
from pilotage.client.tables import Table, count_rows, open_table, read_table
from pilotage.core.errors import InvalidInput
from pilotage.wire.people import Counts, OpenRequest, Selection, SubmitResponse

if TYPE_CHECKING:
    from pilotage.client import Client

SUFFIXES = (".jdl", ".yaml", ".yml", ".json")

HELP_COMMAND = "Job files (JDL, YAML, JSON; - for standard input), or after -- a command and its arguments"


def _many(*names: str, metavar: str, text: str) -> object:
    return typer.Option(*names, metavar=metavar, help=text + "; may be repeated")


@dataclass
class Sent:
    """The JSON of `submit`."""

    submissions: list[SubmitResponse] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    """With --wait: how the jobs ended."""


@connected
def submit(
    session: Session,
    words: Annotated[list[str], typer.Argument(metavar="FILE... | -- COMMAND...", help=HELP_COMMAND)],
    name: Annotated[str, typer.Option("--name", help="Name of the job")] = "",
    group: Annotated[str, typer.Option("--group", help="Submit as a member of this group")] = "",
    job_group: Annotated[str, typer.Option("--job-group", help="A word to find the jobs by")] = "",
    site: Annotated[list[str] | None, _many("--site", metavar="SITE", text="Run only there")] = None,
    ban_site: Annotated[list[str] | None, _many("--ban-site", metavar="SITE", text="Not there")] = None,
    platform: Annotated[
        list[str] | None, _many("--platform", metavar="NAME", text="Of this platform")
    ] = None,
    tag: Annotated[list[str] | None, _many("--tag", metavar="TAG", text="Only on nodes with it")] = None,
    cpu_time: Annotated[
        str, typer.Option("--cpu-time", metavar="TIME", help="CPU time of a core: 90s, 2h")
    ] = "",
    wall_time: Annotated[str, typer.Option("--wall-time", metavar="TIME", help="Longest wall time")] = "",
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory needed: 2GB, 1500MB")] = "",
    processors: Annotated[int | None, typer.Option("--processors", min=1, help="Cores")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Among your own jobs, 0 to 10")] = None,
    inputs: Annotated[
        list[str] | None,
        _many("--input", "-i", metavar="FILE", text="File or folder: PATH, PATH=NAME, shared:PATH or a URL"),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        _many("--output", "-o", metavar="NAME", text="File to bring back: a name or a pattern"),
    ] = None,
    env: Annotated[list[str] | None, _many("--env", metavar="K=V", text="Environment variable")] = None,
    setup: Annotated[
        list[str] | None, _many("--setup", metavar="LINE", text="Shell line run first: module load ...")
    ] = None,
    container: Annotated[str, typer.Option("--container", metavar="IMAGE", help="Run in this image")] = "",
    requirements: Annotated[
        str, typer.Option("--requirements", metavar="EXPR", help="A ClassAd expression on the node")
    ] = "",
    job_type: Annotated[str, typer.Option("--job-type", metavar="TYPE", help="The type of the job")] = "",
    retries: Annotated[int | None, typer.Option("--retries", min=0, help="Tries after a failure")] = None,
    on_cutoff: Annotated[
        str,
        typer.Option(
            "--on-cutoff", metavar="continue|stop", help="What to do when the server is away for long"
        ),
    ] = "",
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="So many jobs; %s is 0, 1, 2 ...")
    ] = None,
    param: Annotated[
        list[str] | None,
        _many("--param", metavar="NAME=A,B", text="A job for each value, %(NAME)s in arguments"),
    ] = None,
    params_from: Annotated[
        Path | None, typer.Option("--params-from", metavar="FILE", help="A job for each line; %s is the line")
    ] = None,
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="FILE",
            help="A job for each row of CSV or JSON Lines, %(NAME)s a column; - reads it",
        ),
    ] = "",
    key: Annotated[
        str, typer.Option("--key", help="The same key again makes no more jobs; goes on with a table")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the jobs; exit code 1 if one fails")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing")
    ] = False,
) -> int | None:
    """Submit jobs: from files, or a command.

    A command written as a relative path to a file here (./run.sh) is sent along.
    """
    options = Options(
        words, name, job_group, job_type, site or [], ban_site or [], platform or [], tag or [],
        cpu_time, wall_time, memory, processors, priority, inputs or [], outputs or [], env or [], setup or [],
        container, requirements, retries, on_cutoff, count, param or [], params_from,
    )  # fmt: skip
    if table:
        return submit_table(session, read_words(words, options, table), table, group, key, wait, dry_run)
    found = read_words(words, options)
    if key and len(found) > 1:
        raise InvalidInput("--key goes with one submission, not with several files")
    prepared = [prepare(one, group=group, key=key) for one in found]
    if dry_run:
        _show(session, prepared)
        return None
    return _send(session, prepared, wait)


def read_words(words: list[str], options: Options, table: str = "") -> list[Described]:
    """Files if the first word is one (or "-"), else a command."""
    if table and (options.count is not None or options.params or options.params_from is not None):
        raise InvalidInput("--table and --count, --param or --params-from both set the parameters; give one")
    if table == "-" and "-" in words:
        raise InvalidInput("standard input is either the job file or the table, not both")
    if words[0] != "-" and Path(words[0]).suffix.lower() not in SUFFIXES:
        if Path(words[0]).is_dir():
            raise InvalidInput(
                f"{words[0]} is a folder", hint="give a job file, or a command: -- COMMAND ..."
            )
        return [described(options)]
    if options != Options(words):
        raise InvalidInput(
            "options that describe a job go with a command, not with job files", hint="edit the file"
        )
    return [read_text(sys.stdin.read()) if word == "-" else read_file(Path(word)) for word in words]


def _show(session: Session, prepared: list[Prepared]) -> None:
    import msgspec

    if session.as_json:
        session.screen.json([one.request for one in prepared])
        return
    for one in prepared:
        size = sum(file.size for file in one.files)
        session.screen.line(f"{one.count:,} jobs, {len(one.files)} input files of {size_text(size)}:")
        print(msgspec.json.format(msgspec.json.encode(one.request.description), indent=2).decode())
        for row in (one.request.parameters.rows if one.request.parameters else [])[:3]:
            session.screen.line(f"  with {dict(zip(one.request.parameters.names, row, strict=True))}")  # type: ignore[union-attr]
        for file in one.files:
            session.screen.line(f"  input {file.name} ({size_text(file.size)})")


def _send(session: Session, prepared: list[Prepared], wait: bool) -> int | None:
    sent, screen = Sent(), session.screen
    with session.client(patience=LONG_PATIENCE if wait else PATIENCE) as client:
        for one in prepared:
            try:
                with screen.progress("submitting" if one.in_chunks else "uploading") as advance:
                    response = client.send(one, _in_bytes(advance), rows=in_rows(screen, advance))
            except KeyboardInterrupt:
                again = f"with --key {one.request.key} the same again makes no second one"
                screen.note(f"the server may have accepted the submission, or a part of it: {again}")
                raise
            sent.submissions.append(response)
            show_accepted(session, response)
        return conclude(session, client, sent, wait)


def show_accepted(session: Session, response: SubmitResponse) -> None:
    screen = session.screen
    for warning in response.warnings:
        screen.note(f"warning: {warning}")
    ids = str(response.first) if response.count == 1 else f"{response.first}-{response.last}"
    if response.last - response.first >= response.count:
        ids = f"of {ids}"
    noun = "job" if response.count == 1 else "jobs"
    screen.line(f"submission {response.submission}: {response.count:,} {noun}, {ids}")
    sys.stdout.flush()


def conclude(session: Session, client: Client, sent: Sent, wait: bool) -> int:
    """Wait for the jobs if that is wished; the exit code."""
    code = 0
    if wait:
        for response in sent.submissions:
            counts: Counts = watch_to_end(session.screen, client, Selection(submission=response.submission))
            code = max(code, verdict(session.screen, counts))
            for state, number in counts.states.items():
                sent.states[state] = sent.states.get(state, 0) + number
    if session.as_json:
        session.screen.json(sent)
    return code


def _in_bytes(advance: Callable[[int, int, str], None]) -> Callable[[int, int], None]:
    return lambda done, total: advance(done, total, "")


def in_rows(screen: Screen, advance: Callable[[int, int, str], None]) -> Callable[[int, int | None], None]:
    def show(done: int, total: int | None) -> None:
        if screen.moving:  # elsewhere each chunk would be a line
            advance(done, total or 0, f"{done:,} jobs")

    return show


def submit_table(
    session: Session, found: list[Described], table: str, group: str, key: str, wait: bool, dry_run: bool
) -> int | None:
    """A job for each row. A file is checked to its end before anything is sent; a pipe cannot be."""
    if len(found) > 1:
        raise InvalidInput("--table goes with one job file or one command")
    path = None if table == "-" else Path(table)
    count = count_rows(path)[1] if path is not None and path.is_file() else None
    with sys.stdin.buffer if path is None else open_table(path) as file:
        rows = read_table(file, str(path or "standard input"))
        request, files = prepare_rows(found[0], rows.names, group=group, key=key, expected=count)
        if dry_run:
            show_table(session, request, files, rows, count)
            return None
        return _send_table(session, request, files, rows, wait)


def _send_table(
    session: Session, request: OpenRequest, files: list[LocalFile], table: Table, wait: bool
) -> int | None:
    screen, there = session.screen, 0
    with session.client(patience=LONG_PATIENCE if wait else PATIENCE) as client:
        try:
            with screen.progress("submitting") as advance:
                show = in_rows(screen, advance)

                def accepted(done: int, total: int | None) -> None:
                    nonlocal there
                    there = done
                    show(done, total)

                response = client.send_rows(request, files, table.rows, accepted, _in_bytes(advance))
        except KeyboardInterrupt:
            screen.note(
                f"the server has {there:,} jobs of it: the same with --key {request.key} goes on after them"
            )
            raise
        show_accepted(session, response)
        return conclude(session, client, Sent([response]), wait)


def show_table(
    session: Session, request: OpenRequest, files: list[LocalFile], table: Table, count: int | None
) -> None:
    import msgspec

    if session.as_json:
        session.screen.json(request)
        return
    size = sum(file.size for file in files)
    jobs = f"{count:,} jobs" if count is not None else "a job for each row"
    session.screen.line(f"{jobs}, {len(files)} input files of {size_text(size)}:")
    print(msgspec.json.format(msgspec.json.encode(request.description), indent=2).decode())
    for row in itertools.islice(table.rows, 3):
        session.screen.line(f"  with {dict(zip(table.names, row, strict=True))}")
    for file in files:
        session.screen.line(f"  input {file.name} ({size_text(file.size)})")
