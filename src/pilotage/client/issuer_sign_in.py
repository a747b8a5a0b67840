"""Signing in at an OpenID Connect issuer by device code (RFC 8628), and renewing that later without a person.

A home keeps the refresh token in issuer.json, readable by its owner only. Issuers replace a refresh token at each use,
and end the whole sign-in if an old one is used again. So one process at a time uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotage.client.credentials import issuer_and_audience, write_private
from pilotage.core.errors import Forbidden, InvalidInput, NotAuthenticated, Unreachable

if TYPE_CHECKING:
    from pilotage.wire.issuers import IssuerSummary

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
TIMEOUT = 20.0
SLOW_DOWN = 5.0
"""Seconds that each answer `slow_down` adds to the pause between two questions."""
SIGN_IN_AGAIN = "sign in again: `pilotage login URL`"


@dataclass(frozen=True)
class DeviceCode:
    """The address and the code by which a person signs in with a browser of any machine."""

    address: str
    code: str
    complete_address: str
    """The address with the code in it; empty: the issuer gives none."""


@dataclass(frozen=True)
class SignIn:
    """A sign-in at an issuer, as a home keeps it."""

    url: str
    token_endpoint: str
    client: str
    audience: list[str]
    group: str
    refresh_token: str
    revocation_endpoint: str = ""
    """Where the sign-in can be ended before its time (RFC 7009); empty: the issuer has no such address."""


@dataclass(frozen=True)
class IssuerTokens:
    """The answer of an issuer's token endpoint: a token for the server, and one for later ones."""

    token: str
    refresh_token: str


def sign_in(
    issuer: IssuerSummary,
    group: str,
    show: Callable[[DeviceCode], None],
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, SignIn]:
    """Let a person sign in. Returns a token of the issuer, and the sign-in to keep; its refresh token may be empty.

    `show` tells the person the address to open. Raises Forbidden if the person refuses, NotAuthenticated if the code
    expires.
    """
    endpoints = _get(f"{issuer.url.rstrip('/')}/.well-known/openid-configuration")
    device_endpoint, token_endpoint = (
        _endpoint(endpoints, name) for name in ("device_authorization_endpoint", "token_endpoint")
    )
    answer = _post(device_endpoint, {"client_id": issuer.client, "scope": " ".join(issuer.scopes)})
    _need_success(answer, "the issuer gives no code")
    try:
        code, seconds = str(answer["device_code"]), float(answer["expires_in"])
        pause = float(answer.get("interval", SLOW_DOWN))
        show(
            DeviceCode(
                str(answer["verification_uri"]),
                str(answer["user_code"]),
                str(answer.get("verification_uri_complete", "")),
            )
        )
    except (KeyError, TypeError, ValueError):
        raise Unreachable(f"{issuer.url} answers with another document than expected") from None
    form = {"grant_type": DEVICE_GRANT, "device_code": code, "client_id": issuer.client}
    revocation = endpoints.get("revocation_endpoint")
    kept = SignIn(
        url=issuer.url,
        token_endpoint=token_endpoint,
        client=issuer.client,
        audience=issuer.audience,
        group=group,
        refresh_token="",
        revocation_endpoint=revocation if isinstance(revocation, str) else "",
    )
    tokens = _wait(token_endpoint, form, kept, seconds, pause, sleep)
    return tokens.token, SignIn(**{**asdict(kept), "refresh_token": tokens.refresh_token})


def _wait(
    endpoint: str,
    form: Mapping[str, str],
    kept: SignIn,
    seconds: float,
    pause: float,
    sleep: Callable[[float], None],
) -> IssuerTokens:
    waited = 0.0
    while waited <= seconds:
        sleep(pause)
        waited += pause
        answer = _post(endpoint, form)
        error = answer.get("error")
        if error == "slow_down":
            pause += SLOW_DOWN
        elif error == "access_denied":
            raise Forbidden("the sign-in was refused at the issuer")
        elif error == "expired_token":
            break
        elif error != "authorization_pending":
            _need_success(answer, "the issuer gives no token")
            return _read_tokens(answer, kept)
    raise NotAuthenticated("nobody has signed in in time", hint=SIGN_IN_AGAIN)


