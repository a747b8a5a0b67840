"""Logging in to a server on another machine: its address, its certificates and a token go into a home folder."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from pilotage.client.api import Client
from pilotage.client.credentials import (
    TokenFile,
    parse_server_url,
    require_safe,
    token_identity,
    write_server_facts,
    write_token,
)
from pilotage.core.errors import Conflict, InvalidInput
from pilotage.wire.server_trust import ServerTrust

if TYPE_CHECKING:
    from pilotage.wire.identity import Identity


def log_in(url: str, token: str, home: Path, *, ca_file: Path | None = None) -> Identity:
    """Try a token at a server, then write `server.json` and `token` of a home. Nothing is written if it is refused.

    `ca_file`: the CAs that may have issued the server's certificate, if no fingerprint is given.
    """
    _check_home(home)
    facts = parse_server_url(url)
    trust = facts.trust
    require_safe(facts.url, trust)
    if ca_file is not None:
        if trust.fingerprints:
            raise InvalidInput("a fingerprint and --ca cannot be combined", hint="give one of them")
        trust = ServerTrust(ca_file=str(_readable_file(ca_file)))
    if not token_identity(token)[0]:
        raise InvalidInput(
            "this is no token", hint="an administrator makes one: `pilotage token create USER`"
        )
    with Client(facts.url, token, trust=trust, patience=4.0) as client:
        identity = client.whoami()
    try:
        # Never a token beside the address of another server, also if this process is killed here.
        (home / "token").unlink(missing_ok=True)
        # The client has learned the fingerprints of all servers with the answer.
        urls = dict.fromkeys([*facts.url.split(","), *identity.servers])
        write_server_facts(home, ",".join(urls), trust)
        write_token(home / "token", token)
    except OSError as trouble:
        raise InvalidInput(f"cannot write into {home}: {trouble.strerror}") from trouble
    return identity


def log_out(home: Path) -> bool:
    """Remove the token and the address that `log_in` has written; False: there were none."""
    _check_home(home)
    removed = False
    for name in ("token", "server.json"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (home / name).unlink()
            removed = True
    return removed


def read_token(path: Path) -> str:
    """The token of a file. Raises NotAuthenticated if it holds none."""
    return TokenFile(path).read()


def _check_home(home: Path) -> None:
    """Refuse the home of a server of this machine: its files are the server's."""
    if (home / "instance.json").exists() or (home / "pilotage.db").exists():
        raise Conflict(
            f"{home} is the home of a server, whose owner needs no login",
            hint="keep other servers in a folder of their own: --home DIR or PILOTAGE_HOME",
        )


def _readable_file(path: Path) -> Path:
    absolute = path.expanduser().absolute()
    try:
        absolute.read_bytes()
    except OSError as trouble:
        raise InvalidInput(f"cannot read {path}: {trouble.strerror}") from trouble
    return absolute
