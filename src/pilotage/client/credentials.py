"""Server address and token: server.json and the token file of the home folder."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage import wire
from pilotage.core.errors import InvalidInput, NotAuthenticated, Unreachable
from pilotage.home_place import refuse_copy
from pilotage.wire.server_trust import ServerTrust, split_pinned_url

if TYPE_CHECKING:
    from pilotage.client.issuer_sign_in import KeptSignIn
    from pilotage.client.token_calls import TokenCalls

NEW_TOKEN = "an administrator makes one: `pilotage token create {user} --out FILE`; put it at {path}"

URL_HINT = "http://HOST:PORT or https://HOST, or https://HOST:PORT#sha256=FINGERPRINT"

SIGN_IN_FILE = "issuer.json"
"""The file of a home with a sign-in at an issuer, beside the token."""

RENEW_AFTER = 3600.0
"""Seconds after which the next use of a token renews it, so that daily users never need a new one."""


@dataclass(frozen=True)
class KnownServer:
    """The content of server.json."""

    url: str
    pid: int | None = None
    host: str = ""
    trust: ServerTrust = field(default_factory=ServerTrust)


def default_home() -> Path:
    return Path(os.environ.get("PILOTAGE_HOME") or Path.home() / ".pilotage")


def read_server_facts(home: Path) -> KnownServer:
    """Read server.json of a home.

    Raises Unreachable if no server was started there, InvalidInput if it is damaged, Conflict in a copy of a home.
    """
    refuse_copy(home)
    path = home / "server.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        trust = ServerTrust(content.get("fingerprints", ()), str(content.get("ca_file", "")))
        return KnownServer(str(content["url"]), content.get("pid"), content.get("host", ""), trust)
    except (FileNotFoundError, NotADirectoryError):
        raise Unreachable(
            f"no server is known: {path} does not exist",
            hint="start one with `pilotage up --detach`, or name one with --server URL (PILOTAGE_SERVER)",
        ) from None
    except OSError as trouble:
        raise InvalidInput(f"cannot read {path}: {trouble.strerror}") from trouble
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInput(
            f"{path} is not what a server writes there", hint="remove it and start again"
        ) from None


class FixedToken:
    """A token that is never renewed."""

    def __init__(self, token: str) -> None:
        self._token = token

    def current(self, calls: TokenCalls) -> str:
        return self._token

    def refused(self, token: str, error: NotAuthenticated, calls: TokenCalls) -> None:
        raise error

    def __repr__(self) -> str:
        return "FixedToken(...)"


class TokenFile:
    """A file with one token, mode 600, renewed in place when it is an hour old or near its end.

    With `of_home` it is the token file of the server's home, and the server writes a new token into it on request.
    That is safe, since only readers of the file get the token. Expiry is decided by the server, since clocks differ.
    Beside the file of a sign-in at an issuer (`issuer.json`), it is renewed there.
    """

    def __init__(self, path: Path, *, of_home: bool = False) -> None:
        self.path = path
        self.of_home = of_home
        self._token = ""
        self._renew_at = 0.0
        self._expires = 0.0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r})"

    def current(self, calls: TokenCalls) -> str:
        """The token to send now. If it cannot be renewed, the old token stays in use."""
        with self._lock:
            now = time.time()
            if not self._token:
                self._use(self._read_first(calls))
            if self._renew_at and self._renew_at <= now < self._expires:
                with contextlib.suppress(Exception):  # the request itself will report the error
                    self._renew(calls, now)
            return self._token

    def refused(self, token: str, error: NotAuthenticated, calls: TokenCalls) -> None:
        """Handle the refusal of `token`: return if there is another token to try, otherwise raise the reason."""
        with self._lock:
            if self._token != token or self._reload(token):
                return
            if self.of_home:
                calls.ensure_home_token()
                if self._reload(token):
                    return
            elif self._signed_in is not None:
                self._renew(calls, time.time())
                return
            raise self._with_hint(error)

    @property
    def _signed_in(self) -> KeptSignIn | None:
        """The sign-in by which the token is renewed."""
        if self.of_home or not (path := self.path.with_name(SIGN_IN_FILE)).exists():
            return None
        from pilotage.client.issuer_sign_in import KeptSignIn

        return KeptSignIn(path)

    def _read_first(self, calls: TokenCalls) -> str:
        try:
            return self.read()
        except NotAuthenticated:
            if not self.of_home:
                raise
        calls.ensure_home_token()
        return self.read()

    def _reload(self, token: str) -> bool:
        """Read the file again; return whether it has another token than `token`."""
        try:
            latest = self.read()
        except NotAuthenticated:
            return False
        if latest == token:
            return False
        self._use(latest)
        return True

    def _with_hint(self, error: NotAuthenticated) -> NotAuthenticated:
        user, group = token_identity(self._token)
        if not user:
            return error
        words = f"{user} --group {group}" if group else user
        over = time.time() >= self._expires
        hint = NEW_TOKEN.format(user=words, path=self.path) if over or not error.hint else error.hint
        return NotAuthenticated(f"{error.message} (the token of {user} in {self.path})", hint=hint)

    def _renew(self, calls: TokenCalls, now: float) -> None:
        signed_in = self._signed_in
        with signed_in.locked() if signed_in is not None else contextlib.nullcontext():
            latest = self.read()
            if latest != self._token:  # another process of ours was first
                self._use(latest)
                if not self._renew_at or now < self._renew_at:
                    return
            self._renew_at = now + 60.0  # also after a failure: not with every request
            renewed = None if signed_in is None else signed_in.renew()
            answer = calls.refresh(self._token) if renewed is None else calls.exchange(*renewed)
            with contextlib.suppress(OSError):  # a read-only file: use the new token in this process only
                write_token(self.path, answer.token)
            self._use(answer.token)

    def _use(self, token: str) -> None:
        self._token = token
        issued, expires = token_lifetime(token)
        self._expires = expires
        self._renew_at = issued + min(RENEW_AFTER, (expires - issued) * 3 / 4) if expires else 0.0

    def read(self) -> str:
        """The token in the file. Raises NotAuthenticated if there is none."""
        try:
            token = self.path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise NotAuthenticated(
                f"there is no token: {self.path} does not exist", hint=self._new_token_hint()
            ) from None
        except OSError as trouble:
            raise NotAuthenticated(f"cannot read {self.path}: {trouble.strerror}") from trouble
        except UnicodeDecodeError:
            token = ""
        if not token or any(character.isspace() for character in token):
            raise NotAuthenticated(f"{self.path} does not hold a token", hint=self._new_token_hint())
        return token

    def _new_token_hint(self) -> str:
        return NEW_TOKEN.format(user="USER", path=self.path)


def server_facts_of(url: str, home: Path) -> KnownServer:
    """The server at an address, which may end in `#sha256=FINGERPRINT`. Raises InvalidInput for another ending.

    Without fingerprints, server.json decides if it has the same address.
    """
    facts = parse_server_url(url)
    if not facts.trust.fingerprints:
        with contextlib.suppress(Unreachable, InvalidInput):
            known = read_server_facts(home)
            if facts.url.rstrip("/") in [
                address.rstrip("/") for address in (known.url, *known.url.split(","))
            ]:
                return known
    return facts


def require_safe(url: str, trust: ServerTrust) -> None:
    """Raise InvalidInput if a token must not be sent to one of these addresses, separated by commas."""
    for address in url.split(","):
        try:
            wire.server_address.check_address(address, pinned=bool(trust.fingerprints))
        except wire.server_address.UnsafeAddress as error:
            raise InvalidInput(
                str(error), hint="off loopback a server speaks TLS: https://HOST:PORT#sha256=FINGERPRINT"
            ) from None
        except ValueError:
            raise InvalidInput(f"{address!r} is not the address of a server", hint=URL_HINT) from None


def parse_server_url(url: str) -> KnownServer:
    """The server of an address, which may end in `#sha256=FINGERPRINT`. Raises InvalidInput for another ending."""
    try:
        address, fingerprints = split_pinned_url(url)
    except ValueError as error:
        raise InvalidInput(f"{url} is not the address of a server: {error}", hint=URL_HINT) from None
    return KnownServer(address, trust=ServerTrust(fingerprints))


def write_server_facts(home: Path, url: str, trust: ServerTrust) -> None:
    """Write server.json for a server elsewhere: `pid` is null."""
    facts = {
        "url": url,
        "pid": None,
        "host": "",
        "fingerprints": trust.fingerprints,
        "ca_file": trust.ca_file,
    }
    write_private(home / "server.json", json.dumps(facts))


def write_token(path: Path, token: str) -> None:
    write_private(path, token)


def write_private(path: Path, text: str) -> None:
    """Replace the file atomically, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def token_identity(token: str) -> tuple[str, str]:
    """(user, group) of a JSON Web Token, unverified; empty for anything else."""
    try:
        claims = _claims(token)
        return str(claims.get("sub", "")), str(claims.get("grp", ""))
    except (IndexError, ValueError, TypeError, AttributeError):
        return "", ""


def _claims(token: str) -> dict[str, Any]:
    middle = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return claims


def issuer_and_audience(token: str) -> tuple[str, set[str]]:
    """(issuer, audience) of a JSON Web Token, unverified; empty for anything else."""
    try:
        claims = _claims(token)
        audience = claims.get("aud", ())
        return str(claims.get("iss", "")), {audience} if isinstance(audience, str) else set(
            map(str, audience)
        )
    except (IndexError, ValueError, TypeError, AttributeError):
        return "", set()


def token_lifetime(token: str) -> tuple[float, float]:
    """(issued at, expires at) of a JSON Web Token, unverified; (0, 0) for anything else."""
    try:
        claims = _claims(token)
        expires = float(claims["exp"])
        return float(claims.get("iat", expires - 43200.0)), expires
    except (IndexError, ValueError, KeyError, TypeError, binascii.Error):
        return 0.0, 0.0
