"""The storage places of one job, opened when they are first used."""

from __future__ import annotations

import os
from typing import Callable, Dict, Optional

from pilotage.wire.data import COMMAND, FOLDER, S3, DataOrder, StoragePlace

from .command_place import CommandPlace
from .folder_place import FolderPlace
from .isolation.root_folder import is_below
from .place import DataAttempt, PlaceAdapter, PlaceFailed
from .s3_place import S3PilotPlace

_TYPES: Dict[str, Callable[[StoragePlace, DataAttempt], PlaceAdapter]] = {
    **{FOLDER: FolderPlace, S3: S3PilotPlace, COMMAND: CommandPlace}
}


class OpenPlaces:
    """The places that an order names."""

    def __init__(self, order: DataOrder, attempt: DataAttempt) -> None:
        self.attempt = attempt
        self._order = order
        self._opened: Dict[str, PlaceAdapter] = {}

    def open(self, place: StoragePlace) -> PlaceAdapter:
        """Raises PlaceFailed for a type that this pilot does not know."""
        opened = self._opened.get(place.path)
        if opened is None:
            if place.type not in _TYPES:
                raise PlaceFailed(f"this pilot knows no places of the type {place.type!r}", is_of_node=True)
            opened = self._opened[place.path] = _TYPES[place.type](place, self.attempt)
        return opened

    def copying(self, path: str) -> Optional[PlaceAdapter]:
        """The place from which the pilot copies a file; None: programs open its path or address themselves."""
        place = self._having(path)
        if place is None or (place.type == COMMAND and not place.get):
            return None
        return self.open(place)

    def of_output(self, path: str) -> Optional[PlaceAdapter]:
        """The place of outputs that a file is in, with all links followed; None: it is in none."""
        place = self._having(path)
        if place is not None:
            return self.open(place)
        real = os.path.realpath(path)
        for known in self._order.places:
            if known.type == FOLDER and is_below(real, os.path.realpath(known.path)):
                return self.open(known)
        return None

    def _having(self, path: str) -> Optional[StoragePlace]:
        """The place that is no folder with an address."""
        order = self._order
        having = [
            place
            for place in (*order.places, *order.sources)
            if place.type != FOLDER and f"{path}/".startswith(f"{place.path}/")
        ]
        return max(having, key=lambda place: len(place.path), default=None)
