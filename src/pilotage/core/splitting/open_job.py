"""A job under construction."""

from __future__ import annotations

from pilotage.core.splitting.mask import FileRange, Mask
from pilotage.core.splitting.pieces import Piece


class OpenJob:
    """Collects ranges until the algorithm closes the job."""

    __slots__ = ("events", "lumis", "ranges", "size")

    def __init__(self) -> None:
        self.ranges: list[FileRange] = []
        self.events = 0
        self.size = 0
        self.lumis = 0

    def add(self, piece: Piece) -> None:
        self.ranges.append(piece.range)
        self.events += piece.events
        self.size += piece.size

    def close(self) -> Mask:
        """The mask of the job. The next job starts empty."""
        mask = Mask(tuple(self.ranges), events=self.events)
        self.ranges = []
        self.events = self.size = self.lumis = 0
        return mask
