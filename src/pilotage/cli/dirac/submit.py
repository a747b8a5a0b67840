"""`dirac-wms-job-submit`: submit jobs described in JDL."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.dirac.jobs import FAILED
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import session_of_environment
from pilotage.client.description import LocalDescription, read_description_file, read_description_text
from pilotage.client.submission import prepare
from pilotage.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from pilotage.core.printable import printable

if TYPE_CHECKING:
    from pilotage.client import Client


def submit(
    jdls: Annotated[list[str], CommandArgument("A file in JDL, or the text of a description in JDL", "JDL")],
    file: Annotated[
        Path | None, CommandOption("Append the job ids to this file", "FILE", names="-f --File")
    ] = None,
) -> int:
    """Submit jobs, and print their ids.

    A JDL that is refused does not hold up the others; the exit code is then 2.
    """
    session, errors = session_of_environment(), []
    with session.client() as client:
        for jdl in jdls:
            try:
                request = prepare(_described(jdl))
                for warning in client.check(request).warnings:
                    session.screen.note(f"warning: {warning}")
                response = client.send(request)
            except (InvalidInput, NotFound, Forbidden, Conflict) as error:
                place = error.place if isinstance(error, InvalidInput) else ""
                errors.append(f"ERROR {jdl}: {place}{error.message}")
                continue
            ids = _ids(client, response)
            print(f"JobID = {ids[0] if response.count == 1 else ids}", flush=True)
            if file is not None:
                _append(file, ids)
    for line in errors:
        print(printable(line))
    return FAILED if errors else 0


def _described(jdl: str) -> LocalDescription:
    path = Path(jdl)
    if "=" in jdl and not (len(jdl) < 4096 and path.is_file()):
        return read_description_text(jdl, suffix=".jdl")
    return read_description_file(path)


def _ids(client: Client, response: wire.submissions.SubmitResponse) -> list[int]:
    """The ids of a submission. Jobs of others may lie between the first and the last."""
    if response.last - response.first < response.count:
        return list(range(response.first, response.last + 1))
    return [job.id for job in client.jobs(wire.jobs.Selection(submission=response.submission))]


def _append(file: Path, ids: list[int]) -> None:
    try:
        with file.open("a", encoding="utf-8") as stream:
            stream.writelines(f"{job}\n" for job in ids)
    except OSError as error:
        sys.stdout.flush()
        raise InvalidInput(f"the job ids cannot be appended to {file}: {error.strerror}") from error
