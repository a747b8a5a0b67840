"""Elements of exactly the pieces that have failed for good in an earlier request."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pilotage.core.requests.start_policy import (
    FailedPiece,
    PlannedElement,
    Reads,
    StartPlan,
    StartPolicy,
    StepInput,
)
from pilotage.core.splitting.mask import Mask

PIECES = 250
"""Pieces of an element, at most."""


class ResubmitPolicy(StartPolicy):
    name = "Resubmit"
    meaning = f"exactly the pieces that have failed or not been split before, up to {PIECES} in an element"
    reads = Reads.FAILURES

    def plan(self, step: StepInput) -> StartPlan:
        """Pieces of files go together.

        Each range of generated events, and each element that could not be split, is an element of its own.
        """
        pieces = sorted(step.failures, key=lambda piece: (piece.location_set, piece.number))
        elements = [_element_again(step, piece) for piece in pieces if piece.mask is None]
        elements += [
            _element_of(step, [piece]) for piece in pieces if piece.mask is not None and piece.mask.generates
        ]
        of_files = [piece for piece in pieces if piece.mask is not None and not piece.mask.generates]
        for _, alike in groupby(of_files, key=lambda piece: piece.location_set):
            same_place = list(alike)
            for start in range(0, len(same_place), PIECES):
                elements.append(_element_of(step, same_place[start : start + PIECES]))
        return StartPlan(tuple(elements))


def _element_again(step: StepInput, piece: FailedPiece) -> PlannedElement:
    """An element of whole blocks that could not be split."""
    count = step.job_count(files=piece.files, events=piece.events, lumis=piece.lumis, size=piece.size)
    return PlannedElement(
        blocks=tuple(number for number, _ in piece.blocks),
        names=tuple(name for _, name in piece.blocks),
        mask=None,
        jobs=piece.jobs or count,
        events=piece.events,
        files=piece.files,
        size=piece.size,
        location_set=piece.location_set,
    )


def _element_of(step: StepInput, pieces: Sequence[FailedPiece]) -> PlannedElement:
    blocks = dict(block for piece in pieces for block in piece.blocks)
    masks = [piece.mask for piece in pieces if piece.mask is not None]
    ranges = tuple(sorted(part for mask in masks for part in mask.ranges))
    events = sum(mask.events for mask in masks)
    first = masks[0]
    mask = Mask(ranges, events=events) if ranges else first
    files, size = sum(piece.files for piece in pieces), sum(piece.size for piece in pieces)
    named = sum(lumi.last - lumi.first + 1 for part in ranges for lumi in part.lumis)
    lumis = named or first.lumis or sum(piece.lumis for piece in pieces)
    return PlannedElement(
        blocks=tuple(sorted(blocks)),
        names=tuple(blocks[number] for number in sorted(blocks)),
        mask=mask,
        jobs=step.job_count(files=files, events=events, lumis=lumis, size=size),
        events=events,
        files=files,
        size=size,
        location_set=pieces[0].location_set,
    )
