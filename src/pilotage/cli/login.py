"""`pilotage login`, `pilotage logout`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from pilotage.cli.console import CommandOutput
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import HomeOption, JsonOption
from pilotage.core.errors import InvalidInput

LONGEST_TOKEN = 8192
"""Bytes that are read for a token."""


def login(
    url: Annotated[
        str,
        CommandArgument(
            metavar="URL",
            help="Address of the server: https://HOST:PORT#sha256=FINGERPRINT, as its administrator gives it",
        ),
    ],
    token_file: Annotated[
        Path | None,
        CommandOption(
            "--token-file",
            metavar="FILE",
            help="Read the token from FILE; default: a prompt on a terminal, else standard input",
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        CommandOption(
            "--ca",
            metavar="FILE",
            help="PEM file of the CAs that may issue the server's certificate; default: the system's",
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Log in to a server on another machine: later commands use its address and your token.

    The token is tried first. Address and token are then written to server.json and token of the home (mode 600). The
    token is renewed by use.
    """
    from pilotage.client.credentials import default_home
    from pilotage.client.login import log_in

    folder = (home or default_home()).expanduser()
    identity = log_in(url, _ask_token(token_file), folder, ca_file=ca)
    screen = CommandOutput(as_json)
    if as_json:
        screen.json(identity)
        return
    until = screen.instant(identity.expires)
    screen.line(f"logged in as {identity.user} ({identity.group}); the token is valid until {until}")


def _ask_token(file: Path | None) -> str:
    """The token from a file, a prompt without echo, or standard input. It is never an argument."""
    if file is not None:
        from pilotage.client.login import read_token

        return read_token(file)
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("Token: ").strip()
    token = sys.stdin.read(LONGEST_TOKEN).strip()
    if not token:
        raise InvalidInput(
            "no token was given", hint="run it on a terminal, give --token-file FILE, or pipe the token in"
        )
    return token


def logout(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Remove the server's address and the token that `login` has written. The token itself stays valid."""
    from pilotage.client.credentials import default_home
    from pilotage.client.login import log_out

    removed = log_out((home or default_home()).expanduser())
    screen = CommandOutput(as_json)
    if as_json:
        screen.json({"logged_out": removed})
    else:
        screen.line("logged out" if removed else "nobody was logged in")
