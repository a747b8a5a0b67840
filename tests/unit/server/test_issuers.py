"""Tokens of trusted issuers: good ones, forged ones, and an issuer that is away."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pilotage.core.errors import Forbidden, NotAuthenticated, PilotageError, Unreachable
from pilotage.core.policy import Policy, parse
from pilotage.outside.identity.documents import read_documents
from pilotage.server.http.identity import capability_of, check_sender
from pilotage.server.issuers import ADDRESSES_LAST, KEYS_LAST, LEAST_PAUSE, TrustedIssuers, is_foreign
from pilotage.server.outside_calls import DirectCalls
from pilotage.server.tokens import Caller, Issuer
from pilotage.services.pool.token_state import TokenState
from pilotage.wire.call import all_calls
from tests.issuer import AUDIENCE, CLIENT, URL, PlayedIssuer

NOW = 1_800_000_000.0
TEXT = f"""\
[groups.analysis]
share = 1
properties = ["NORMAL_USER"]
[users.alice]
groups = ["analysis"]
[issuers.iam]
url = "{URL}"
client = "{CLIENT}"
audience = ["{AUDIENCE}"]
[issuers.iam.groups]
"/exp/analysis" = "analysis"
"""


class Side:
    """A server's side of one issuer."""

    def __init__(self, text: str = TEXT) -> None:
        self.issuer = PlayedIssuer()
        self.policy: Policy = parse(text)
        self.trusted = TrustedIssuers(DirectCalls(), self.issuer.read_documents)

    def claims(self, token: str, now: float = NOW, *, at_sign_in: bool = False) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            name, claims = await self.trusted.claims(self.policy, token, now, at_sign_in=at_sign_in)
            assert name == "iam"
            look = self.trusted.state(self.policy.issuers["iam"]).look
            if look is not None:
                await look
            return dict(claims)

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def side() -> Side:
    return Side()


@pytest.mark.parametrize("kid", ["rsa", "ec"])
def test_a_good_token(side: Side, kid: str) -> None:
    assert side.claims(side.issuer.token(NOW, kid=kid))["preferred_username"] == "alice"


def _unsigned(token: str) -> str:
    header = (
        base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "rsa"}).encode()).rstrip(b"=").decode()
    )
    return f"{header}.{token.split('.')[1]}."


def _confused(token: str, issuer: PlayedIssuer) -> str:
    """Signed by HMAC with the public key as the secret."""
    public = issuer.rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = jwt.decode(token, options={"verify_signature": False})
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        header + b"." + body, public
    )
    return b".".join((header, body, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


def _by_another_key(now: float) -> str:
    other = PlayedIssuer()
    return other.token(now)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aud": "https://other.example.org"}, "for somebody else"),
        ({"aud": ["x", "y"]}, "for somebody else"),
        ({"aud": [7, {"a": 1}]}, "not valid|for somebody else"),
        ({"aud": CLIENT}, "for somebody else"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "sub"),
        ({"exp": None}, "exp"),
        ({"exp": NOW - 100}, "expired"),
        ({"exp": "soon"}, "instant|not valid"),
        ({"exp": True}, "instant|not valid"),
        ({"nbf": NOW + 3600}, "3,600 s only"),
        ({"iat": NOW + 3600}, "clocks|3,600 s only"),
        ({"iss": "https://evil.example.org"}, "not trusted"),
        ({"iss": URL.rstrip("/")}, "not trusted"),
        ({"iss": None}, "not trusted"),
    ],
)
def test_a_token_that_is_not_for_here(side: Side, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotAuthenticated, match=reason):
        side.claims(side.issuer.token(NOW, **changes))


def test_forged_tokens(side: Side) -> None:
    good = side.issuer.token(NOW)
    head, body, signature = good.split(".")
    other_body = side.issuer.token(NOW, preferred_username="admin").split(".")[1]
    forged = [
        _unsigned(good),
        _confused(good, side.issuer),
        _by_another_key(NOW),
        f"{head}.{other_body}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}",
        "a.b.c",
        "",
        "..",
        "é.é.é",
        f"{head}.{body}.{signature[:-4]}AAAA",
    ]
    for token in forged:
        with pytest.raises(NotAuthenticated):
            side.claims(token, at_sign_in=True)


def test_an_id_token_signs_in_but_is_no_token_of_calls(side: Side) -> None:
    token = side.issuer.token(NOW, aud=CLIENT)
    assert side.claims(token, at_sign_in=True)["aud"] == CLIENT
    with pytest.raises(NotAuthenticated, match="somebody else"):
        side.claims(token)


