"""`pilotage token create|show`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_instant, parse_duration
from pilotage.core.errors import Conflict, InvalidInput


@connected
def create(
    session: Session,
    user: Annotated[str, typer.Argument(metavar="USER", help="User of the policy")],
    group: Annotated[
        str,
        typer.Option("--group", metavar="GROUP", help="Group of the token; default: the user's first group"),
    ] = "",
    lifetime: Annotated[
        str, typer.Option("--lifetime", metavar="TIME", help="Time until the token expires")
    ] = "12h",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write the token to FILE (mode 600) instead of printing it"
        ),
    ] = None,
) -> int | None:
    """Create a token for a user of the policy. It is printed once; transfer it over a secure channel."""
    seconds = parse_duration(lifetime)
    if seconds <= 0:
        raise InvalidInput("the lifetime of a token must be above 0")
    if out is not None and os.path.lexists(out):
        raise Conflict(f"{out} exists already", hint="remove it first, or name another file")
    with session.client() as client:
        answer = client.create_token(user, group=group, lifetime=seconds)
    screen = session.screen
    if out is not None:
        _write_token_file(out, answer.token)
    if session.as_json:
        shown = {"user": answer.user, "group": answer.group, "expires": answer.expires}
        screen.json(shown | ({"file": str(out)} if out else {"token": answer.token}))
        return None
    if out is None:
        screen.line(answer.token)
    until = format_instant(answer.expires, time.time(), exact=not screen.terminal)
    screen.note(f"for {answer.user} ({answer.group}), valid until {until}")
    return None


def _write_token_file(path: Path, token: str) -> None:
    from pilotage.client.credentials import write_token

    try:
        write_token(path, token)
    except OSError as trouble:
        raise InvalidInput(f"cannot write {path}: {trouble.strerror}") from trouble


@connected
def show(session: Session) -> int | None:
    """Show the user, group and expiry of the current token, not the token itself."""
    with session.client() as client:
        identity = client.whoami()
    file = session.token_file or session.folder / "token"
    if session.as_json:
        shown = {"user": identity.user, "group": identity.group, "expires": identity.expires}
        session.screen.json({**shown, "properties": identity.properties, "file": str(file)})
        return None
    until = format_instant(identity.expires, time.time(), exact=not session.screen.terminal)
    session.screen.facts(
        [("user", identity.user), ("group", identity.group), ("valid until", until), ("file", file)]
    )
    return None
