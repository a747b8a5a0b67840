"""Tokens: keys and revocations in virtual time."""

from __future__ import annotations

import math
from dataclasses import replace

import jwt
import pytest

from pilotage.core import policy as policies
from pilotage.core.errors import NotAuthenticated
from pilotage.server.tokens import ALGORITHM, Issuer
from pilotage.services.pool.token_state import TokenKey, TokenState

NOW = 1_800_000_000.0
KEY = "k" * 48
POLICY = policies.parse(policies.initial("ada", "home"))
GROUP = POLICY.users["ada"].groups[0]


class Server:
    """An issuer whose state of tokens a test changes."""

    def __init__(self) -> None:
        self.state = TokenState()
        self.issuer = Issuer(KEY, "here", lambda: self.state)

    def issue(self, now: float = NOW, number: int | None = None) -> str:
        return self.issuer.issue("ada", GROUP, now, number=number)[0]

    def accepts(self, token: str, now: float = NOW + 1) -> bool:
        try:
            return self.issuer.read(token, POLICY, now).user == "ada"
        except NotAuthenticated:
            return False


@pytest.fixture
def server() -> Server:
    return Server()


def rotated(salt: str, until: float) -> TokenState:
    return TokenState({0: TokenKey("", until), 1: TokenKey(salt, math.inf)}, current=1)


def test_tokens_of_a_replaced_key_are_accepted_until_the_end_of_the_grace(server: Server) -> None:
    old = server.issue()
    server.state = rotated("salt", NOW + 100)
    new = server.issue()
    assert server.accepts(old, NOW + 100)
    assert not server.accepts(old, NOW + 101)
    assert server.accepts(new, NOW + 101)


def test_neither_the_file_nor_the_store_alone_signs_after_a_rotation(server: Server) -> None:
    claims = jwt.decode(
        server.issue(), KEY, [ALGORITHM], issuer="here", options={"verify_exp": False, "verify_iat": False}
    )
    server.state = rotated("salt", NOW)
    for key in (KEY, "salt" * 12, "", "0" * 64):
        assert not server.accepts(jwt.encode(claims, key or "x" * 32, ALGORITHM, headers={"kid": "1"}))
    with pytest.raises(NotAuthenticated):
        server.issuer.read(jwt.encode(claims, "", "none", headers={"kid": "1"}), POLICY, NOW)


@pytest.mark.parametrize("kid", ["2", "-1", "x", "", "9" * 30, "1.0", None])
def test_a_key_that_is_none(server: Server, kid: str | None) -> None:
    claims = jwt.decode(
        server.issue(), KEY, [ALGORITHM], issuer="here", options={"verify_exp": False, "verify_iat": False}
    )
    assert not server.accepts(
        jwt.encode(claims, KEY, ALGORITHM, headers={"kid": kid} if kid is not None else None)
    )


def test_a_revoked_token_and_its_renewals_are_refused_and_others_are_not(server: Server) -> None:
    token, other = server.issue(number=7), server.issue(number=8)
    caller = server.issuer.read(token, POLICY, NOW)
    renewed = server.issue(NOW + 5, number=caller.number)
    server.state = replace(server.state, revoked=frozenset({7}))
    assert [server.accepts(each, NOW + 6) for each in (token, renewed, other)] == [False, False, True]


def test_all_tokens_of_a_user_up_to_an_instant_are_refused(server: Server) -> None:
    before, later = server.issue(NOW), server.issue(NOW + 0.01)
    server.state = replace(server.state, cutoffs={"ada": NOW})
    assert [server.accepts(each) for each in (before, later)] == [False, True]
    server.state = replace(server.state, cutoffs={"bob": NOW + 60})
    assert server.accepts(before)


@pytest.mark.parametrize("name", ["exp", "iat"])
@pytest.mark.parametrize(
    "value",
    ["soon", [1], {"a": 1}, True, math.nan, math.inf, 10**400, -1e300],
    ids=lambda value: str(value)[:20],
)
def test_a_signed_token_whose_times_are_no_instants_is_refused(
    server: Server, name: str, value: object
) -> None:
    claims = {"iss": "here", "sub": "ada", "grp": GROUP, "iat": NOW, "exp": NOW + 100, name: value}
    key = server.issuer._signing_key("")
    assert not server.accepts(jwt.encode(claims, key, ALGORITHM, headers={"kid": "0"}))
