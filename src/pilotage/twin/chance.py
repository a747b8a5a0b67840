"""Chance in virtual time: streams of one seed, each with a name, so that a new draw in one moves no other."""

from __future__ import annotations

import random


class Streams:
    """The seeded streams of one run."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def stream(self, name: str) -> random.Random:
        """The stream of this name, from its begin."""
        return random.Random(f"{self._seed} {name}")  # noqa: S311