def test_a_clock_may_be_a_minute_off(side: Side) -> None:
    assert side.claims(side.issuer.token(NOW + 50))
    assert side.claims(side.issuer.token(NOW - 640))
    with pytest.raises(NotAuthenticated):
        side.claims(side.issuer.token(NOW - 700))


@pytest.mark.parametrize("behind", [3600.0, -3600.0])
def test_a_fresh_sign_in_at_a_clock_that_is_an_hour_off_names_the_clocks(side: Side, behind: float) -> None:
    with pytest.raises(NotAuthenticated) as refused:
        side.claims(side.issuer.token(NOW - behind, aud=CLIENT), at_sign_in=True)
    assert "compare the clocks" in (refused.value.hint or "")


def test_an_issuer_that_is_away_refuses_nobody_whose_key_is_known() -> None:
    side = Side()
    token = side.issuer.token(NOW)
    side.claims(token)
    side.issuer.failure = Unreachable("it does not answer")
    later = NOW + KEYS_LAST + 1
    assert side.claims(side.issuer.token(later), later)
    state = side.trusted.state(side.policy.issuers["iam"])
    assert state.problem == "it does not answer"
    assert state.since == later


def test_no_browser_is_sent_to_an_issuer_that_is_away() -> None:
    """Its addresses were read before. It is asked again, and the sign-in goes on as soon as it answers."""
    side = Side()
    issuer = side.policy.issuers["iam"]

    def addresses(now: float) -> str:
        return asyncio.run(side.trusted.addresses("iam", issuer, now)).authorization_endpoint

    known = addresses(NOW)
    assert known
    side.issuer.failure = Unreachable("it does not answer")
    with pytest.raises(Unreachable, match="nobody can sign in at iam: it does not answer"):
        addresses(NOW + ADDRESSES_LAST)
    side.issuer.failure = None
    assert addresses(NOW + ADDRESSES_LAST) == known


def test_an_issuer_that_never_answered_says_so() -> None:
    side = Side()
    side.issuer.failure = Unreachable("it does not answer")
    with pytest.raises(NotAuthenticated, match="cannot be checked: it does not answer"):
        side.claims(side.issuer.token(NOW))


def test_a_new_key_is_read_once_and_unknown_ones_do_not_ask_the_issuer_each_time() -> None:
    side = Side()
    side.claims(side.issuer.token(NOW))
    assert side.issuer.reads == 1
    old = side.issuer.rsa
    side.issuer.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(side.issuer.rsa.public_key()))
    side.issuer.documents = [{**public, "kid": "new", "use": "sig"}]
    later = NOW + LEAST_PAUSE
    assert side.claims(side.issuer.token(later, kid="new"), later)
    assert side.issuer.reads == 2
    side.issuer.rsa = old
    for n in range(20):
        with pytest.raises(NotAuthenticated, match="none of iam's keys"):
            side.claims(side.issuer.token(later, kid=f"unknown{n}"), later + n)
    assert side.issuer.reads == 2
    with pytest.raises(NotAuthenticated, match="none of iam's keys"):
        side.claims(side.issuer.token(later), later + LEAST_PAUSE)
    assert side.issuer.reads == 3, "a key that was withdrawn counts no more"


def test_keys_that_cannot_be_used_are_left_out() -> None:
    side = Side()
    side.issuer.documents = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
        {"kty": "RSA", "kid": "broken"},
        {"kty": ["RSA"], "kid": "list"},
        {"kty": {"RSA": 1}, "use": ["sig"], "kid": ["list"]},
        {**side.issuer.documents[0], "kid": "n", "n": [1], "e": {}},
        {**side.issuer.documents[0], "kid": "alg", "alg": ["RS256"]},
        {"kty": "RSA", "n": "!", "e": "!", "kid": "worse", "use": "sig"},
        {**side.issuer.documents[0], "use": "enc", "kid": "enc"},
        *side.issuer.documents,
    ]
    assert side.claims(side.issuer.token(NOW))
    keys = side.trusted.state(side.policy.issuers["iam"]).keys
    assert keys.keys() == {"rsa", "ec"}


def test_a_document_that_nobody_has_foreseen_is_a_problem_of_the_issuer() -> None:
    side = Side()
    side.issuer.failure = RecursionError("too deep")
    with pytest.raises(NotAuthenticated, match="another document than expected: RecursionError"):
        side.claims(side.issuer.token(NOW))


