"""Masks: the piece of a request that an element, or a job, has to process.

A mask of files names ranges of events, or lumis, of files of the catalogue. A mask of a generator has no files: it
names a range of events to generate, and of lumis to number them with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

_NUMBERS = ("first_event", "events", "first_lumi", "lumis")


class LumiRange(NamedTuple):
    """Lumis `first` to `last` of a run, both included."""

    run: int
    first: int
    last: int


class FileRecord(NamedTuple):
    """The facts of a file that splitting uses."""

    id: int
    name: str
    size: int = 0
    """Bytes."""
    events: int = 0
    lumis: tuple[LumiRange, ...] = ()
    block: int = 0
    parent: int = 0
    """The element job that wrote it; 0: none."""


class FileRange(NamedTuple):
    """Events `first` to `first` + `events` - 1 of a file, counted from 0; or its named lumis."""

    file: int
    first: int = 0
    events: int = -1
    """-1: all events from `first` on."""
    lumis: tuple[LumiRange, ...] = ()
    """Not empty: only the events of these lumis."""


@dataclass(frozen=True, slots=True)
class Mask:
    """One piece. `ranges` in the order in which the job reads them."""

    ranges: tuple[FileRange, ...] = ()
    first_event: int = 0
    """The first event to generate; only for a generator."""
    events: int = 0
    """Events to generate; for files, the events that the ranges have, as far as known."""
    first_lumi: int = 0
    """The first lumi to generate; only for a generator."""
    lumis: int = 0
    """The number of lumis to generate; only for a generator."""
    refused: str = ""
    """Why no job may process it; empty: a job may. It is no part of the identity."""

    @property
    def generates(self) -> bool:
        return not self.ranges

    def to_json(self) -> dict[str, Any]:
        """The form that is stored and sent. Fields with their default are left out."""
        document: dict[str, Any] = {name: value for name in _NUMBERS if (value := getattr(self, name))}
        if self.ranges:
            document["files"] = [_range_to_json(part) for part in self.ranges]
        if self.refused:
            document["refused"] = self.refused
        return document

    @property
    def text(self) -> str:
        """The canonical form: sorted keys, no spaces."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical form of the mask with its ranges in the order of files and events."""
        ordered = Mask(tuple(sorted(self.ranges)), self.first_event, self.events, self.first_lumi, self.lumis)
        return hashlib.sha256(ordered.text.encode()).hexdigest()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Mask:
        """Inverse of `to_json`. The caller has checked the types."""
        numbers = {name: int(document.get(name, 0)) for name in _NUMBERS}
        ranges = tuple(_range_from_json(part) for part in document.get("files", ()))
        return cls(ranges, refused=str(document.get("refused", "")), **numbers)


def _range_to_json(part: FileRange) -> list[Any]:
    """[file, first, events], and the lumis if there are any."""
    short: list[Any] = [part.file, part.first, part.events]
    return [*short, [list(lumi) for lumi in part.lumis]] if part.lumis else short


def _range_from_json(part: Sequence[Any]) -> FileRange:
    lumis: Iterable[Sequence[int]] = part[3] if len(part) > 3 else ()
    return FileRange(part[0], part[1], part[2], tuple(LumiRange(*lumi) for lumi in lumis))
