"""The state of the fair shares in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from pilotage.core.shares.correction import Corrections
from pilotage.core.shares.turns import TurnBook


@dataclass(slots=True)
class ShareState:
    """Corrections and turns. The priorities stand in the index of the queues."""

    corrections: Corrections = field(default_factory=Corrections)
    """The share corrections in force, with the state of their correctors."""
    corrected_at: float | None = None
    turns: TurnBook = field(default_factory=TurnBook)
    """The turns of pilots that serve one owner at a time."""
