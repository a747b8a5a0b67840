"""One element: its files come in pages, its masks go out in posts, and the last post ends its splitting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from pilotage.agent.calls import AgentCalls
from pilotage.core.errors import Conflict, InvalidInput, NotFound, Superseded
from pilotage.core.splitting.mask import FileRecord, LumiRange, Mask
from pilotage.core.splitting.parser import stored_splitting
from pilotage.core.splitting.split import split
from pilotage.wire.agents import CataloguedFile, OfferedElement, PostMasks

T = TypeVar("T")

MASKS_PER_POST = 500
RANGES_PER_POST = 20_000
"""Ranges of files and lumis of one post; a single mask may have more. The server refuses very long messages."""
LONGEST_FAILURE = 2000
"""Characters of a `Message` on the wire."""


class ElementLost(Exception):
    """The element is no longer this agent's."""


class MasksRefused(Exception):
    """The server refuses the masks. A new try reads the existing masks again."""


class Guard(Protocol):
    """Makes a call: renews the lease when it is due, and repeats the call while the server is away."""

    def __call__(self, call: Callable[[], T], /) -> T: ...


class SplitResult(NamedTuple):
    """The end of one splitting."""

    made: int
    """New masks."""
    total: int
    """All masks of the element, also of earlier agents."""
    failure: str = ""
    """Why the element cannot be split; empty: it is split."""


class ElementSplitter:
    """Splits one element. It may end at any instant: a later try, here or elsewhere, makes exactly the rest."""

    def __init__(self, calls: AgentCalls, agent: int, offer: OfferedElement, guard: Guard) -> None:
        """`guard` makes every call; it raises ElementLost when the element is no longer the agent's."""
        self._calls = calls
        self._agent = agent
        self._offer = offer
        self._guard = guard
        self._made = 0

    def run(self, *, is_retry: bool = False) -> SplitResult:
        """Post all masks that are missing. `is_retry`: this agent may have posted some before.

        Raises ElementLost, MasksRefused, and errors of calls that cannot be repeated.
        """
        total = 0
        try:
            existing = list(self._existing()) if self._offer.existing or is_retry else []
            total = len(existing)
            batch: list[Mask] = []
            ranges = 0
            for mask in self._missing(existing):
                ranges += sum(1 + len(part.lumis) for part in mask.ranges)
                if len(batch) == MASKS_PER_POST or (batch and ranges > RANGES_PER_POST):
                    self._post(batch)
                    batch, ranges = [], sum(1 + len(part.lumis) for part in mask.ranges)
                batch.append(mask)
                total += 1
            if not total:
                raise InvalidInput("the element has nothing to process: no file and no event")
            self._post(batch, total=total, is_last=True)
        except InvalidInput as error:
            failure = str(error)[:LONGEST_FAILURE]
            self._post([], total=total, is_last=True, failure=failure)
            return SplitResult(self._made, total, failure)
        return SplitResult(self._made, total)

    def _missing(self, existing: list[Mask]) -> Iterator[Mask]:
        """The masks of the element that do not exist yet."""
        offer = self._offer
        algorithm = stored_splitting(offer.splitting.algorithm, offer.splitting.parameters)
        mask = Mask.from_json(offer.mask) if offer.mask else None
        return split(self._files(), algorithm, mask, existing=existing, closed=offer.closed)

    def _existing(self) -> Iterator[Mask]:
        after: int | None = 0
        while after is not None:
            page = self._call(partial(self._calls.masks, self._agent, self._offer, after))
            yield from map(Mask.from_json, page.masks)
            after = page.next or None

    def _files(self) -> Iterator[FileRecord]:
        after: int | None = 0
        while after is not None:
            page = self._call(partial(self._calls.files, self._agent, self._offer, after))
            yield from map(_record_of, page.files)
            after = page.next or None

    def _post(self, masks: list[Mask], *, total: int = 0, is_last: bool = False, failure: str = "") -> None:
        request = PostMasks(
            self._offer.epoch, [mask.to_json() for mask in masks], is_last, total if is_last else 0, failure
        )
        answer = self._call(lambda: self._calls.post_masks(self._agent, self._offer, request))
        if answer.superseded:
            raise ElementLost
        self._made += answer.made

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return self._guard(call)
        except (Superseded, NotFound) as error:
            raise ElementLost from error
        except (InvalidInput, Conflict) as error:
            raise MasksRefused(str(error)) from error


def _record_of(file: CataloguedFile) -> FileRecord:
    lumis = tuple(LumiRange(run, first, last) for run, first, last in file.lumis)
    return FileRecord(file.id, file.name, file.size, file.events, lumis, file.block, file.parent)
