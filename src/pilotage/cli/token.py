"""`pilotage token create|show|list|revoke|rotate-key`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

from pilotage.cli.console import Column
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import format_instant, parse_duration
from pilotage.core.errors import Conflict, InvalidInput


@connected
def create(
    session: Session,
    user: Annotated[str, CommandArgument("User of the policy", "USER")],
    group: Annotated[str, CommandOption("Group of the token; default: the user's first group", "GROUP")] = "",
    lifetime: Annotated[str, CommandOption("Time until the token expires", "TIME")] = "12h",
    out: Annotated[
        Path | None,
        CommandOption("Write the token to FILE (mode 600) instead of printing it", "FILE", names="--out -o"),
    ] = None,
) -> None:
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
        shown = {"id": answer.id, "user": answer.user, "group": answer.group, "expires": answer.expires}
        screen.json(shown | ({"file": str(out)} if out else {"token": answer.token}))
        return
    if out is None:
        screen.line(answer.token)
    until = screen.instant(answer.expires)
    screen.note(f"token {answer.id} for {answer.user} ({answer.group}), valid until {until}")


def _write_token_file(path: Path, token: str) -> None:
    from pilotage.client.credentials import write_token

    try:
        write_token(path, token)
    except OSError as trouble:
        raise InvalidInput(f"cannot write {path}: {trouble.strerror}") from trouble


@connected
def show(session: Session) -> None:
    """Show the user, group and expiry of the current token, not the token itself."""
    with session.client() as client:
        identity = client.whoami()
    file = session.token_file or session.folder / "token"
    if session.as_json:
        shown = {"user": identity.user, "group": identity.group, "expires": identity.expires}
        session.screen.json({**shown, "properties": identity.properties, "file": str(file)})
        return
    until = session.screen.instant(identity.expires)
    session.screen.facts(
        [("user", identity.user), ("group", identity.group), ("valid until", until), ("file", file)]
    )


@connected
def list_tokens(session: Session) -> None:
    """List the tokens that administrators have made: all for administrators, else your own."""
    with session.client() as client:
        tokens = list(client.tokens())
    screen, now = session.screen, time.time()
    screen.json({"tokens": tokens})
    exact = not screen.terminal
    ranks = {"issued": 2, "by": 3, "group": 1}
    names = ("id", "user", "group", "issued", "by", "valid until")
    columns = [Column(name, rank=ranks.get(name, 0)) for name in names]
    screen.table(
        columns,
        (
            (
                *(token.id, token.user, token.group),
                *(format_instant(token.issued, now, exact=exact), token.issued_by),
                f"revoked by {token.revoked_by}"
                if token.revoked
                else format_instant(token.expires, now, exact=exact),
            )
            for token in tokens
        ),
    )


@connected
def revoke(
    session: Session,
    ids: Annotated[list[int] | None, CommandArgument("Ids of `token list`", "ID...")] = None,
    user: Annotated[str, CommandOption("All tokens of a user that were issued until now", "USER")] = "",
    pilot: Annotated[int, CommandOption("The token of a pilot: it ends, and its jobs wait again", "ID")] = 0,
) -> None:
    """Revoke tokens. All servers of the pool refuse them within seconds. You may revoke your own tokens."""
    if bool(ids) + bool(user) + bool(pilot) != 1:
        raise InvalidInput("give ids of tokens, or --user, or --pilot", hint="see `pilotage token list`")
    with session.client() as client:
        if user:
            count = client.revoke_tokens_of(user)
            words = f"all tokens of {user} are revoked; {count} of them were listed"
        elif pilot:
            client.revoke_pilot(pilot)
            words = f"the token of pilot {pilot} is revoked"
        else:
            for number in ids or ():
                client.revoke_token(number)
            words = f"revoked {', '.join(map(str, ids or ()))}"
    session.screen.json({"message": words})
    session.screen.line(words)


@connected
def rotate_key(
    session: Session,
    grace: Annotated[str, CommandOption("How long tokens of earlier keys are still accepted", "TIME")] = "1d",
) -> None:
    """Sign tokens with a new key from now on (administrators). Use renews tokens before the grace is over."""
    seconds = parse_duration(grace)
    with session.client() as client:
        rotated = client.rotate_token_key(grace=seconds)
    session.screen.json(rotated)
    until = session.screen.instant(rotated.accepted_until)
    session.screen.line(
        f"key {rotated.key} signs new tokens; tokens of earlier keys are accepted until {until}"
    )
