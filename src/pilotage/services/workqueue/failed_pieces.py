"""The pieces of a step that a resubmission makes again: failed jobs, and parts of elements that were not split."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pilotage.core.splitting.algorithm import Algorithm
from pilotage.core.splitting.mask import Mask
from pilotage.core.splitting.pieces import count_lumis
from pilotage.core.splitting.remainder import Coverage, restrict
from pilotage.core.splitting.split import split
from pilotage.core.workqueue.start_policy import FailedPiece
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import element_masks
from pilotage.store.tables.element_masks import UnsplitElement


def failed_pieces(
    connection: Connection, request: int, step: int, algorithm: Algorithm
) -> Iterator[FailedPiece]:
    """Each part of the step's input without a good job, once. `algorithm`: of the step."""
    for number, blocks, mask, files, size, location_set in element_masks.failed_pieces(
        connection, request, step
    ):
        yield FailedPiece(
            number, _blocks(blocks), Mask.from_json(json.loads(mask)), files, size, location_set
        )
    for element in element_masks.unsplit_elements(connection, request, step):
        yield from _rest_of(connection, element, algorithm)


def _rest_of(connection: Connection, element: UnsplitElement, algorithm: Algorithm) -> Iterator[FailedPiece]:
    """The parts of an element that have no job: all of it, as a rule."""
    mask = Mask.from_json(json.loads(element.mask)) if element.mask else None
    existing = [Mask.from_json(json.loads(text)) for text in element_masks.masks_of(connection, element.id)]
    blocks = _blocks(element.blocks)
    whole = FailedPiece(
        *(element.id, blocks, mask, element.files, element.size, element.location_set),
        events=element.events,
        jobs=element.jobs,
    )
    if not existing:
        yield whole
    elif mask is not None and mask.generates:
        for part in split([], algorithm, mask, existing=existing):
            yield FailedPiece(element.id, blocks, part, 0, 0, element.location_set)
    else:
        files = element_masks.files_of_blocks(connection, [number for number, _ in blocks])
        pieces = sorted(Coverage(existing).rest(restrict(files, mask)))
        if pieces:
            rest = Mask(tuple(piece.range for piece in pieces), events=sum(piece.events for piece in pieces))
            size, lumis = (
                sum(piece.size for piece in pieces),
                sum(count_lumis(piece.lumis) for piece in pieces),
            )
            yield FailedPiece(
                *(element.id, blocks, rest, len(pieces), size, element.location_set), lumis=lumis
            )


def _blocks(text: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(block), str(block)) for block in json.loads(text))
