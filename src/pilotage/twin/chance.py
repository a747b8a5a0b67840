"""Chance in virtual time: streams of one seed, each with a name, so that a new draw in one moves no other."""

from __future__ import annotations

import base64
import random


class Streams:
    """The seeded streams of one run."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def stream(self, name: str) -> random.Random:
        """The stream of this name, from its begin."""
        return random.Random(f"{self._seed} {name}")  # noqa: S311


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
