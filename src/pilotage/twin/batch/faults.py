"""Faults in the answers of a batch system. The caller of the twin decides which command has which fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol


class BatchFaultKind(StrEnum):
    """The fault of one command."""

    LOST_BEFORE = "lost-before"
    """It has no effect, and no answer."""
    LOST_AFTER = "lost-after"
    """It has its effect, and no answer."""
    LIES = "lies"
    """It has no effect, and the answer of one that had. A listing is complete, and has nothing."""
    FULL = "full"
    """The batch system has no room for now."""
    REFUSED = "refused"
    """The batch system refuses."""
    PARTLY = "partly"
    """A submission is in doubt, and only the first part of its pilots was accepted. A listing is cut, and says so."""
    CUT = "cut"
    """A listing has only the first part of its lines, and claims to be complete."""
    STALE = "stale"
    """A listing is some seconds old."""


@dataclass(frozen=True, slots=True)
class BatchFault:
    """A fault of one command."""

    kind: BatchFaultKind
    part: float = 0.5
    """The part that is there, 0 to 1; for PARTLY and CUT."""
    age: float = 0.0
    """Seconds; for STALE."""


class BatchFaults(Protocol):
    """Chooses faults."""

    def next(self, command: str) -> BatchFault | None:
        """The fault of a command that is given now; None: it has none. `command`: a key of `POSSIBLE_FAULTS`."""


class NoFaults:
    """Every command is answered truthfully."""

    def next(self, command: str) -> BatchFault | None:
        return None


_K = BatchFaultKind
_LOST = frozenset({_K.LOST_BEFORE, _K.LOST_AFTER})
_CHANGE = _LOST | {_K.LIES}
_LISTING = frozenset({_K.LOST_BEFORE, _K.LIES, _K.PARTLY, _K.CUT, _K.STALE})
_QUESTION = frozenset({_K.LOST_BEFORE})

POSSIBLE_FAULTS: Mapping[str, frozenset[BatchFaultKind]] = MappingProxyType(
    {
        "submit": _LOST | {_K.FULL, _K.REFUSED, _K.PARTLY},
        "release": _CHANGE | {_K.REFUSED},
        "cancel": _CHANGE,
        "cancel_tasks": _CHANGE,
        "list_pilots": _LISTING,
        **dict.fromkeys(
            ("list_accounted", "properties", "describe", "information", "accounts", "check", "check_terms"),
            _QUESTION,
        ),
    }
)
"""The faults that each command can have."""
