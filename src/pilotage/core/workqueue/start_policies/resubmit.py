"""Elements of exactly the pieces that have failed for good in an earlier request."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pilotage.core.workqueue.start_policy import (
    FailedPiece,
    PlannedElement,
    Reads,
    StartPlan,
    StartPolicy,
    StepInput,
)

PIECES = 250
"""Of an element, at most."""


class ResubmitPolicy(StartPolicy):
    name = "Resubmit"
    meaning = f"exactly the pieces that have failed in an earlier request, up to {PIECES} in an element"
    reads = Reads.FAILURES

    def plan(self, step: StepInput) -> StartPlan:
        pieces = sorted(step.failures, key=lambda piece: (piece.location_set, piece.number))
        elements: list[PlannedElement] = []
        for _, alike in groupby(pieces, key=lambda piece: piece.location_set):
            same_place = list(alike)
            for start in range(0, len(same_place), PIECES):
                elements.append(_element_of(same_place[start : start + PIECES]))
        return StartPlan(tuple(elements))


def _element_of(pieces: Sequence[FailedPiece]) -> PlannedElement:
    """The element of some pieces. Each stays a piece: its mask becomes one job."""
    blocks = dict(block for piece in pieces for block in piece.blocks)
    return PlannedElement(
        blocks=tuple(sorted(blocks)),
        names=tuple(blocks[number] for number in sorted(blocks)),
        mask={"pieces": [dict(piece.mask) for piece in pieces]},
        jobs=len(pieces),
        events=sum(piece.events for piece in pieces),
        files=sum(piece.files for piece in pieces),
        size=sum(piece.size for piece in pieces),
        location_set=pieces[0].location_set,
    )
