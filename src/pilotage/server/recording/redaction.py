"""Secrets of a recorded server: they come from the operating system, and the record has other ones in their place.

The others are drawn with the seed of the record, in the same order. So a replay draws them again, and nobody can use a
record to speak to the server.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
import re
from collections.abc import Callable

import msgspec

from pilotage.core.pilots.tokens import program_token
from pilotage.core.secret_source import SecretSource
from pilotage.server.recording.lines import CallOutcome, Input, ReceivedMessage
from pilotage.wire.pilot import EnrolRequest
from pilotage.wire.pilot_calls import ENROL

_DRAWN = re.compile(rb"(?<![\w-])[\w-]{43}(?![\w-])")
"""A token of 32 bytes, which `token_urlsafe` draws."""
_SIGNED = re.compile(rb"(X-Amz-(?:Signature|Security-Token)=)[^&\"\s]+")
"""The parts of an address by which anybody can use it at an S3 service."""
_JWT = re.compile(rb"eyJ[\w-]+\.[\w-]+\.[\w-]*")

MOST_UNKNOWN = 100_000
"""Secrets of earlier servers that a record can have. Anybody may send wrong ones."""

_decode_enrolment = msgspec.json.Decoder(EnrolRequest).decode

Resign = Callable[[str], str]
"""From the token of a person to one with the same claims, which is valid at a replay only if the first is valid."""


class SeededSecrets:
    """A `SecretSource` that a seed predicts. Nothing secret may be made with it."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def token_hex(self, nbytes: int, /) -> str:
        return self._rng.randbytes(nbytes).hex()

    def token_urlsafe(self, nbytes: int, /) -> str:
        return base64.urlsafe_b64encode(self._rng.randbytes(nbytes)).rstrip(b"=").decode()

    def randbelow(self, exclusive_upper_bound: int, /) -> int:
        return self._rng.randrange(exclusive_upper_bound)


class Redaction:
    """Replaces secrets in messages and answers."""

    def __init__(self, key: bytes) -> None:
        """`key`: hides secrets that this server did not draw. Nobody keeps it."""
        self._shown: dict[bytes, bytes] = {}
        self._places: set[bytes] = set()
        self._key = key
        self._unknown = 0
        self.known_secret: Callable[[str, str], object] = lambda digest, shown: None
        """Called with the digest of a secret that this server did not draw, and the text in its place."""
        self.resign: Resign = lambda token: ""
        self._resigned: dict[bytes, bytes] = {}

    def shows(self, secret: str, shown: str) -> None:
        """The record has `shown` in the place of a secret."""
        self._shown[secret.encode()] = shown.encode()
        self._places.add(shown.encode())

    def shown(self, secret: str) -> str:
        """The text in the place of a secret; the same text if it is none."""
        return self._shown.get(secret.encode(), secret.encode()).decode()

    def of_input(self, given: Input) -> Input:
        if not isinstance(given, ReceivedMessage):
            return given
        headers = [
            (name, self._of_credentials(value) if name == b"authorization" else value)
            for name, value in given.headers
            if name != b"cookie"
        ]
        body = self.of_bytes(given.body)
        if given.path == ENROL.path:
            body = _DRAWN.sub(lambda found: self._of_unknown(found[0]), body)
            self._shows_token(given.body, body)
        return msgspec.structs.replace(given, headers=headers, body=body)

    def _shows_token(self, enrolment: bytes, recorded: bytes) -> None:
        """Let the record have the token that a replay makes of the recorded enrolment."""
        try:
            real, shown = (_decode_enrolment(body) for body in (enrolment, recorded))
        except msgspec.DecodeError:
            return  # it is refused
        self.shows(
            *(program_token(enrolled.secret, enrolled.index, enrolled.nonce) for enrolled in (real, shown))
        )

    def of_outcome(self, outcome: CallOutcome) -> CallOutcome:
        """The result of a call, as the record has it."""
        return msgspec.structs.replace(outcome, value=msgspec.Raw(_SIGNED.sub(rb"\1-", bytes(outcome.value))))

    def of_bytes(self, text: bytes) -> bytes:
        text = _SIGNED.sub(rb"\1-", text)
        text = _DRAWN.sub(lambda found: self._shown.get(found[0], found[0]), text)
        return _JWT.sub(lambda found: self._of_jwt(found[0]), text)

    def _of_credentials(self, value: bytes) -> bytes:
        kind, _, token = value.partition(b" ")
        token = token.strip()
        if token in self._shown:
            return kind + b" " + self._shown[token]
        if _JWT.fullmatch(token):
            return kind + b" " + self._of_jwt(token)
        return kind + b" " + self._of_unknown(token) if token else value

    def _of_unknown(self, token: bytes) -> bytes:
        """In the place of a secret of an earlier server, or of a wrong one."""
        if token in self._places:
            return token
        shown = self._shown.get(token)
        if shown is None:
            drawn = hmac.new(self._key, token, hashlib.sha256).digest()
            shown = base64.urlsafe_b64encode(drawn).rstrip(b"=")
            if self._unknown < MOST_UNKNOWN:
                self._unknown += 1
                self.shows(token.decode("latin-1"), shown.decode())
                self.known_secret(hashlib.sha256(token).hexdigest(), shown.decode())
        return shown

    def _of_jwt(self, token: bytes) -> bytes:
        resigned = self._resigned.get(token)
        if resigned is None:
            if len(self._resigned) > 10_000:
                self._resigned.clear()
            resigned = self._resigned[token] = self.resign(token.decode()).encode()
        return resigned


class RecordedSecrets:
    """A `SecretSource` of a recorded server. Stamps and seeds are no secrets: they follow from the seed."""

    def __init__(self, real: SecretSource, seeded: SecretSource, redaction: Redaction) -> None:
        self._real = real
        self._seeded = seeded
        self._redaction = redaction

    def token_hex(self, nbytes: int, /) -> str:
        return self._seeded.token_hex(nbytes)

    def randbelow(self, exclusive_upper_bound: int, /) -> int:
        return self._seeded.randbelow(exclusive_upper_bound)

    def token_urlsafe(self, nbytes: int, /) -> str:
        secret = self._real.token_urlsafe(nbytes)
        self._redaction.shows(secret, self._seeded.token_urlsafe(nbytes))
        return secret
