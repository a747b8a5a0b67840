"""Where unpredictable tokens come from: in production the module `secrets`, in a simulation a seeded stream."""

from __future__ import annotations

from typing import Protocol


class SecretSource(Protocol):
    """The functions of the module `secrets` that the program uses. The module itself is one."""

    def token_hex(self, nbytes: int, /) -> str: ...
    def token_urlsafe(self, nbytes: int, /) -> str: ...
    def randbelow(self, exclusive_upper_bound: int, /) -> int: ...