class KeptSignIn:
    """The file issuer.json of a home. Several processes may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def write(self, kept: SignIn) -> None:
        write_private(self.path, json.dumps(asdict(kept)))

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def revoke(self) -> None:
        """End the sign-in at its issuer. Raises NotAuthenticated or Unreachable if it may go on there."""
        with self.locked():
            kept = self._read()
            if not kept.revocation_endpoint:
                raise NotAuthenticated(f"{kept.url} lets no program end a sign-in")
            form = {"token": kept.refresh_token, "token_type_hint": "refresh_token", "client_id": kept.client}
            _need_success(_post(kept.revocation_endpoint, form), f"{kept.url} does not end the sign-in")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from using the refresh token meanwhile."""
        handle = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def renew(self) -> tuple[str, str]:
        """A new token of the issuer, and the group to exchange it for. The lock is held.

        The next refresh token is on disk before this returns. Raises NotAuthenticated if the sign-in is over.
        """
        kept = self._read()
        form = {
            "grant_type": "refresh_token",
            "refresh_token": kept.refresh_token,
            "client_id": kept.client,
        }
        answer = _post(kept.token_endpoint, form)
        if answer.get("error") == "invalid_grant":
            raise NotAuthenticated(f"the sign-in at {kept.url} is over", hint=SIGN_IN_AGAIN)
        _need_success(answer, "the issuer gives no token")
        tokens = _read_tokens(answer, kept)
        if tokens.refresh_token:
            self.write(SignIn(**{**asdict(kept), "refresh_token": tokens.refresh_token}))
        return tokens.token, kept.group

    def _read(self) -> SignIn:
        try:
            return SignIn(**json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise NotAuthenticated(
                f"{self.path} does not hold a sign-in that can be renewed", hint=SIGN_IN_AGAIN
            ) from None


def _read_tokens(answer: Mapping[str, Any], kept: SignIn) -> IssuerTokens:
    """Choose the access token if it is meant for the server, else the ID token."""
    for name in ("access_token", "id_token"):
        token = answer.get(name)
        if not isinstance(token, str):
            continue
        url, audience = issuer_and_audience(token)
        if url == kept.url and audience.intersection([*kept.audience, kept.client]):
            return IssuerTokens(token, str(answer.get("refresh_token", "")))
    raise NotAuthenticated(
        f"{kept.url} gives no token that this server accepts",
        hint="`scopes` of the issuer in the policy must have openid, or make its access tokens ones for `audience`",
    )


def _endpoint(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise InvalidInput(
            f"the issuer has no {name}", hint="it cannot be used by the command line; ask for a token"
        )
    return value


def _need_success(answer: Mapping[str, Any], what: str) -> None:
    if "error" in answer:
        reason = str(answer.get("error_description") or answer["error"])
        raise NotAuthenticated(f"{what}: {reason[:300]}", hint=SIGN_IN_AGAIN)


def _get(url: str) -> dict[str, Any]:
    return _call("GET", url, None)


def _post(url: str, form: Mapping[str, str]) -> dict[str, Any]:
    return _call("POST", url, form)


def _call(method: str, url: str, form: Mapping[str, str] | None) -> dict[str, Any]:
    """The JSON object that the issuer answers with; also that of an error of OAuth. Nothing at all is an empty one."""
    import httpx  # here: most commands need none

    try:
        answer = httpx.request(
            method, url, data=form, timeout=TIMEOUT, headers={"Accept": "application/json"}
        )
        document = answer.json() if answer.content or answer.is_error else {}
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise Unreachable(f"{url} does not answer: {error or type(error).__name__}") from None
    except ValueError:
        document = None
    if not isinstance(document, dict) or (answer.is_error and "error" not in document):
        raise Unreachable(
            f"{url} answers with status {answer.status_code} and another document than expected"
        )
    return document
