"""The pieces of a step that a resubmission makes again: failed jobs, and parts of elements that were not split."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pilotage.core.requests.start_policy import FailedPiece
from pilotage.core.splitting.algorithm import Algorithm
from pilotage.core.splitting.mask import Mask
from pilotage.core.splitting.pieces import Piece, Window, count_lumis
from pilotage.core.splitting.remainder import Coverage, restrict
from pilotage.core.splitting.split import split
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
        parts = sorted(Coverage(existing).rest(restrict(files, mask)))
        if parts:
            yield _of_parts(whole, parts)


def unclaimed(
    connection: Connection,
    piece: FailedPiece,
    claims: Mapping[int, Coverage],
    algorithm: Algorithm,
    left_out: Counter[int],
) -> Iterator[FailedPiece]:
    """The parts of a failed piece that no request of `claims` has. `left_out` counts the pieces that each has."""
    mask = piece.mask
    if not claims:
        yield piece
    elif mask is not None and mask.generates:
        whole = Window(mask.first_event, mask.events, mask.first_lumi, mask.lumis)
        windows = [whole]
        for request, coverage in claims.items():
            rest = [part for window in windows for part in coverage.rest_of_window(window)]
            is_touched = sum(part.events for part in rest) < sum(window.events for window in windows)
            left_out[request] += is_touched
            windows = rest if is_touched else windows
        if windows == [whole]:
            yield piece
            return
        for window in windows:
            for part in algorithm.generate(whole, window):
                yield replace(piece, mask=part)
    else:
        yield from _unclaimed_files(connection, piece, claims, left_out)


def _unclaimed_files(
    connection: Connection, piece: FailedPiece, claims: Mapping[int, Coverage], left_out: Counter[int]
) -> Iterator[FailedPiece]:
    if piece.mask is None:
        files = list(element_masks.files_of_blocks(connection, [number for number, _ in piece.blocks]))
    else:
        files = element_masks.files_by_ids(connection, sorted({part.file for part in piece.mask.ranges}))
    all_parts = sorted(restrict(files, piece.mask))
    parts = all_parts
    for request, coverage in claims.items():
        rest = sorted(coverage.rest(parts))
        if rest != parts:
            left_out[request] += 1
            parts = rest
    if parts is all_parts:
        yield piece
    elif parts:
        yield _of_parts(piece, parts)


def _of_parts(whole: FailedPiece, parts: Sequence[Piece]) -> FailedPiece:
    """The piece of these parts of the files of `whole`."""
    mask = Mask(tuple(part.range for part in parts), events=sum(part.events for part in parts))
    size = sum(part.size for part in parts)
    lumis = sum(count_lumis(part.lumis) for part in parts)
    return FailedPiece(
        *(whole.number, whole.blocks, mask, len({part.file for part in parts}), size, whole.location_set),
        lumis=lumis,
    )


def _blocks(text: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(block), str(block)) for block in json.loads(text))
