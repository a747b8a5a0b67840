"""Requests over data sets, with counted events: a manager registers data, submits, pauses, aborts and resubmits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
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
    def __init__(self, people: People, rng: Random, sites: list[str]) -> None:
        """`sites`: those of its requests; empty: all."""
        self._people, self._rng, self._sites = people, rng, sites
        self.books = ProductionBooks()
        self._blocks = _draw_blocks(rng, sites)
        self.books.events = sum(file.events for block in self._blocks for file in block.files)

    async def live(self) -> None:
        rng = self._rng
        await self._call(CREATE_DATASET, DataSetCreate(DATASET))
        first = asyncio.ensure_future(self._produce(rng.uniform(0, 100), _over_data(rng), self.books.events))
        events = rng.randrange(100, 300)
        second = asyncio.ensure_future(
            self._produce(rng.uniform(0, 300), _generator(rng, events), events, meddle=True)
        )
        for block in self._blocks:
            await asyncio.sleep(rng.uniform(0, 40))
            await self._call(ADD_FILES, block)
        await self._call(CLOSE_DATASET, DataSetChange(DATASET))
        await asyncio.gather(first, second)

    async def _call(self, call: ApiCall[Any, Any], body: object, /, **parts: int) -> Any:
        return await self._people.ask(MANAGER, lambda c, who: carry_out(call, body, c, who, **parts))

    async def _produce(
        self, after: float, specification: dict[str, Any], events: int, *, meddle: bool = False
    ) -> None:
        """Submit a request, wait for its end, and resubmit its failed parts once."""
        await asyncio.sleep(after)
        key, specification = specification["name"], specification | {"sites": self._sites or "ANY"}
        accepted = await self._call(SUBMIT_REQUEST, RequestSubmission(specification, key=key))
        assert accepted is not None, self._people.books.refusals
        request = accepted.request.id
        self.books.requests[request] = events
        if meddle:
            await self._meddle(request)
        ended = await self._end_of(request)
        if ended.failed_jobs and ended.state == "completed":
            again = await self._call(
                RESUBMIT_REQUEST, RequestResubmission(key=f"{key} again"), request=request
            )
            assert again is not None, self._people.books.refusals
            self.books.requests[again.id] = 0
            await self._end_of(again.id)

    async def _meddle(self, request: int) -> None:
        rng = self._rng
        await asyncio.sleep(rng.uniform(0, 200))
        deed = rng.choice(("pause", "priority", "abort", "force", "nothing"))
        reason = RequestChange("a test")
        if deed == "pause":
            await self._call(PAUSE_REQUEST, reason, request=request)
            await asyncio.sleep(rng.uniform(10, 100))
            await self._call(RESUME_REQUEST, reason, request=request)
        elif deed == "priority":
            await self._call(SET_REQUEST_PRIORITY, RequestPriority(9000, "a test"), request=request)
        elif deed != "nothing":
            self.books.ended_early.add(request)
            call = ABORT_REQUEST if deed == "abort" else FORCE_COMPLETE_REQUEST
            await self._call(call, reason, request=request)

    async def _end_of(self, request: int) -> Any:
        while True:
            await asyncio.sleep(LOOK)
            detail = await self._call(SHOW_REQUEST, None, request=request)
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
