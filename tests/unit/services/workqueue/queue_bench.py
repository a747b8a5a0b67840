"""A work queue over a real store, driven by hand: data sets, requests, and agents made of paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pilotage.core.jobs.description import JobDescription
from pilotage.core.requests.json_format import specification_to_text, splitting_to_text, stored_steps
from pilotage.core.requests.specification import (
    Merge,
    Output,
    Program,
    Specification,
    Step,
    StepSplitting,
)
from pilotage.core.requests.states import RequestState
from pilotage.core.splitting.mask import FileRecord, LumiRange, Mask
from pilotage.core.splitting.parser import parse_splitting
from pilotage.core.splitting.split import split
from pilotage.services.workqueue import expiry, membership
from pilotage.services.workqueue.custody import AgentUser
from pilotage.services.workqueue.intake import take_slice
from pilotage.services.workqueue.splitting import files_page, held_element, parts_of, post_masks, read_mask
from pilotage.services.workqueue.state import WorkQueue
from pilotage.services.workqueue.sync import sync
from pilotage.store.tables import agents, dataset_totals, element_masks, elements, location_sets, requests
from pilotage.store.tables.elements import ElementRow
from pilotage.store.tables.requests import RequestRow, StepRow
from pilotage.wire.agents import (
    ElementReference,
    ElementRelease,
    JoinRequest,
    OfferedElement,
    PostedMasks,
    PostMasks,
    SyncRequest,
    SyncResponse,
)
from tests.unit.services.bench import Bench

LEASE = 300.0
ALICE = AgentUser("alice")
POLICY = """\
[groups.physics]
[users.alice]
groups = ["physics"]
[users.bob]
groups = ["physics"]
[sites.A]
[sites.B]
[sites.C]
[ces.a]
site = "A"
type = "slurm"
max_running = 40
[ces.b]
site = "B"
type = "slurm"
max_running = 40
[requests]
agent_lease = 300.0
"""
FILES = StepSplitting("FileBased", (("files_per_job", 2),))
EVENTS = StepSplitting("EventBased", (("events_per_job", 10),))


class QueueBench:
    """The use cases of the work queue on a bench."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.work_queue = WorkQueue(bench.pool)
        self.rng = Random(3)

    def reopen(self) -> None:
        """As after a restart of the server: nothing in memory is left."""
        self.bench.close()
        self.bench.open()
        self.work_queue = WorkQueue(self.bench.pool)

    @property
    def now(self) -> float:
        return self.bench.now

    def sql(self, text: str, *values: Any) -> list[Any]:
        return self.bench.do(lambda tx: tx.connection.execute(text, values).fetchall())

    def run(self, text: str, *values: Any) -> None:
        self.bench.do(lambda tx: tx.connection.execute(text, values))

    # --- data

    def dataset(self, name: str, *, is_open: bool = False) -> int:
        [(number,)] = self.sql(
            "INSERT INTO datasets (name, owner, grp, created, open) VALUES (?, 'alice', 'physics', ?, ?) RETURNING id",
            name,
            self.now,
            int(is_open),
        )
        return int(number)

    def block(
        self,
        dataset: int,
        name: str,
        files: int = 4,
        *,
        sites: Sequence[str] | None = ("A", "B"),
        events: int = 100,
        lumis: Sequence[Sequence[int]] = (),
        is_open: bool = False,
    ) -> int:
        """A block with files; `sites` None: its location is not known."""
        location = (
            0 if sites is None else self.bench.do(lambda tx: location_sets.id_of(tx.connection, list(sites)))
        )
        [(last,)] = self.sql("SELECT coalesce(max(closed_number), 0) FROM blocks")
        [(block,)] = self.sql(
            "INSERT INTO blocks (dataset_id, name, created, open, closed_number, files, events, size, location_set)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
            *(dataset, name, self.now, int(is_open), None if is_open else last + 1),
            *(files, files * events, files * 1000, location),
        )
        if not is_open:
            contents = (files, files * events, files * 1000)
            self.bench.do(lambda tx: dataset_totals.add_closed(tx.connection, dataset, contents))
        for number in range(files):
            self.run(
                "INSERT INTO files (dataset_id, block_id, name, size, events, lumis, created)"
                " VALUES (?, ?, ?, 1000, ?, ?, ?)",
                *(dataset, block, f"{name}/{number}", events, json.dumps(lumis) if lumis else "", self.now),
            )
        return int(block)

    # --- requests

    def request(
        self,
        *steps: Step,
        inputs: Sequence[int] = (),
        state: RequestState = RequestState.ASSIGNED,
        team: str = "home",
        priority: int = 8000,
        sites: Sequence[str] = ("*",),
        **more: Any,
    ) -> int:
        """Store an assigned request; `inputs`: the input data set of each step that has one."""
        given = steps or (self.step(),)
        specification = Specification("work", given)
        row = RequestRow(
            0,
            "work",
            "alice",
            "physics",
            priority,
            team,
            "",
            state,
            specification_to_text(specification),
            tuple(sites),
            more.pop("banned_sites", ()),
            more.pop("trust_input", False),
            more.pop("trust_pileup", False),
            more.pop("open_until", None),
            self.now,
            self.now,
            **more,
        )
        stored = self.bench.do(lambda tx: requests.insert(tx.connection, row))
        planned = stored_steps(stored.specification, stored.id)
        outputs = [
            self.dataset(step.output.dataset, is_open=True) if step.output.dataset else None
            for step in planned
        ]
        rows = [
            StepRow(
                stored.id,
                step.position,
                step.name,
                step.type,
                step.start_policy,
                splitting_to_text(step.splitting),
                outputs[step.after]
                if step.after is not None
                else (inputs[step.position] if inputs else None),
                step.after,
                (),
                (),
                outputs[step.position],
            )
            for step in planned
        ]
        self.bench.do(lambda tx: requests.insert_steps(tx.connection, rows))
        return stored.id

    def step(self, name: str = "process", splitting: StepSplitting = FILES, **more: Any) -> Step:
        return Step(name, Program(JobDescription("/bin/true")), splitting, **more)

    def merged_step(self) -> Step:
        return self.step(output=Output(("out",)), merge=Merge((("max_size", 10_000), ("min_size", 100))))

    def intake(self, request: int, limit: int = 1000) -> int:
        """All slices that can be taken now; returns their number."""
        slices = 1
        while self.bench.do(lambda tx: take_slice(self.work_queue, tx, request, self.now, limit)):
            slices += 1
        return slices

    def request_row(self, request: int) -> RequestRow:
        row = self.bench.do(lambda tx: requests.by_id(tx.connection, request))
        assert row is not None
        return row

    def elements_of(self, request: int) -> list[ElementRow]:
        ids = [
            row[0] for row in self.sql("SELECT id FROM elements WHERE request_id = ? ORDER BY id", request)
        ]
        rows = self.bench.do(lambda tx: elements.by_ids(tx.connection, ids))
        return [rows[number] for number in ids]

    def element(self, number: int) -> ElementRow:
        return self.bench.do(lambda tx: elements.by_ids(tx.connection, [number]))[number]

    def moves(self, request: int) -> list[tuple[str, str, list[int]]]:
        """Old state, new state and elements of each event of elements."""
        rows = self.sql(
            "SELECT old, new, detail FROM request_events WHERE request_id = ? AND kind = 'elements' ORDER BY id",
            request,
        )
        return [(old, new, json.loads(detail)["elements"]) for old, new, detail in rows]

    # --- agents

    def agent(self, name: str = "one", **more: Any) -> PaperAgent:
        agent = PaperAgent(self, name, **more)
        agent.join()
        return agent

    def expire(self) -> int:
        """One cycle of the duty of agents."""
        now = self.now
        gone = self.bench.do(lambda tx: expiry.over(tx, now))
        ended = self.bench.do(lambda tx: expiry.expire(self.work_queue, tx, now, gone))
        for agent in self.bench.do(lambda tx: expiry.abandoned(tx, now)):
            while self.bench.do(lambda tx, agent=agent: expiry.take_over(self.work_queue, tx, now, [agent])):
                pass
        return ended

    # --- what must hold

    def masks(self, request: int) -> list[Mask]:
        rows = self.sql("SELECT mask FROM element_jobs WHERE request_id = ? ORDER BY id", request)
        return [Mask.from_json(json.loads(row[0])) for row in rows]

    def check_every_event_once(self, request: int) -> None:
        """Each event of each file of the request's elements is in exactly one mask."""
        events: dict[tuple[int, int], int] = {}
        for mask in self.masks(request):
            if mask.generates:
                for number in range(mask.first_event, mask.first_event + mask.events):
                    events[0, number] = events.get((0, number), 0) + 1
            for part in mask.ranges:
                [(total,)] = self.sql("SELECT events FROM files WHERE id = ?", part.file)
                end = total if part.events < 0 else part.first + part.events
                for number in range(part.first, end):
                    events[part.file, number] = events.get((part.file, number), 0) + 1
        expected: set[tuple[int, int]] = set()
        for row in self.elements_of(request):
            if not row.block_ids:
                mask = Mask.from_json(json.loads(row.mask))
                expected |= {(0, mask.first_event + number) for number in range(mask.events)}
            for block in row.block_ids:
                for file, total in self.sql("SELECT id, events FROM files WHERE block_id = ?", block):
                    expected |= {(file, number) for number in range(total)}
        assert set(events) == expected
        assert set(events.values()) <= {1}


