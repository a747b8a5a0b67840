"""An outside catalogue on paper: data sets of blocks, the places of the blocks, and what was registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotage.core.datasets.facts import FileEntry, Replica
from pilotage.core.errors import PilotageError
from pilotage.outside.catalogue.adapter import BlockPlaces, CatalogueBlock, CatalogueContents, OutgoingBlock

HERE = BlockPlaces((Replica("here", "/store"),))


class PaperCatalogue:
    """A catalogue on paper."""

    def __init__(self) -> None:
        self.error: PilotageError | None = None
        self.contents_of = CatalogueContents(True, ())
        self.places_of: dict[str, BlockPlaces] = {}
        self.files_of: dict[str, list[FileEntry]] = {}
        self.greetings = 0
        self.registered: list[OutgoingBlock] = []
        self.finished: list[str] = []
        self.refused: dict[str, PilotageError] = {}
        """Why a block is not registered, or a data set not ended."""
        self.breaks = False
        """A refused block brings the catalogue down."""
        self.spoilt: dict[str, tuple[str, PilotageError]] = {}
        """The block that a call cannot answer for, and why."""
        self.told_places: list[dict[str, BlockPlaces]] = []
        """The next answers about places, in place of the right ones."""

    def add(self, name: str, files: int, *, is_open: bool = False, places: BlockPlaces = HERE) -> None:
        block = CatalogueBlock(name, is_open, None if is_open else files)
        kept = tuple(known for known in self.contents_of.blocks if known.name != name)
        self.contents_of = CatalogueContents(self.contents_of.is_open, (*kept, block))
        self.files_of[name] = [FileEntry(f"{name}/{number}", 10, 5) for number in range(files)]
        self.places_of[name] = places

    def close_contents(self) -> None:
        self.contents_of = self.contents_of._replace(is_open=False)

    def greet(self) -> str:
        self.greetings += 1
        if self.error is not None:
            raise self.error
        return "paper 1"

    def check(self, name: str) -> None:
        raise NotImplementedError

    def contents(self, name: str) -> CatalogueContents:
        return self.contents_of

    def files(self, block: str) -> Sequence[FileEntry]:
        self._check("files", [block])
        return self.files_of[block]

    def _check(self, call: str, blocks: Sequence[str]) -> None:
        block, error = self.spoilt.get(call, ("", None))
        if error is not None and block in blocks:
            raise error

    def places(self, blocks: Sequence[str]) -> Mapping[str, BlockPlaces]:
        self._check("places", blocks)
        if self.told_places:
            return self.told_places.pop(0)
        return {block: self.places_of[block] for block in blocks if block in self.places_of}

    def register(self, block: OutgoingBlock) -> None:
        if block.name in self.refused:
            if self.breaks:
                self.error = self.refused[block.name]
            raise self.refused[block.name]
        self.registered.append(block)

    def finish(self, collection: str) -> None:
        if collection in self.refused:
            raise self.refused[collection]
        self.finished.append(collection)

    def close(self) -> None:
        pass
