"""The server's keys for services outside that came by its environment. From its start on only its memory has them."""

from __future__ import annotations

import os

_taken: dict[str, str] = {}


def is_key(name: str) -> bool:
    """Whether a variable has a key for a service."""
    return name == "BEARER_TOKEN" or name.startswith("AWS_")


def take_keys() -> None:
    """Take the keys out of the environment, so that no program that is started inherits them."""
    for name in [name for name in os.environ if is_key(name)]:
        _taken[name] = os.environ.pop(name)


def taken_keys() -> dict[str, str]:
    """The keys that were taken out, by the names of their variables."""
    return dict(_taken)


def with_keys() -> dict[str, str]:
    """The environment with the keys that were taken out."""
    return {**os.environ, **_taken}