@pytest.mark.parametrize(
    "address",
    [
        "https://x/a\r\nSet-Cookie: a=b",
        "https://x/\n",
        "https://[x/",
        "https://x/ y",
        "https://x/\x85",
        "http://x/",
    ],
)
@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
def test_an_address_of_an_issuer_that_is_none_is_refused(name: str, address: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        documents = {"issuer": URL, "jwks_uri": f"{URL}keys", "keys": [], name: address}
        return httpx.Response(200, json=documents)

    with pytest.raises(Unreachable, match=r"address|without TLS"):
        read_documents(URL, "", httpx.MockTransport(answer))


def test_many_callers_look_once() -> None:
    side = Side()

    async def ask() -> None:
        tokens = [side.issuer.token(NOW, jti=str(n)) for n in range(20)]
        await asyncio.gather(
            *(side.trusted.claims(side.policy, token, NOW, at_sign_in=False) for token in tokens)
        )

    asyncio.run(ask())
    assert side.issuer.reads == 1


# The caller


def caller_of(claims: dict[str, Any], state: TokenState | None = None) -> Caller:
    kept = state or TokenState()
    return Issuer("key" * 20, "here", lambda: kept).foreign_caller("iam", claims, parse(TEXT), NOW)


def claims_of(**changes: Any) -> dict[str, Any]:
    return jwt.decode(PlayedIssuer().token(NOW, **changes), options={"verify_signature": False})


def test_revocation_of_a_user_ends_the_tokens_of_issuers_too() -> None:
    assert caller_of(claims_of()).user == "alice"
    with pytest.raises(NotAuthenticated, match="revoked"):
        caller_of(claims_of(), TokenState(cutoffs={"alice": NOW + 1}))
    assert caller_of(claims_of(iat=int(NOW) + 2), TokenState(cutoffs={"alice": NOW + 1}))


def test_own_tokens_name_their_issuer_and_end_with_its_trust() -> None:
    issuer = Issuer("key" * 20, "here")
    token, _ = issuer.issue("alice", "analysis", NOW, 60.0, issuer="iam")
    assert not is_foreign(parse(TEXT), token)
    assert issuer.read(token, parse(TEXT), NOW).issuer == "iam"
    with pytest.raises(NotAuthenticated, match="not trusted any more"):
        issuer.read(token, parse(TEXT.partition("[issuers")[0]), NOW)


def test_the_user_of_a_claim_needs_a_place_in_the_policy() -> None:
    with pytest.raises(Forbidden):
        caller_of(claims_of(preferred_username="eve"))
    with pytest.raises(PilotageError):
        caller_of(claims_of(**{"wlcg.groups": []}))


def test_every_call_needs_a_capability() -> None:
    needed = {key: capability_of(*key.split(" ", 1)) for key in all_calls()}
    assert {
        key for key, value in needed.items() if value == "compute.read" and not key.startswith("GET ")
    } == {key for key in needed if key.startswith("HEAD ") or key.endswith("/check")}
    assert needed["POST /v1/submissions"] == "compute.create"
    assert capability_of("POST", "/v1/jobs/kill") == needed["POST /v1/pilots/kill"] == "compute.cancel"
    # A new noun is here until somebody has decided that its calls give nobody rights (core.identity.claims.COMPUTING).
    assert {key for key, value in needed.items() if value is None and "/v1/pilot/" not in key} == {
        "POST /v1/policy/rollback",
        "POST /v1/shutdown",
        "POST /v1/tokens",
        "POST /v1/tokens/exchange",
        "POST /v1/tokens/home",
        "POST /v1/tokens/refresh",
        "POST /v1/tokens/revoke",
        "POST /v1/tokens/rotate-key",
        "POST /v1/web/codes",
        "PUT /v1/policy",
    }


def test_a_bounded_token_of_an_administrator_gets_no_further_rights() -> None:
    bounded = Caller(
        "root", "root", frozenset({"ADMINISTRATOR"}), NOW, capabilities=frozenset({"compute.modify"})
    )
    for key, call in all_calls().items():
        scope = {"method": call.method, "path": call.path, "state": {"identity": bounded}}
        if call.access.token and capability_of(*key.split(" ", 1)) is None:
            with pytest.raises(Forbidden, match="no scope of computing"):
                check_sender(call.access, scope)
