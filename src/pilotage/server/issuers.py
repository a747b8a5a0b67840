"""The trusted issuers of the policy: their keys, how they answer, and the claims of their tokens.

Tokens are checked with keys in memory. An issuer that is away for a while refuses nobody whose token is valid.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt

from pilotage.core.errors import NotAuthenticated, PilotageError, Unreachable
from pilotage.core.policy.issuer_model import TrustedIssuer
from pilotage.core.policy.model import Policy
from pilotage.outside.identity.model import CodeGrant, IssuerDocuments
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.outside_calls import OutsideCalls
from pilotage.server.tokens import CLOCK_SKEW

log = logging.getLogger(__name__)

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures with a public key. Never HS256: a public key must not count as a shared secret."""
_KEY_TYPES = frozenset({"RSA", "EC", "OKP"})
KEYS_LAST = 3600.0
"""Seconds after which keys are read again. Until that succeeds, the old ones count."""
LEAST_PAUSE = 30.0
"""Seconds between two looks at an issuer because of tokens with unknown keys. Anybody can send such tokens."""
ADDRESSES_LAST = 5.0
"""Seconds after which the addresses of an issuer are read again before a browser is sent there: it may be away."""
MOST_VERIFIED = 1000
"""Tokens whose signature was found valid, and is not computed again."""

_threads = DaemonThreads("keys of an issuer")


@dataclass(slots=True)
class IssuerState:
    """The keys of one issuer, and how it answers."""

    keys: dict[str, jwt.PyJWK] = field(default_factory=dict)
    """The keys by `kid`; a key without one is "" if there is no other."""
    documents: IssuerDocuments | None = None
    read_at: float = 0.0
    asked_at: float = -LEAST_PAUSE
    problem: str = ""
    """Why the last look has failed."""
    since: float | None = None
    """Since when it answers, or has this problem; None: it was not asked."""
    look: asyncio.Task[None] | None = None


def _read_documents(url: str, ca_file: str) -> IssuerDocuments:
    from pilotage.outside.identity.documents import read_documents  # here, as it imports an HTTP client

    return read_documents(url, ca_file)


class TrustedIssuers:
    """The issuers of one server. For the loop's thread."""

    def __init__(
        self,
        outside: OutsideCalls,
        read_documents: Callable[[str, str], IssuerDocuments] = _read_documents,
    ) -> None:
        """`read_documents`: reads them by the issuer's address and CAs. It blocks; `outside` makes the call."""
        self._outside = outside
        self._read_documents = read_documents
        self._states: dict[tuple[str, str], IssuerState] = {}
        self._verified: dict[str, tuple[str, Mapping[str, Any]]] = {}
        """Claims by token, with the name of the issuer."""

    def state(self, issuer: TrustedIssuer) -> IssuerState:
        return self._states.setdefault((issuer.url, issuer.ca_file), IssuerState())

    async def claims(
        self, policy: Policy, token: str, now: float, *, at_sign_in: bool
    ) -> tuple[str, Mapping[str, Any]]:
        """The name of the issuer of a token, and its claims. Raises NotAuthenticated with the reason.

        `at_sign_in`: the token may be meant for the issuer's client here. Otherwise it must be meant for this server.
        """
        name, issuer = _issuer_of(policy, token)
        claims = await self._verify(name, issuer, token, now)
        own = {issuer.client, issuer.web_client} - {""} if at_sign_in else set()
        accepted = {*issuer.audience, *own}
        audience = claims.get("aud", ())
        values = [audience] if isinstance(audience, str) else audience
        if not isinstance(values, list) or not accepted.intersection(
            value for value in values if isinstance(value, str)
        ):
            raise NotAuthenticated(
                f"this token of {name} is for somebody else: its audience is {str(audience)[:200]}",
                hint="`audience` of the issuer in the policy",
            )
        _check_time(name, claims, now)
        return name, claims

    async def look_at(self, name: str, issuer: TrustedIssuer, now: float) -> IssuerState:
        """Read the keys of an issuer now, and keep how it answers. The looks of several callers are one."""
        await asyncio.shield(self._begin_look(name, issuer, now))
        return self.state(issuer)

    def _begin_look(self, name: str, issuer: TrustedIssuer, now: float) -> asyncio.Task[None]:
        state = self.state(issuer)
        if state.look is None or state.look.done():
            state.asked_at = now
            state.look = asyncio.create_task(self._look(name, issuer, state, now))
        return state.look

    async def _look(self, name: str, issuer: TrustedIssuer, state: IssuerState, now: float) -> None:
        def read() -> IssuerDocuments:
            return self._outside.ask(
                f"issuer {name}: documents",
                IssuerDocuments,
                lambda: self._read_documents(issuer.url, issuer.ca_file),
            )

        problem = ""
        try:
            documents = await asyncio.get_running_loop().run_in_executor(_threads, read)
            keys = _public_keys(documents.keys)
            if not keys:
                raise Unreachable(f"{issuer.url} has no key for signatures")
            state.documents, state.keys, state.read_at = documents, keys, now
            self._verified.clear()
        except PilotageError as error:
            problem = error.message
        except Exception as error:
            # A document that nobody has foreseen: it is the issuer's problem, and no caller's.
            log.exception("issuer %s: its documents could not be read", name)
            problem = f"{issuer.url} answers with another document than expected: {type(error).__name__}"
        if problem != state.problem or state.since is None:
            state.since = now
            if problem:
                log.warning("issuer %s: %s", name, problem)
            elif state.problem:
                log.info("issuer %s answers again", name)
        state.problem = problem

    async def addresses(self, name: str, issuer: TrustedIssuer, now: float) -> IssuerDocuments:
        """The documents with the addresses of the code flow. Raises Unreachable if they cannot be read."""
        state = self.state(issuer)
        if state.documents is None or state.problem or now - state.asked_at >= ADDRESSES_LAST:
            state = await self.look_at(name, issuer, now)
        if state.problem or state.documents is None or not state.documents.authorization_endpoint:
            raise Unreachable(
                f"nobody can sign in at {name}: {state.problem or 'it names no address for that'}",
                hint="`pilotage issuer test` asks it again",
            )
        return state.documents

    async def redeem_code(
        self, issuer: TrustedIssuer, token_endpoint: str, code: str, verifier: str, redirect: str
    ) -> str:
        """The ID token for a code that a browser has brought. Raises NotAuthenticated, Unreachable."""
        from pilotage.outside.identity.documents import redeem_code  # here, as it imports an HTTP client

        grant = CodeGrant(code, verifier, redirect, issuer.web_client, issuer.web_secret_file)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            _threads, redeem_code, issuer.url, issuer.ca_file, token_endpoint, grant
        )

    async def _verify(self, name: str, issuer: TrustedIssuer, token: str, now: float) -> Mapping[str, Any]:
        known = self._verified.get(token)
        if known is not None and known[0] == name:
            return known[1]
        key = await self._key(name, issuer, token, now)
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                ALGORITHMS,
                issuer=issuer.url,
                # The instants are compared with the server's clock, and the audience with the policy, by the caller.
                options={
                    "require": ["exp", "sub", "iss", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,
                },
            )
        except jwt.PyJWTError as error:
            raise NotAuthenticated(
                f"this token of {name} is not valid: {error}", hint="sign in there again"
            ) from None
        while len(self._verified) >= MOST_VERIFIED:
            del self._verified[next(iter(self._verified))]
        self._verified[token] = name, claims
        return claims

    async def _key(self, name: str, issuer: TrustedIssuer, token: str, now: float) -> jwt.PyJWK:
        """The key that a token names. Unknown keys, and keys that are old, are read again."""
        state, kid = self.state(issuer), str(_header(token).get("kid", ""))
        key = _find(state.keys, kid)
        may_look = now - state.asked_at >= LEAST_PAUSE or (state.look is not None and not state.look.done())
        if (key is None or now - state.read_at > KEYS_LAST) and may_look:
            look = self._begin_look(name, issuer, now)
            if key is None:
                await asyncio.shield(look)
                key = _find(state.keys, kid)
        if key is not None:
            return key
        if state.problem:
            raise NotAuthenticated(
                f"tokens of {name} cannot be checked: {state.problem}",
                hint="try again when the issuer answers",
            )
        raise NotAuthenticated(
            f"the key of this token is none of {name}'s keys", hint="sign in there again for a new token"
        )