@dataclass
class PaperAgent:
    """An agent that sends what it is told to."""

    bench: QueueBench
    name: str
    team: str = "home"
    user: AgentUser = ALICE
    nonce: str = "first"
    number: int = 1
    id: int = 0
    held: dict[int, OfferedElement] = field(default_factory=dict)

    def join(self) -> None:
        message = JoinRequest(self.name, self.team, self.nonce)
        bench = self.bench
        answer = bench.bench.do(
            lambda tx: membership.join(bench.work_queue, tx, message, self.user, bench.now)
        )
        self.id = answer.agent

    def message(self, want: int = 200, **more: Any) -> SyncRequest:
        slots = more.pop("slots", {"A": 10**6, "B": 10**6, "C": 10**6})
        return SyncRequest(
            self.nonce,
            self.number,
            want,
            slots,
            [ElementReference(element.id, element.epoch) for element in self.held.values()],
            **more,
        )

    def send(self, message: SyncRequest) -> SyncResponse:
        """Send a message, without use of its answer."""
        bench = self.bench
        load = bench.bench.do(lambda tx: bench.work_queue.loads.count(tx.connection, self.id, bench.now))
        return bench.bench.do(
            lambda tx: sync(bench.work_queue, tx, self.id, self.user, message, load, bench.now, bench.rng)
        )

    def sync(self, want: int = 200, **more: Any) -> SyncResponse:
        answer = self.send(self.message(want, **more))
        self.number += 1
        for element in answer.stop:
            self.held.pop(element, None)
        self.held.update({element.id: element for element in answer.elements})
        return answer

    def give_back(self, *ids: int) -> SyncResponse:
        releases = [ElementRelease(number, self.held.pop(number).epoch, "drain") for number in ids]
        return self.sync(0, releases=releases)

    def post(
        self, element: OfferedElement, masks: Sequence[Mask], *, last: bool = False, **more: Any
    ) -> PostedMasks:
        message = PostMasks(element.epoch, [mask.to_json() for mask in masks], last, **more)
        bench, made, known = self.bench, 0, 0
        for part, given in parts_of(message, map(read_mask, message.masks)):
            posted = bench.bench.do(
                lambda tx, part=part, given=given: post_masks(
                    bench.work_queue, tx, self.id, self.user, element.id, part, given, bench.now
                )
            )
            made, known = made + posted.made, known + posted.known
        return PostedMasks(made, known, posted.superseded)

    def masks_of(self, element: OfferedElement) -> list[Mask]:
        """The masks that the element lacks."""
        bench = self.bench
        row = bench.bench.do(lambda tx: agents.by_id(tx.connection, self.id))
        assert row is not None
        held = bench.bench.do(lambda tx: held_element(tx.connection, row, element.id, element.epoch))
        assert held is not None
        files: list[FileRecord] = []
        after = 0
        while True:
            page, after = bench.bench.do(lambda tx, after=after: files_page(tx.connection, held, after, 3))
            files += page
            if not after:
                break
        existing = bench.bench.do(lambda tx: list(element_masks.masks_of(tx.connection, element.id)))
        algorithm = parse_splitting(element.splitting.algorithm, element.splitting.parameters)
        restriction = None if element.mask is None else Mask.from_json(element.mask)
        return list(
            split(
                files,
                algorithm,
                restriction,
                existing=[Mask.from_json(json.loads(mask)) for mask in existing],
            )
        )

    def split(self, *ids: int) -> None:
        """Split elements, all if none is named."""
        for number in ids or sorted(self.held):
            element = self.held.pop(number)
            answer = self.post(element, self.masks_of(element), last=True)
            assert not answer.superseded


def lumi(run: int, first: int, last: int) -> LumiRange:
    return LumiRange(run, first, last)
