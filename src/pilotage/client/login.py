"""Logging in to a server on another machine: its address, its certificates and a token go into a home folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pilotage.client.api import Client
from pilotage.client.credentials import (
    SIGN_IN_FILE,
    KnownServer,
    TokenFile,
    parse_server_url,
    require_safe,
    token_identity,
    write_server_facts,
    write_token,
)
from pilotage.client.issuer_sign_in import DeviceCode, KeptSignIn, SignIn, sign_in
from pilotage.core.errors import Conflict, InvalidInput, PilotageError
from pilotage.wire.server_trust import ServerTrust

if TYPE_CHECKING:
    from pilotage.wire.identity import Identity
    from pilotage.wire.issuers import IssuerSummary


def log_in(
    url: str, token: str, home: Path, *, ca_file: Path | None = None, kept: SignIn | None = None
) -> Identity:
    """Try a token at a server, then write `server.json` and `token` of a home. Nothing is written if it is refused.

    `ca_file`: the CAs that may have issued the server's certificate, if no fingerprint is given. `kept`: the sign-in
    at an issuer by which the token is renewed.
    """
    facts, trust = _reach(url, home, ca_file)
    if not token_identity(token)[0]:
        raise InvalidInput(
            "this is no token", hint="an administrator makes one: `pilotage token create USER`"
        )
    with Client(facts.url, token, trust=trust, patience=4.0) as client:
        identity = client.whoami()
    try:
        # Never a token beside the address of another server, also if this process is killed here.
        for name in ("token", SIGN_IN_FILE):
            (home / name).unlink(missing_ok=True)
        # The client has learned the fingerprints of all servers with the answer.
        urls = dict.fromkeys([*facts.url.split(","), *identity.servers])
        write_server_facts(home, ",".join(urls), trust)
        if kept is not None and kept.refresh_token:
            KeptSignIn(home / SIGN_IN_FILE).write(kept)
        write_token(home / "token", token)
    except OSError as trouble:
        raise InvalidInput(f"cannot write into {home}: {trouble.strerror}") from trouble
    return identity


def issuers_of(url: str, home: Path, *, ca_file: Path | None = None) -> list[IssuerSummary]:
    """The issuers that a server trusts, at which people can sign in with a command line."""
    facts, trust = _reach(url, home, ca_file)
    with Client(facts.url, "", trust=trust, patience=4.0) as client:
        return [issuer for issuer in client.issuers() if issuer.client]


def log_in_at(
    issuer: IssuerSummary,
    url: str,
    home: Path,
    show: Callable[[DeviceCode], None],
    *,
    group: str = "",
    ca_file: Path | None = None,
) -> Identity:
    """Let a person sign in at an issuer, then log in with the token that the server gives for it."""
    facts, trust = _reach(url, home, ca_file)
    proof, kept = sign_in(issuer, group, show)
    with Client(facts.url, "", trust=trust, patience=4.0) as client:
        token = client.exchange(proof, group).token
    return log_in(url, token, home, ca_file=ca_file, kept=kept)


def _reach(url: str, home: Path, ca_file: Path | None) -> tuple[KnownServer, ServerTrust]:
    """The server at an address, and the certificates that it may have. Refuses a home that is not for logins."""
    _check_home(home)
    facts = parse_server_url(url)
    trust = facts.trust
    require_safe(facts.url, trust)
    if ca_file is not None:
        if trust.fingerprints:
            raise InvalidInput("a fingerprint and --ca cannot be combined", hint="give one of them")
        trust = ServerTrust(ca_file=str(_readable_file(ca_file)))
    return facts, trust


class LogOut(NamedTuple):
    """The result of a logout."""

    removed: bool
    """There was a login."""
    problem: str = ""
    """Why the sign-in at the issuer may go on there."""


def log_out(home: Path) -> LogOut:
    """End the sign-in at the issuer, then remove the files that `log_in` has written, also if that failed."""
    _check_home(home)
    removed, problem = False, ""
    kept = KeptSignIn(home / SIGN_IN_FILE)
    if kept.exists:
        try:
            kept.revoke()
        except PilotageError as error:
            problem = str(error)
    for name in ("token", "server.json", SIGN_IN_FILE):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (home / name).unlink()
            removed = True
    return LogOut(removed, problem)


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
