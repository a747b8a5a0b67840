"""The programs that have come under one identity, told apart by the nonce that each one draws at its start.

A message may be late, so the nonces of superseded programs are kept too: without them a late copy of an earlier
program's message would supersede the living one.
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

MOST_PROGRAMS = 20
"""Programs of one identity whose nonces are kept, the present one included."""


class Programs(NamedTuple):
    """The nonces of all programs, the present one first."""

    nonces: tuple[str, ...] = ()

    @classmethod
    def of(cls, stored: str | None) -> Programs:
        return cls(tuple(stored.split("\n")) if stored else ())

    def is_present(self, nonce: str) -> bool:
        return _is_in(nonce, self.nonces[:1])

    def was_superseded(self, nonce: str) -> bool:
        return _is_in(nonce, self.nonces[1:])

    def followed_by(self, nonce: str) -> str:
        r"""The text to store when the program of this nonce is there. The present one follows itself.

        >>> Programs.of("b\na").followed_by("c").split()
        ['c', 'b', 'a']
        >>> Programs.of("b\na").followed_by("b").split()
        ['b', 'a']
        """
        nonces = self.nonces if self.is_present(nonce) else (_line(nonce), *self.nonces)
        return "\n".join(nonces[:MOST_PROGRAMS])


def _is_in(nonce: str, known: tuple[str, ...]) -> bool:
    return any(hmac.compare_digest(program.encode(), _line(nonce).encode()) for program in known)


def _line(nonce: str) -> str:
    return nonce.replace("\n", " ")
