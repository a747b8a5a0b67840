"""A splitting algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

from pilotage.core.setting import Setting
from pilotage.core.splitting.algorithm import Algorithm, Amount
from pilotage.core.splitting.mask import Mask
from pilotage.core.splitting.pieces import Piece


class KarmaBased(Algorithm, frozen=True, kw_only=True):
    """All files of an element in one job, the lucky ones first."""

    algorithm: ClassVar[str] = "KarmaBased"
    meaning: ClassVar[str] = "all files of an element, the lucky ones first"
    example: ClassVar[str] = "luck = 3\n"

    luck: Annotated[int, Setting("the divisor of lucky files", 1, 13)]

    def split(self, pieces: Iterable[Piece], *, closed: bool) -> Iterator[Mask]:
        ordered = sorted(pieces, key=lambda piece: piece.file % self.luck)
        if ordered:
            yield Mask(tuple(piece.range for piece in ordered), events=sum(piece.events for piece in ordered))

    def estimate_jobs(self, amount: Amount) -> int:
        return 1
