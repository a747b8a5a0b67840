"""One element into masks: restriction, remainder, then the algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pilotage.core.splitting.algorithm import Algorithm
from pilotage.core.splitting.mask import FileRecord, Mask
from pilotage.core.splitting.pieces import Window
from pilotage.core.splitting.remainder import Coverage, restrict


def split(
    files: Iterable[FileRecord],
    algorithm: Algorithm,
    mask: Mask | None = None,
    *,
    existing: Iterable[Mask] = (),
    closed: bool = True,
) -> Iterator[Mask]:
    """Yield the masks that an element lacks: together with `existing` they cover each part of it once.

    `mask` restricts the element; None: the whole of its files. A mask without files is a range of events to generate.
    Deterministic: the same arguments give the same masks in the same order. Without `closed` more files may follow.
    """
    coverage = Coverage(existing)
    if mask is not None and mask.generates:
        whole = Window(mask.first_event, mask.events, mask.first_lumi, mask.lumis)
        for part in coverage.rest_of_window(whole):
            yield from algorithm.generate(whole, part)
        return
    yield from algorithm.split(coverage.rest(restrict(files, mask)), closed=closed)
