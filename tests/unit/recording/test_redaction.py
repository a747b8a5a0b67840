"""The record has other secrets in the place of real ones, which a replay draws, and the live server never accepts."""

from __future__ import annotations

import hashlib
import random
import secrets

import jwt
import msgspec
import pytest

from pilotage.core.errors import NotAuthenticated
from pilotage.core.policy import initial, parse
from pilotage.server.recording.lines import CallOutcome, ReceivedMessage, ReceivedSignal
from pilotage.server.recording.redaction import RecordedSecrets, Redaction, SeededSecrets
from pilotage.server.tokens import Issuer
from pilotage.wire.pilot_calls import ENROL, EXCHANGE

NOW = 1_000.0
LIVE, REPLAY = "live key" * 8, "replay key" * 8
POLICY = parse(initial("ada", "home"))


def message(path: str, token: str = "", body: bytes = b"") -> ReceivedMessage:
    headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
    return ReceivedMessage(1, "POST", path, b"", b"", [*headers, (b"cookie", b"a=b")], None, body)


def seeded() -> SeededSecrets:
    return SeededSecrets(random.Random(7))


def test_a_replay_draws_what_the_record_has() -> None:
    redaction = Redaction(b"key")
    source, again = RecordedSecrets(secrets, seeded(), redaction), seeded()
    tokens = [source.token_urlsafe(32) for _ in range(3)]
    assert source.token_hex(8) != source.token_hex(8)
    places = [again.token_urlsafe(32) for _ in range(3)]
    assert not set(tokens) & set(places)
    body = b'{"token":"%s","other":["%s"]}' % (tokens[0].encode(), tokens[2].encode())
    shown = redaction.of_bytes(body)
    assert shown == b'{"token":"%s","other":["%s"]}' % (places[0].encode(), places[2].encode())
    given = redaction.of_input(message(EXCHANGE.path, tokens[1], body))
    assert isinstance(given, ReceivedMessage)
    assert given.headers == [(b"authorization", b"Bearer " + places[1].encode())]


def test_stamps_and_seeds_follow_from_the_seed() -> None:
    source, again = RecordedSecrets(secrets, seeded(), Redaction(b"")), seeded()
    assert (source.token_hex(8), source.randbelow(1000)) == (again.token_hex(8), again.randbelow(1000))


@pytest.mark.parametrize("in_body", [False, True])
def test_a_secret_of_an_earlier_server_is_hidden_and_told_by_its_digest(in_body: bool) -> None:
    told: list[tuple[str, str]] = []
    redaction = Redaction(secrets.token_bytes(32))
    redaction.known_secret = lambda digest, shown: told.append((digest, shown))
    secret = secrets.token_urlsafe(32)
    given = (
        message(ENROL.path, body=msgspec.json.encode({"secret": secret}))
        if in_body
        else message(EXCHANGE.path, secret)
    )
    first, second = (redaction.of_input(given) for _ in range(2))
    assert first == second
    assert secret.encode() not in msgspec.json.encode(first)
    [(digest, shown)] = told
    assert digest == hashlib.sha256(secret.encode()).hexdigest()
    assert isinstance(first, ReceivedMessage)
    assert shown.encode() in first.body if in_body else shown.encode() in first.headers[0][1]


def test_tokens_of_people_are_valid_at_the_replay_only() -> None:
    redaction = Redaction(b"")
    live, other = Issuer(LIVE, "instance"), Issuer(REPLAY, "instance")
    redaction.resign = lambda token: live.signed_with(REPLAY, token, redaction.shown)
    token, _ = live.issue("ada", "home", NOW, home=True, number=3)
    given = redaction.of_input(message("/v1/jobs", token))
    assert isinstance(given, ReceivedMessage)
    shown = given.headers[0][1].removeprefix(b"Bearer ").decode()
    assert other.read(shown, POLICY, NOW) == live.read(token, POLICY, NOW)
    with pytest.raises(NotAuthenticated):
        live.read(shown, POLICY, NOW)
    assert redaction.of_bytes(b'{"token": "%s"}' % token.encode()) == b'{"token": "%s"}' % shown.encode()


@pytest.mark.parametrize("key", ["another key" * 4, ""])
def test_a_wrong_token_stays_wrong(key: str) -> None:
    live, other = Issuer(LIVE, "instance"), Issuer(REPLAY, "instance")
    claims = {"iss": "instance", "sub": "ada", "exp": NOW + 60}
    token = jwt.encode(claims, key or LIVE, "HS256", headers={"kid": "0" if key else "77"})
    shown = live.signed_with(REPLAY, token, lambda salt: salt)
    messages = []
    for issuer, given in ((live, token), (other, shown)):
        with pytest.raises(NotAuthenticated) as error:
            issuer.read(given, POLICY, NOW)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_other_inputs_are_left_alone() -> None:
    assert Redaction(b"").of_input(ReceivedSignal(15)) == ReceivedSignal(15)


def test_signed_addresses_lose_their_signature() -> None:
    redaction = Redaction(b"key")
    address = (
        "https://s3.example.org/data/a?X-Amz-Date=1&X-Amz-Security-Token=tok%2Fen&X-Amz-Signature=0123abcd"
    )
    shown = "https://s3.example.org/data/a?X-Amz-Date=1&X-Amz-Security-Token=-&X-Amz-Signature=-"
    answer = msgspec.json.encode({"method": "PUT", "address": address})
    assert msgspec.json.decode(redaction.of_bytes(answer)) == {"method": "PUT", "address": shown}
    outcome = CallOutcome(
        1.0, "storage results: address", 1, msgspec.Raw(msgspec.json.encode(["PUT", address]))
    )
    assert msgspec.json.decode(redaction.of_outcome(outcome).value) == ["PUT", shown]
