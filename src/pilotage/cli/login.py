"""`pilotage login`, `pilotage logout`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import CommandOutput
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import HomeOption, JsonOption
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.client.issuer_sign_in import DeviceCode
    from pilotage.wire.issuers import IssuerSummary

LONGEST_TOKEN = 8192
"""Bytes that are read for a token."""


def login(
    url: Annotated[
        str,
        CommandArgument(
            "Address of the server: https://HOST:PORT#sha256=FINGERPRINT, as its administrator gives it",
            "URL",
        ),
    ],
    token_file: Annotated[
        Path | None,
        CommandOption(
            "Read the token from FILE; default: a prompt on a terminal, else standard input", "FILE"
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        CommandOption(
            "PEM file of the CAs that may issue the server's certificate; default: the system's", "FILE"
        ),
    ] = None,
    issuer: Annotated[
        str | None,
        CommandOption(
            "Sign in at this issuer, with a browser of any machine; default: the only one, on a terminal",
            "NAME",
        ),
    ] = None,
    group: Annotated[str, CommandOption("Group to work in, after a sign-in at an issuer", "GROUP")] = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Log in to a server on another machine: later commands use its address and your token.

    Where the server trusts an issuer, you sign in there with a browser. Otherwise give the token of an administrator.
    The token is tried first. Address and token are then written to server.json and token of the home (mode 600). The
    token is renewed by use, or at the issuer as long as the sign-in there lasts.
    """
    from pilotage.client.credentials import default_home
    from pilotage.client.login import log_in, log_in_at

    folder = (home or default_home()).expanduser()
    screen = CommandOutput(as_json)
    chosen = None if token_file is not None else _choose_issuer(url, folder, ca, issuer)
    if chosen is None:
        identity = log_in(url, _ask_token(token_file), folder, ca_file=ca)
    else:
        identity = log_in_at(chosen, url, folder, _show_code, group=group, ca_file=ca)
    if as_json:
        screen.json(identity)
        return
    until = screen.instant(identity.expires)
    screen.line(f"logged in as {identity.user} ({identity.group}); the token is valid until {until}")


def _choose_issuer(url: str, home: Path, ca: Path | None, name: str | None) -> IssuerSummary | None:
    """The issuer to sign in at; None: a token is asked for."""
    from pilotage.client.login import issuers_of

    if name is None and not sys.stdin.isatty():
        return None
    known = {issuer.name: issuer for issuer in issuers_of(url, home, ca_file=ca)}
    if name is None and len(known) > 1:
        raise InvalidInput(
            "the server trusts several issuers", hint=f"choose one: --issuer {', --issuer '.join(known)}"
        )
    if name is None:
        return next(iter(known.values()), None)
    if name not in known:
        raise InvalidInput(
            f"nobody can sign in at {name}",
            hint=f"there are: {', '.join(known) or 'none'}; else use --token-file",
        )
    return known[name]


def _show_code(code: DeviceCode) -> None:
    address = code.complete_address or code.address
    print(f"Open {address} in a browser, and check that it shows the code {code.code}.", file=sys.stderr)


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
    """Remove the server's address and the token that `login` has written. The token itself stays valid.

    A sign-in at an issuer ends there too.
    """
    from pilotage.client.credentials import default_home
    from pilotage.client.login import log_out

    done = log_out((home or default_home()).expanduser())
    screen = CommandOutput(as_json)
    if as_json:
        screen.json({"logged_out": done.removed, "problem": done.problem})
        return
    screen.line("logged out" if done.removed else "nobody was logged in")
    if done.problem:
        screen.note(f"the sign-in may go on at the issuer: {done.problem}")
