"""The sessions of people's browsers, and the codes that begin one. A restart ends codes; sessions lie in a file too.

A session is bound to the token with which it began. Its own token has the same number, user, group and instant of the
sign-in, never leaves the server, and is read at each request. So a session ends with that token: when it expires, is
revoked, or its user is removed from the policy. A code ends with it too: the same question is asked when it is used.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from pilotage.core.errors import Forbidden, NotAuthenticated
from pilotage.core.secret_source import SecretSource
from pilotage.server.tokens import Caller, Issuer

CODE_LIFETIME = 60.0
"""Seconds in which a code must be used."""
LONGEST = 8 * 3600.0
"""Seconds from the sign-in to the end of a session, at most."""
IDLE = 3600.0
"""Seconds without a request after which a session ends."""
SESSIONS_OF_A_USER = 20
"""A further session ends the user's oldest one."""


@dataclass(slots=True)
class WebSession:
    """One signed-in browser."""

    key: str
    """The value of its cookie; empty: nobody has used it since the start of the server."""
    token: str
    """Proves who it is, at each request. The browser does not have it."""
    form_token: str
    """Stands in the forms of its pages, so that no other site can send them."""
    used: float
    """Seconds since 1970."""


class StoredSession(msgspec.Struct, frozen=True):
    """A session as it outlives the server. The file cannot sign a browser in: it has the digest of the cookie only."""

    digest: str
    user: str
    token: str
    form_token: str
    used: float


@dataclass(frozen=True, slots=True)
class _Code:
    text: str
    caller: Caller
    expires: float


class WebSessions:
    """The sessions and codes of one server. For the thread of the event loop."""

    def __init__(self, stored: Iterable[StoredSession] = ()) -> None:
        """`stored`: the sessions of the last server of the home, the oldest of each user first."""
        self._sessions: dict[str, WebSession] = {}
        """The key is the digest of the cookie's value."""
        self._of_users: dict[str, deque[str]] = {}
        """Digests of the keys by user, the oldest first."""
        self._codes: dict[str, _Code] = {}
        """The newest code of each user. A further one replaces it."""
        for row in stored:
            self._sessions[row.digest] = WebSession("", row.token, row.form_token, row.used)
            self._of_users.setdefault(row.user, deque()).append(row.digest)

    def stored(self, now: float) -> list[StoredSession]:
        """The sessions that may be used again, for the next server."""
        rows = (
            (digest, user, self._sessions.get(digest))
            for user, keys in self._of_users.items()
            for digest in keys
        )
        return [
            StoredSession(digest, user, session.token, session.form_token, session.used)
            for digest, user, session in rows
            if session is not None and now - session.used <= IDLE
        ]

    def new_code(self, caller: Caller, now: float, secrets: SecretSource) -> tuple[str, float]:
        """A code with which a browser can sign in once as the caller, and its end. Raises Forbidden.

        A token with scopes of computing gives none: the session would allow more.
        """
        if caller.capabilities is not None:
            raise Forbidden(
                "a token with scopes of computing begins no session", hint="sign in without these scopes"
            )
        code = _Code(secrets.token_urlsafe(32), caller, now + CODE_LIFETIME)
        self._codes[caller.user] = code
        return code.text, code.expires

    def redeem(self, text: str, standing: Callable[[Caller], Caller], now: float) -> Caller:
        """The caller to whom a code was given. It works once. Raises NotAuthenticated.

        `standing`: the caller as the rights are now; raises an error if they have ended since.
        """
        digest = _digest(text)
        for user, code in self._codes.items():
            if _digest(code.text) == digest:
                del self._codes[user]
                if now < code.expires:
                    return standing(code.caller)
                break
        raise NotAuthenticated(
            "this code was used already, or is older than a minute", hint="`pilotage web` gives another one"
        )

    def begin(self, caller: Caller, issuer: Issuer, now: float, secrets: SecretSource) -> WebSession:
        """A new session of the caller, with new secrets."""
        lifetime = min(LONGEST, caller.expires - now)
        token, _ = issuer.issue(
            caller.user,
            caller.group,
            now,
            lifetime,
            home=caller.home,
            number=caller.number,
            issuer=caller.issuer,
            signed_in=caller.signed_in,
        )
        session = WebSession(secrets.token_urlsafe(32), token, secrets.token_urlsafe(32), now)
        digest = _digest(session.key)
        self._sessions[digest] = session
        keys = self._of_users.setdefault(caller.user, deque())
        keys.append(digest)
        while len(keys) > SESSIONS_OF_A_USER:
            self._sessions.pop(keys.popleft(), None)
        return session

    def find(
        self, key: str, read: Callable[[str], Caller], now: float, *, idle: bool = False
    ) -> tuple[WebSession, Caller]:
        """The session of a cookie, and who it is. Raises the error of its token, or NotAuthenticated.

        `read`: the caller of a token. `idle`: an open page asks, not a person.
        """
        session = self._sessions.get(_digest(key)) if key else None
        if session is None:
            raise NotAuthenticated("you are not signed in")
        if now - session.used > IDLE:
            self.end(key)
            raise NotAuthenticated("the session has ended, since it was not used for an hour")
        caller = read(session.token)
        session.key = key
        if not idle:
            session.used = now
        return session, caller

    def knows(self, key: str, now: float) -> bool:
        """Whether the cookie is of a session that may be used. Whose it is, and its rights, are not looked at."""
        session = self._sessions.get(_digest(key)) if key else None
        return session is not None and now - session.used <= IDLE

    def end(self, key: str) -> None:
        """Sign out."""
        self._sessions.pop(_digest(key), None)


def cookie_name(instance: str) -> str:
    """The cookie of a server: cookies of one machine are shared by all its ports."""
    return "pilotage_" + _digest(instance)[:12]


def _digest(secret: str) -> str:
    """Secrets are looked up by their digest: the time of a look-up tells nothing about them."""
    return hashlib.sha256(secret.encode()).hexdigest()