def is_foreign(policy: Policy, token: str) -> bool:
    """Whether a token may be one of a trusted issuer, and not one of this server."""
    return bool(policy.issuers) and _header(token).get("alg") in ALGORITHMS


def _header(token: str) -> Mapping[str, Any]:
    try:
        return jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        return {}


def _issuer_of(policy: Policy, token: str) -> tuple[str, TrustedIssuer]:
    """The issuer that the claim `iss` names, which is not verified yet."""
    try:
        url = jwt.decode(token, options={"verify_signature": False}).get("iss")
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise NotAuthenticated("this is no JSON Web Token", hint="sign in at the issuer") from None
    for name, issuer in policy.issuers.items():
        if issuer.url == url:
            return name, issuer
    raise NotAuthenticated(
        "this token is of an issuer that is not trusted here",
        hint="`pilotage issuer list` shows the trusted ones",
    )


def _public_keys(rows: list[dict[str, Any]]) -> dict[str, jwt.PyJWK]:
    """The keys for signatures that can be used. Others are left out: an issuer may have keys of any kind."""
    keys = {}
    for row in rows:
        if str(row.get("kty")) in _KEY_TYPES and row.get("use", "sig") == "sig" and "d" not in row:
            try:
                keys[str(row.get("kid", ""))] = jwt.PyJWK(row)
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                continue
    return keys


def _find(keys: Mapping[str, jwt.PyJWK], kid: str) -> jwt.PyJWK | None:
    return keys.get(kid) if kid or len(keys) != 1 else next(iter(keys.values()))


def _check_time(name: str, claims: Mapping[str, Any], now: float) -> None:
    expires, begins = _instant(claims.get("exp")), _instant(claims.get("nbf", 0))
    if now >= expires + CLOCK_SKEW:
        raise NotAuthenticated(
            f"this token of {name} has expired",
            hint="sign in there again; if you have just done so, compare the clocks of both machines",
        )
    for instant in (begins, _instant(claims.get("iat", 0))):
        if now < instant - CLOCK_SKEW:
            ahead = instant - now
            raise NotAuthenticated(
                f"this token of {name} is valid in {ahead:,.0f} s only",
                hint="compare the clocks of both machines",
            )


def _instant(claim: object) -> float:
    if isinstance(claim, bool) or not isinstance(claim, int | float) or not abs(claim) < 1e12:
        raise NotAuthenticated("an instant of this token is none", hint="sign in at the issuer again")
    return float(claim)
