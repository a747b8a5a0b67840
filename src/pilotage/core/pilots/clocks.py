"""The clock of a node compared with the server's. An offset is in seconds; it is positive if the node is ahead."""

from __future__ import annotations

TOLERANCE = 60.0
"""Seconds by which a node's clock may differ from the server's without a warning."""

FURTHEST = 1e10
"""Offsets of more seconds are stored as this: the clock of such a node was never set."""

ADVICE = (
    "let a time service such as chrony set the clocks of these nodes: their pilots misjudge the time that is left,"
    " and certificates may look expired"
)


def offset_of(node: float, server: float) -> float:
    """The offset of a node, from both clocks."""
    return max(-FURTHEST, min(FURTHEST, node - server))


def is_off(offset: float) -> bool:
    """Whether an offset deserves a warning."""
    return abs(offset) > TOLERANCE


def describe(offset: float) -> str:
    """An offset in words."""
    if abs(offset) < 1:
        return "agrees with the server"
    return f"{abs(offset):.0f} s {'ahead of' if offset > 0 else 'behind'} the server"
