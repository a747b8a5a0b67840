"""Requests over data sets, with counted events: a manager registers data, submits, pauses, aborts and resubmits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from pilotage.wire.call import ApiCall
from pilotage.wire.datasets import (
    ADD_FILES,
    CLOSE_DATASET,
    CREATE_DATASET,
    DataSetChange,
    DataSetCreate,
    DataSetFile,
    FilesAdd,
    ReplicaLocation,
)
from pilotage.wire.requests import (
    ABORT_REQUEST,
    FORCE_COMPLETE_REQUEST,
    PAUSE_REQUEST,
    RESUBMIT_REQUEST,
    RESUME_REQUEST,
    SET_REQUEST_PRIORITY,
    SHOW_REQUEST,
    SUBMIT_REQUEST,
    RequestChange,
    RequestPriority,
    RequestResubmission,
    RequestSubmission,
)
from tests.simulation.endpoints import carry_out
from tests.simulation.people import People
from tests.simulation.policy import OWNERS, TEAM
from tests.simulation.restores import Restore

DATASET = "/data/raw"
ENDED = frozenset({"completed", "aborted-completed", "failed", "rejected"})
MANAGER = OWNERS[0]
LOOK = 20.0
"""Seconds between two looks of the manager at a request."""
MAX_RETRIES = 2


@dataclass(slots=True)
class ProductionBooks:
    """What the manager did and was told."""

    events: int = 0
    """Events of the data set."""
    requests: dict[int, int] = field(default_factory=dict)
    """The events of each request; of a resubmission 0."""
    ended_early: set[int] = field(default_factory=set)


class Productions:
    def __init__(
        self, people: People, rng: Random, sites: list[str], storm: float, small: Sequence[int]
    ) -> None:
        """`sites`: those of its requests; empty: all. `storm`: the seconds in which faults happen.

        `small`: the events of further requests.
        """
        self._storm, self._small = storm, small
        self._people, self._rng, self._sites = people, rng, sites
        self.books = ProductionBooks()
        self._restores = 0
        self._resumed = False
        """It has resumed the request that it had paused."""
        self._created = asyncio.Event()
        """Set once the data set is known. Its creation may take long, and its request is refused until then."""
        self._data: list[tuple[float, ApiCall[Any, Any], Any]] = []
        """The calls that have registered the data set."""
        self._blocks = _draw_blocks(rng, sites)
        self.books.events = sum(file.events for block in self._blocks for file in block.files)

    async def live(self) -> None:
        rng = self._rng
        data = [
            (rng.uniform(0, 40) if position else 0.0, call, body)
            for position, (call, body) in enumerate(
                [
                    (CREATE_DATASET, DataSetCreate(DATASET)),
                    *((ADD_FILES, block) for block in self._blocks),
                    (CLOSE_DATASET, DataSetChange(DATASET)),
                ]
            )
        ]
        first = asyncio.ensure_future(
            self._produce(rng.uniform(0, self._storm / 6), _over_data(rng), self.books.events)
        )
        events = rng.randrange(100, 300)
        second = asyncio.ensure_future(
            self._produce(rng.uniform(0, self._storm / 2), _generator(rng, events), events, meddle=True)
        )
        others = [
            asyncio.ensure_future(self._produce_small(place, events))
            for place, events in enumerate(self._small)
        ]
        await self._register(data)
        await asyncio.gather(first, second, *others)

    async def _produce_small(self, place: int, events: int) -> None:
        """A request without a merge, a while after those before it."""
        specification = _generator(Random(events), events) | {"name": f"small-{place}"}
        del specification["merge"]
        await self._produce(place * self._storm / 8, specification, events)

    async def _register(self, steps: Sequence[tuple[float, ApiCall[Any, Any], Any]]) -> None:
        """Register the data set. After a restore all is done again: what is known is refused."""
        place, restores = 0, self._restores
        while place < len(steps):
            pause, call, body = steps[place]
            await asyncio.sleep(pause)
            await self._people.ask(
                MANAGER,
                partial(carry_out, call, body),
                is_given_up=lambda known=restores: known != self._restores,
            )
            self._created.set()
            place += 1
            if restores != self._restores:
                place, restores = 0, self._restores
        self._data = [(0.0, call, body) for _, call, body in steps]

    def restored(self, restore: Restore) -> None:
        """The store has gone back: register the data again, and forget the requests that it has not."""
        self._restores += 1
        if self._data:
            self._people.also(self._register(self._data))
        for request in restore.lost_requests:
            self.books.requests.pop(request, None)
            self.books.ended_early.discard(request)

    async def _call(self, call: ApiCall[Any, Any], body: object, /, **parts: int) -> Any:
        return await self._people.ask(MANAGER, lambda c, who: carry_out(call, body, c, who, **parts))

    async def _produce(
        self, after: float, specification: dict[str, Any], events: int, *, meddle: bool = False
    ) -> None:
        """Submit a request, wait for its end, and resubmit its failed parts once."""
        await asyncio.sleep(after)
        if "input" in specification:
            await self._created.wait()
        key, specification = specification["name"], specification | {"sites": self._sites or "ANY"}
        is_over = False
        while not is_over:
            accepted = await self._accepted(SUBMIT_REQUEST, RequestSubmission(specification, key=key))
            if accepted is None:
                continue
            request = accepted.request.id
            self.books.requests[request] = events
            if meddle:
                meddle = False
                await self._meddle(request)
            is_over = await self._finish(request, key)

    async def _accepted(self, call: ApiCall[Any, Any], body: object, /, **parts: int) -> Any:
        """The answer to a call that may be refused after a restore only. None: so it was, some time ago."""
        answer = await self._call(call, body, **parts)
        if answer is None:
            assert self._restores, self._people.books.refusals
            await asyncio.sleep(LOOK)
        return answer

    async def _finish(self, request: int, name: str) -> bool:
        """Wait for the end of a request, and resubmit its failed parts once. False: the store has forgotten it."""
        ended = await self._end_of(request, name)
        if ended is None:
            return False
        if ended.failed_jobs and ended.state == "completed":
            resubmission = RequestResubmission(key=f"{name} again")
            again = await self._accepted(RESUBMIT_REQUEST, resubmission, request=request)
            if again is None:
                return False
            self.books.requests[again.id] = 0
            return await self._end_of(again.id, again.name) is not None
        return True

    async def _meddle(self, request: int) -> None:
        rng = self._rng
        await asyncio.sleep(rng.uniform(0, self._storm / 3))
        deed = rng.choice(("pause", "priority", "abort", "force", "nothing"))
        reason = RequestChange("a test")
        if deed == "pause":
            await self._call(PAUSE_REQUEST, reason, request=request)
            await asyncio.sleep(rng.uniform(10, 100))
            self._resumed = True
            await self._call(RESUME_REQUEST, reason, request=request)
        elif deed == "priority":
            await self._call(SET_REQUEST_PRIORITY, RequestPriority(9000, "a test"), request=request)
        elif deed != "nothing":
            self.books.ended_early.add(request)
            call = ABORT_REQUEST if deed == "abort" else FORCE_COMPLETE_REQUEST
            await self._call(call, reason, request=request)

    async def _end_of(self, request: int, name: str) -> Any:
        """Its last state. None: the store has forgotten it, or another one has its number since."""
        while True:
            await asyncio.sleep(LOOK)
            detail = await self._accepted(SHOW_REQUEST, None, request=request)
            if detail is None or detail.request.name != name:
                return None
            if detail.request.paused and self._resumed:
                await self._call(RESUME_REQUEST, RequestChange("a test"), request=request)
            if detail.request.state in ENDED:
                return detail.request


def _draw_blocks(rng: Random, sites: list[str]) -> list[FilesAdd]:
    blocks = []
    for number in range(rng.randrange(4, 7)):
        files = [
            DataSetFile(f"raw{number}-{place}", 1000, rng.randrange(10, 50))
            for place in range(rng.randrange(1, 4))
        ]
        places = sites or rng.choice((["North"], ["South"], ["North", "South"]))
        replicas = [ReplicaLocation(site, f"/data/{site}") for site in places]
        blocks.append(FilesAdd(DATASET, f"block{number}", files, replicas))
    return blocks


def _over_data(rng: Random) -> dict[str, Any]:
    splitting = rng.choice(
        (
            {"algorithm": "EventBased", "events_per_job": 9},
            {"algorithm": "EventBased", "events_per_job": 12},
            {"algorithm": "FileBased", "files_per_job": 1},
        )
    )
    return _request("over data", splitting, rng) | {"input": DATASET, "open_for": "1 h"}


def _generator(rng: Random, events: int) -> dict[str, Any]:
    splitting = {"algorithm": "EventBased", "events_per_job": rng.choice((10, 25))}
    return _request("generator", splitting, rng) | {"events": events}


def _request(name: str, splitting: dict[str, Any], rng: Random) -> dict[str, Any]:
    codes = rng.choice((["0"], ["0", "0", "1"], ["0", "0", "0", "1"]))
    return {
        "name": name.replace(" ", "-"),
        "team": TEAM,
        "program": {"executable": "work", "arguments": [str(rng.choice((5, 10, 20))), *codes]},
        "splitting": splitting,
        "output": {"files": ["events"]},
        "merge": {
            "min_size": "1 kB",
            "max_size": rng.choice(("60 kB", "10 MB")),
            "cleanup": rng.random() < 0.5,
        },
        "retry": {"max_retries": MAX_RETRIES, "cooloff": "10 s"},
    }
