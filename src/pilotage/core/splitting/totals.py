"""The first files or events of a step, if its splitting has a total: the other ones are not processed at all."""

from __future__ import annotations

from collections.abc import Iterable

from pilotage.core.splitting.algorithm import Algorithm, Amount
from pilotage.core.splitting.mask import FileRecord, Mask
from pilotage.core.splitting.pieces import count_lumis
from pilotage.core.splitting.remainder import restrict


def first_part(files: Iterable[FileRecord], mask: Mask | None, algorithm: Algorithm) -> tuple[Mask, Amount]:
    """The mask of the first part of an element, up to the total of `algorithm`, and its amount.

    `mask` restricts the element; None: the whole of its files. No more files are read than the part has.
    """
    pieces = list(algorithm.limit(restrict(files, mask)))
    amount = Amount(
        files=len({piece.file for piece in pieces}),
        events=sum(piece.events for piece in pieces),
        size=sum(piece.size for piece in pieces),
        lumis=sum(count_lumis(piece.lumis) for piece in pieces),
    )
    return Mask(tuple(piece.range for piece in pieces), events=amount.events), amount
