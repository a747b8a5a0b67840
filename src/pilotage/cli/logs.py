"""`pilotage logs`: the standard output or error of a job."""

from __future__ import annotations

import sys
from typing import Annotated

from pilotage.cli.outcome import note_on_interrupt
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import LONG_PATIENCE, PATIENCE, Session, connected
from pilotage.client.selections import parse_ids
from pilotage.core.errors import InvalidInput


@connected
def logs(
    session: Session,
    job: Annotated[str, CommandArgument("Job id", "ID")],
    follow: Annotated[
        bool, CommandOption("Follow the output until the job has ended", names="-f --follow")
    ] = False,
    stderr: Annotated[bool, CommandOption("Show standard error instead of standard output")] = False,
    attempt: Annotated[
        int, CommandOption("Show the output of this attempt; 0: of the last one", "N", min=0)
    ] = 0,
) -> None:
    """Show the standard output or error of a job so far."""
    ids = parse_ids([job])
    if len(ids) != 1:
        raise InvalidInput("logs shows one job at a time")
    if attempt and follow:
        raise InvalidInput("--follow shows the last attempt", hint="leave out --attempt or --follow")
    stream = "stderr" if stderr else "stdout"
    text: list[bytes] = []
    state, expected = "", 0
    with (
        session.client(patience=LONG_PATIENCE if follow else PATIENCE) as client,
        note_on_interrupt(
            session.screen, f"the job continues: use `pilotage logs -f {ids[0]}` to follow it again"
        ),
    ):
        for piece in client.logs(ids[0], stream=stream, follow=follow, attempt=attempt):
            if piece.offset > expected and not session.as_json:
                session.screen.note(f"[{piece.offset - expected:,} earlier bytes are no longer available]")
            expected, state = piece.offset + len(piece.data), piece.state
            if session.as_json:
                text.append(piece.data)
            else:
                sys.stdout.buffer.write(piece.data)
                sys.stdout.buffer.flush()
    if session.as_json:
        content = b"".join(text).decode("utf-8", "replace")
        session.screen.json({"job": ids[0], "stream": stream, "state": state, "text": content})
