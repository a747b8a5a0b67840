"""A work queue in memory that answers the calls of an agent, with faults on demand and a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar, cast

from pilotage.agent.calls import AgentCalls
from pilotage.agent.loop import AgentLoop
from pilotage.agent.stop_flag import StopFlag
from pilotage.core.errors import Conflict, InvalidInput, Overloaded, Superseded, Unreachable
from pilotage.core.splitting.mask import FileRecord, Mask
from pilotage.wire.agents import (
    CataloguedFile,
    FilesPage,
    JoinRequest,
    JoinResponse,
    MasksPage,
    OfferedElement,
    PostedMasks,
    PostMasks,
    SiteOfAgent,
    Splitting,
    SyncRequest,
    SyncResponse,
)

T = TypeVar("T")
PERIOD = 5.0


class Killed(BaseException):
    """The process of the agent has died."""


@dataclass
class Element:
    files: list[FileRecord]
    splitting: Splitting
    priority: int = 0
    site: str = "here"
    mask: dict[str, object] | None = None
    epoch: int = 0
    holder: str = ""
    """The nonce of the process that has it."""
    masks: dict[str, Mask] = field(default_factory=dict)
    is_split: bool = False
    failure: str = ""


@dataclass
class FakeQueue:
    """Also the fault injector: `faults` gives an error to raise before or after the call of a number."""

    elements: dict[int, Element] = field(default_factory=dict)
    sites: dict[str, SiteOfAgent] = field(
        default_factory=lambda: {"here": SiteOfAgent("here", "normal", 1000, 0)}
    )
    files_per_page: int = 3
    now: float = 0.0
    nonce: str = ""
    calls: list[str] = field(default_factory=list)
    before: Callable[[int, str], None] = lambda number, name: None
    after: Callable[[int, str], None] = lambda number, name: None
    waits: list[float] = field(default_factory=list)
    releases: list[tuple[int, str]] = field(default_factory=list)
    joins: int = 0
    is_forgotten: bool = False
    drain: bool = False
    _answered: tuple[int, list[int]] = (0, [])

    def add(self, files: list[FileRecord], algorithm: str = "FileBased", **parameters: object) -> int:
        number = len(self.elements) + 1
        self.elements[number] = Element(files, Splitting(algorithm, parameters or {"files_per_job": 2}))
        return number

    @property
    def is_done(self) -> bool:
        return all(element.is_split or element.failure for element in self.elements.values())

    def _call(self, name: str, work: Callable[[], T]) -> T:
        number = len(self.calls)
        self.calls.append(name)
        self.before(number, name)
        answer = work()
        self.after(number, name)
        return answer

    # The calls of AgentCalls

    def join(self, request: JoinRequest) -> JoinResponse:
        def work() -> JoinResponse:
            if request.nonce != self.nonce:
                self._free_all()
                self._answered = (0, [])
            self.nonce, self.is_forgotten = request.nonce, False
            self.joins += 1
            return JoinResponse(1, 300.0, PERIOD)

        return self._call("join", work)

    def sync(self, agent: int, request: SyncRequest, *, timeout: float = 0.0) -> SyncResponse:
        return self._call("sync", lambda: self._sync(request))

    def files(self, agent: int, offer: OfferedElement, after: int) -> FilesPage:
        def work() -> FilesPage:
            self._check(offer.id, offer.epoch)
            files = [file for file in self.elements[offer.id].files if file.id > after]
            page = files[: self.files_per_page]
            rows = [
                CataloguedFile(file.id, file.name, file.size, file.events, list(map(list, file.lumis)))
                for file in page
            ]
            return FilesPage(rows, page[-1].id if len(files) > len(page) else 0)

        return self._call("files", work)

    def masks(self, agent: int, offer: OfferedElement, after: int) -> MasksPage:
        def work() -> MasksPage:
            self._check(offer.id, offer.epoch)
            masks = list(self.elements[offer.id].masks.values())
            page = masks[after : after + 2]
            more = after + len(page) < len(masks)
            return MasksPage([mask.to_json() for mask in page], after + len(page) if more else 0)

        return self._call("masks", work)

    def post_masks(self, agent: int, offer: OfferedElement, request: PostMasks) -> PostedMasks:
        return self._call("post", lambda: self._post(offer.id, request))

    def _sync(self, request: SyncRequest) -> SyncResponse:
        if request.nonce != self.nonce:
            raise Superseded("another process has joined", hint="use --name")
        if self.is_forgotten:
            raise Superseded("the lease is over", hint="join again")
        number, answered = self._answered
        stop = [item.element for item in request.holding if not self._is_held(item.element, item.epoch)]
        listed = {item.element for item in request.holding}
        self.releases += [(item.element, item.reason) for item in request.releases]
        for element in self._unsplit():
            if element not in listed and not (request.number == number and element in answered):
                self.elements[element].holder = ""
        again = [element for element in answered if self.elements[element].holder and element not in listed]
        offers = again if request.number == number else []
        if not offers and request.want and not self.drain:
            offers = self._pull(request)
        return SyncResponse(
            request.number,
            300.0,
            PERIOD,
            [self._offer(element) for element in offers],
            stop,
            list(self.sites.values()),
            drain=self.drain,
        )

    def _pull(self, request: SyncRequest) -> list[int]:
        free = [
            number
            for number, element in self.elements.items()
            if not element.holder and not element.is_split and not element.failure
            if element.site in request.slots
        ][: request.want]
        for number in free:
            self.elements[number].holder = self.nonce
            self.elements[number].epoch += 1
        if free:
            self._answered = (request.number, free)
        return free

    def _offer(self, number: int) -> OfferedElement:
        element = self.elements[number]
        return OfferedElement(
            number, element.epoch, 1, "step", "Processing", element.priority, element.site, 1, element.splitting,
            mask=element.mask, existing=len(element.masks),
        )  # fmt: skip

    def _post(self, number: int, request: PostMasks) -> PostedMasks:
        element = self.elements[number]
        new = {mask.digest: mask for mask in map(Mask.from_json, request.masks)}
        if not self._is_held(number, request.epoch):
            repeated = (
                element.is_split and element.epoch == request.epoch and new.keys() <= element.masks.keys()
            )
            return PostedMasks(0, len(new)) if repeated else PostedMasks(0, 0, superseded=True)
        made = new.keys() - element.masks.keys()
        element.masks |= new
        if request.last:
            if request.total != len(element.masks) and not request.failure:
                raise Conflict("another total", hint="read the masks that exist")
            element.is_split, element.failure, element.holder = not request.failure, request.failure, ""
        return PostedMasks(len(made), len(new) - len(made))

    def _is_held(self, number: int, epoch: int) -> bool:
        element = self.elements[number]
        return element.holder == self.nonce and element.epoch == epoch and not element.is_split

    def _check(self, number: int, epoch: int) -> None:
        if not self._is_held(number, epoch):
            raise Superseded("not this agent's any more")

    def _unsplit(self) -> Iterator[int]:
        return (
            number for number, element in self.elements.items() if element.holder and not element.is_split
        )

    def _free_all(self) -> None:
        for number in list(self._unsplit()):
            self.elements[number].holder = ""


class VirtualStop(StopFlag):
    """Waits pass at once on the clock of the queue; the flag is set when nothing is left to do."""

    def __init__(self, queue: FakeQueue, limit: int = 400) -> None:
        super().__init__()
        self._queue = queue
        self._left = limit

    def wait(self, seconds: float) -> bool:
        self._queue.waits.append(seconds)
        self._queue.now += max(0.0, seconds)
        self._left -= 1
        if self._queue.is_done or self._left <= 0:
            self.set()
        return self.is_set


def run_agent(queue: FakeQueue, nonce: str = "first", *, patience: float = 60.0, limit: int = 400) -> None:
    """Run an agent until the queue is empty, on the queue's virtual clock."""
    stop = VirtualStop(queue, limit)
    try:
        AgentLoop(
            cast(AgentCalls, queue),
            JoinRequest("agent", "home", nonce),
            stop,
            monotonic=lambda: queue.now,
            rng=Random(1),
            first_patience=patience,
        ).run()
    finally:
        stop.close()


__all__ = ["FakeQueue", "InvalidInput", "Killed", "Overloaded", "Unreachable", "run_agent"]
