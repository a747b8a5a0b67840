"""`pilotage submit`: submit job files or a command."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.console import CommandOutput
from pilotage.cli.description_options import DescribedCommand, describe_command, override_description
from pilotage.cli.graphs import read_graph_file, submit_graph
from pilotage.cli.option_groups import with_option_groups
from pilotage.cli.outcome import JOB_FAILED
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import LONG_PATIENCE, PATIENCE, Session, connected
from pilotage.cli.submit_options import JobOptions, SubmitOptions
from pilotage.cli.time_format import format_size
from pilotage.cli.wait import watch_to_end
from pilotage.client.description import LocalDescription, read_description_file, read_description_text
from pilotage.client.submission import PreparedRows, SubmissionUpload, prepare, prepare_rows
from pilotage.client.tables import Table, count_rows, open_table, read_table
from pilotage.core.errors import InvalidInput
from pilotage.core.jobs.per_job_inputs import is_internal_column
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.submissions import SubmitResponse

SUFFIXES = (".jdl", ".yaml", ".yml", ".json")

HELP_COMMAND = "Job files (JDL, YAML or JSON; - for standard input), or -- and a command with its arguments"


@dataclass
class SubmitReport:
    """The JSON of `submit`."""

    submissions: list[SubmitResponse] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    """With --wait: how the jobs ended."""
    not_done: list[int] = field(default_factory=list)
    """The first jobs that ended in another state than Done."""
    outputs_incomplete: int = 0
    """Done jobs with a missing output."""


@connected
@with_option_groups
def submit(
    session: Session,
    words: Annotated[list[str], CommandArgument(HELP_COMMAND, "FILE", may_be_empty=True)],
    job: JobOptions,
    how: SubmitOptions,
) -> int | None:
    """Submit jobs from job files or from a command.

    Options override the fields of a job file. To submit a command: `pilotage submit [OPTIONS] -- COMMAND [ARG]...`;
    files of this folder that it names are sent as inputs.
    """
    if how.parsable and (how.wait or how.dry_run or session.as_json):
        raise InvalidInput("--parsable cannot be combined with --wait, --dry-run or --json")
    if how.table and job.parametric:
        raise InvalidInput("--table cannot be combined with --array, --count, --param or --params-from")
    if how.table == "-" and "-" in words:
        raise InvalidInput("standard input cannot be both the job file and the table")
    graph = read_graph_file(words)
    if graph is not None:
        return submit_graph(
            session,
            graph,
            job,
            how,
            lambda session, client, sent: finish_submit(session, client, SubmitReport(sent), how.wait),
        )
    descriptions = read_descriptions(session.screen, words, job, no_inputs=how.no_inputs)
    if how.table:
        return submit_table(session, descriptions, how)
    if how.key and len(descriptions) > 1:
        raise InvalidInput("--key applies to one submission: give one job file")
    prepared = [prepare(description, group=how.group, key=how.key) for description in descriptions]
    if how.dry_run:
        show_dry_run(session, prepared)
        return None
    return send_prepared(session, prepared, how.wait, parsable=how.parsable)


def read_descriptions(
    screen: CommandOutput, words: list[str], job: JobOptions, *, no_inputs: bool
) -> list[LocalDescription]:
    """Read job files if the first word names one (or is "-"); otherwise the words are a command."""
    if words[0] != "-" and Path(words[0]).suffix.lower() not in SUFFIXES:
        commands = [describe_command(words, job, no_inputs=no_inputs)]
    else:
        if no_inputs:
            raise InvalidInput(
                "--no-inputs applies to commands only", hint="a job file lists its inputs itself"
            )
        files = [
            read_description_text(sys.stdin.read()) if word == "-" else read_description_file(Path(word))
            for word in words
        ]
        commands = (
            [override_description(file, job) for file in files]
            if job.given_options()
            else [DescribedCommand(file) for file in files]
        )
    for note in dict.fromkeys(note for command in commands for note in command.notes):
        screen.note(note)
    return [command.described for command in commands]


def show_dry_run(session: Session, prepared: list[SubmissionUpload]) -> None:
    """Print the requests, and the errors and warnings that the server reports for them."""
    session.screen.json([request.request for request in prepared])
    for request in prepared:
        if not session.as_json:
            _show(session.screen, request)
    with session.client() as client:
        for request in prepared:
            show_warnings(session.screen, client.check(request).warnings)


def _show(screen: CommandOutput, prepared: SubmissionUpload) -> None:
    import msgspec

    size = sum(file.size for file in (*prepared.files, *prepared.own))
    files = plural(len(prepared.files) + len(prepared.own), "input file")
    screen.line(f"{plural(prepared.count, 'job')}, {files} of {format_size(size)}:")
    print(msgspec.json.format(msgspec.json.encode(prepared.request.description), indent=2).decode())
    parameters = prepared.request.parameters
    for row in parameters.rows[:3] if parameters else []:
        values = dict(zip(parameters.names, row, strict=True))  # type: ignore[union-attr]
        show_row(screen, {name: value for name, value in values.items() if not is_internal_column(name)})
    for file in prepared.files:
        mode = ", executable" if file.executable else ""
        screen.line(f"  input {file.name} ({format_size(file.size)}{mode})")
    if prepared.own:
        own = plural(len(prepared.own), "input file")
        screen.line(f"  and {own} of single jobs: {prepared.own[0].path} ...")


def show_row(screen: CommandOutput, values: Mapping[str, object]) -> None:
    """The values of one job, such as `energy = 5, %s = 0`; `%s` is the parameter without a name."""
    text = ", ".join(f"{name or '%s'} = {value}" for name, value in values.items())
    screen.line(f"  with {text}")


def show_warnings(screen: CommandOutput, warnings: Sequence[str]) -> None:
    for warning in warnings:
        screen.note(f"warning: {warning}")


def send_prepared(
    session: Session, prepared: list[SubmissionUpload], wait: bool, *, parsable: bool = False
) -> int | None:
    sent, screen = SubmitReport(), session.screen
    with session.client(patience=LONG_PATIENCE if wait else PATIENCE) as client:
        for submission in prepared:
            try:
                with screen.progress("submitting" if submission.in_chunks else "uploading") as advance:
                    response = client.send(
                        submission, _byte_progress(advance), rows=row_progress(screen, advance)
                    )
            except KeyboardInterrupt:
                again = f"repeat the command with --key {submission.request.key}: no job is created twice"
                screen.note(f"the server may have accepted all or part of the submission; {again}")
                raise
            sent.submissions.append(response)
            show_accepted(session, client, response, parsable=parsable)
        return finish_submit(session, client, sent, wait)


def show_accepted(
    session: Session, client: Client, response: SubmitResponse, *, parsable: bool = False
) -> None:
    screen = session.screen
    show_warnings(screen, response.warnings)
    ids = str(response.first) if response.count == 1 else f"{response.first}-{response.last}"
    if response.last - response.first >= response.count:
        # Jobs of others lie between.
        jobs = client.jobs(wire.jobs.Selection(submission=response.submission)) if parsable else ()
        ids = ",".join(str(job.id) for job in jobs) or f"of {ids}"
    screen.line(
        ids if parsable else f"submission {response.submission}: {plural(response.count, 'job')}, {ids}"
    )
    sys.stdout.flush()


def finish_submit(session: Session, client: Client, sent: SubmitReport, wait: bool) -> int:
    """Wait for the jobs if `wait` is set; return the exit code."""
    code = 0
    if wait:
        for response in sent.submissions:
            outcome = watch_to_end(
                session.screen, client, wire.jobs.Selection(submission=response.submission)
            )
            code = JOB_FAILED if JOB_FAILED in (code, outcome.code) else max(code, outcome.code)
            sent.not_done += outcome.not_done
            sent.outputs_incomplete += outcome.outputs_incomplete
            for state, number in outcome.states.items():
                sent.states[state] = sent.states.get(state, 0) + number
    session.screen.json(sent)
    return code


def _byte_progress(advance: Callable[[int, int, str], None]) -> Callable[[int, int], None]:
    return lambda done, total: advance(done, total, "")


def row_progress(
    screen: CommandOutput, advance: Callable[[int, int, str], None]
) -> Callable[[int, int | None], None]:
    def show(done: int, total: int | None) -> None:
        if screen.moving:  # elsewhere each chunk would be a line
            advance(done, total or 0, plural(done, "job"))

    return show


def submit_table(session: Session, descriptions: list[LocalDescription], how: SubmitOptions) -> int | None:
    """Submit one job per row. A regular file is checked completely before anything is sent; a pipe cannot be."""
    if len(descriptions) > 1:
        raise InvalidInput("--table needs exactly one job file or command")
    path = None if how.table == "-" else Path(how.table)
    count = count_rows(path)[1] if path is not None and path.is_file() else None
    with sys.stdin.buffer if path is None else open_table(path) as file:
        rows = read_table(file, str(path or "standard input"))
        prepared = prepare_rows(descriptions[0], rows.names, group=how.group, key=how.key, expected=count)
        if path is not None and prepared.own.templates:
            with open_table(path) as again:
                prepared.own.check(read_table(again, str(path)).rows)
        if how.dry_run:
            show_table(session, prepared, rows, count)
            with session.client() as client:
                show_warnings(session.screen, client.check_rows(prepared.request).warnings)
            return None
        return _send_table(session, prepared, rows, how)


def _send_table(session: Session, prepared: PreparedRows, table: Table, how: SubmitOptions) -> int | None:
    screen, there = session.screen, 0
    with session.client(patience=LONG_PATIENCE if how.wait else PATIENCE) as client:
        try:
            with screen.progress("submitting") as advance:
                show = row_progress(screen, advance)

                def accepted(done: int, total: int | None) -> None:
                    nonlocal there
                    there = done
                    show(done, total)

                response = client.send_prepared_rows(prepared, table.rows, accepted, _byte_progress(advance))
        except KeyboardInterrupt:
            screen.note(
                f"{plural(there, 'job')} stored: repeat the command with --key {prepared.request.key}"
                " to submit the rest"
            )
            raise
        show_accepted(session, client, response, parsable=how.parsable)
        return finish_submit(session, client, SubmitReport([response]), how.wait)


def show_table(session: Session, prepared: PreparedRows, table: Table, count: int | None) -> None:
    import msgspec

    if session.as_json:
        session.screen.json(prepared.request)
        return
    size = sum(file.size for file in prepared.files)
    jobs = plural(count, "job") if count is not None else "a job for each row"
    files = plural(len(prepared.files), "input file")
    session.screen.line(f"{jobs}, {files} of {format_size(size)}:")
    print(msgspec.json.format(msgspec.json.encode(prepared.request.description), indent=2).decode())
    for row in itertools.islice(table.rows, 3):
        show_row(session.screen, dict(zip(table.names, row, strict=True)))
    for file in prepared.files:
        session.screen.line(f"  input {file.name} ({format_size(file.size)})")
