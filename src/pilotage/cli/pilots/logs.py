"""`pilotage pilot logs`: the output of a pilot itself."""

from __future__ import annotations

import sys
from typing import Annotated

from pilotage.cli.outcome import note_on_interrupt
from pilotage.cli.parser import CommandOption
from pilotage.cli.pilots.show import PilotArgument
from pilotage.cli.session import LONG_PATIENCE, PATIENCE, Session, connected


@connected
def logs(
    session: Session,
    pilot: PilotArgument,
    follow: Annotated[
        bool, CommandOption("Follow the output until the pilot has ended", names="-f --follow")
    ] = False,
) -> None:
    """Show the end of the standard output and error of a pilot itself (administrators).

    The server reads the file that the batch system writes. If it cannot read that file, it shows the lines that the
    pilot sent when it left.
    """
    text: list[bytes] = []
    state = ""
    with (
        session.client(patience=LONG_PATIENCE if follow else PATIENCE) as client,
        note_on_interrupt(session.screen, "the pilot goes on"),
    ):
        for piece in client.pilot_logs(pilot, follow=follow):
            if piece.offset and not text:
                session.screen.note(f"[{piece.offset:,} earlier bytes are left out]")
            state = piece.state
            text.append(piece.data if session.as_json else b"")
            if not session.as_json:
                sys.stdout.buffer.write(piece.data)
                sys.stdout.buffer.flush()
    if session.as_json:
        content = b"".join(text).decode("utf-8", "replace")
        session.screen.json({"pilot": pilot, "state": state, "text": content})
