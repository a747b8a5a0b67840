"""Requests, elements and made jobs on a bench, inserted as their services would leave them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from pilotage.core.jobs.description import JobDescription
from pilotage.core.requests.json_format import specification_to_text
from pilotage.core.requests.specification import Output, Program, Retry, Specification, Step, StepSplitting
from pilotage.core.requests.states import RequestState
from pilotage.core.workqueue.roll_up import WORKING
from pilotage.services.workqueue import roll_up
from pilotage.services.workqueue.programs import ProgramCache
from pilotage.services.workqueue.release import ReleaseRun
from pilotage.services.workqueue.state import WorkQueue
from pilotage.store.tables import element_jobs, job_outcomes, releasing, requests
from pilotage.store.tables.element_masks import NewElementJob, insert_jobs
from pilotage.store.tables.requests import RequestRow, StepRow
from tests.unit.services.bench import Bench

TEAM = "home"


class RequestBench:
    """Requests on a bench. Each step is one element, unless told otherwise."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.work_queue, self.programs = WorkQueue(bench.pool), ProgramCache()
        self.rng = Random(3)
        self.agents = 0

    # --- rows

    def agent(self, team: str = TEAM) -> int:
        self.agents += 1
        sql = (
            "INSERT INTO agents (name, team, owner, nonce, joined, seen, lease_until) VALUES (?, ?, 'a', 'n', ?, ?, ?)"
            " RETURNING id"
        )
        values = (f"agent {self.agents}", team, self.bench.now, self.bench.now, self.bench.now + 1e9)
        return int(self.bench.do(lambda tx: tx.connection.execute(sql, values).fetchone()[0]))

    def request(
        self,
        *,
        priority: int = 100,
        types: Sequence[str] = ("Processing",),
        state: RequestState = RequestState.ACQUIRED,
        sites: Sequence[str] = ("*",),
        retry: Retry = Retry(),  # noqa: B008
        closed: bool = True,
        program: Program | None = None,
        splitting: Mapping[str, float] | None = None,
        **fields: Any,
    ) -> int:
        cut = StepSplitting("FileBased", tuple({"files_per_job": 1, **(splitting or {})}.items()))
        program = program or Program(JobDescription(executable="/bin/true", **fields))
        steps = tuple(
            Step(name=f"s{place}", program=program, splitting=cut, type=kind,
                 output=Output(), retry=retry)
            for place, kind in enumerate(types)
        )  # fmt: skip
        now = self.bench.now
        row = RequestRow(
            id=0, name="r", owner="alice", group="physics", priority=priority, team=TEAM, campaign="",
            state=state, specification=specification_to_text(Specification("r", steps)), sites=tuple(sites),
            banned_sites=(), trust_input=False, trust_pileup=False, open_until=None, created=now, changed=now,
        )  # fmt: skip

        def store(tx: Any) -> int:
            stored = requests.insert(tx.connection, row)
            requests.insert_steps(
                tx.connection,
                [
                    StepRow(stored.id, place, f"s{place}", kind, "Block", "{}", None, None, (), (), None,
                            closed=closed)
                    for place, kind in enumerate(types)
                ],
            )  # fmt: skip
            return stored.id

        return self.bench.do(store)

    def element(
        self,
        request: int,
        jobs: int,
        *,
        step: int = 0,
        agent: int = 1,
        state: str = "Running",
        events: int = 10,
    ) -> int:
        """An element that its agent has split into `jobs` jobs of `events` events each."""

        def store(tx: Any) -> int:
            sql = (
                "INSERT INTO elements (request_id, step, digest, state, jobs, location_set, created, changed, agent_id,"
                " epoch, finished_epoch) VALUES (?, ?, ?, ?, ?, ?, 0, 0, ?, 1, ?) RETURNING id"
            )
            digest = f"{request} {step} {self.rng.random()}"
            split = int(state == "Running")
            values = (request, step, digest, state, jobs, self.anywhere(tx), agent, split)
            element = int(tx.connection.execute(sql, values).fetchone()[0])
            insert_jobs(
                tx.connection,
                [
                    NewElementJob(element, 1, f"mask {place}", "{}", request, step, "made", self.anywhere(tx), "",
                                  agent, events, 1, 0, self.bench.now)
                    for place in range(jobs)
                ],
            )  # fmt: skip
            return element

        return self.bench.do(store)

    def anywhere(self, tx: Any) -> int:
        select = "SELECT id FROM location_sets WHERE sites = '[\"*\"]'"
        row = tx.connection.execute(select).fetchone()
        if row is None:
            insert = "INSERT INTO location_sets (digest, sites) VALUES ('any', '[\"*\"]') RETURNING id"
            row = tx.connection.execute(insert).fetchone()
        return int(row[0])

    # --- duties

    def release(self, most: int = 7) -> int:
        """One pass, in slices; returns the number of jobs that went to the pool."""
        bench = self.bench
        active = bench.do(lambda tx: releasing.in_states(tx.connection, sorted(WORKING)))
        counts = bench.do(lambda tx: element_jobs.released_counts(tx.connection, active))
        made = bench.do(lambda tx: releasing.with_made_jobs(tx.connection))
        run = ReleaseRun(self.work_queue, self.programs, counts, self.rng, frozenset(made))
        before = self.jobs()["released"]
        while not bench.do(lambda tx: run.read_groups(tx, bench.now)):
            pass
        while bench.do(lambda tx: run.release(tx, most, bench.now)):
            pass
        return self.jobs()["released"] - before

    def roll_up(self, most: int = 3) -> None:
        bench, rules = self.bench, self.bench.pool.policy.requests.retry_rules()
        places = roll_up.places_of(self.work_queue, bench.now)
        while True:
            ends = bench.do(lambda tx: job_outcomes.after(tx.connection, 0, most))
            if not ends:
                return
            ended = bench.do(
                lambda tx, ends=ends: roll_up.roll_up(tx, self.programs, rules, bench.now, ends, places)
            )
            for request in sorted(ended):
                bench.do(lambda tx, request=request: roll_up.advance(tx, request, bench.now))

    def advance(self, request: int) -> None:
        self.bench.do(lambda tx: roll_up.advance(tx, request, self.bench.now))

    def make_again(self) -> int:
        return self.bench.do(lambda tx: element_jobs.make_again(tx.connection, self.bench.now, 1000))

    # --- what stands in the store

    def jobs(self, request: int | None = None) -> Counter[str]:
        """The number of element jobs in each state."""
        where, values = ("", ()) if request is None else (" WHERE request_id = ?", (request,))
        sql = f"SELECT state, count(*) FROM element_jobs{where} GROUP BY state"
        return Counter(dict(self.bench.connection.execute(sql, values).fetchall()))

    def pool_jobs(self, request: int | None = None) -> list[int]:
        where, values = ("", ()) if request is None else (" AND request_id = ?", (request,))
        sql = f"SELECT job_id FROM element_jobs WHERE job_id IS NOT NULL{where} ORDER BY job_id"
        return [row[0] for row in self.bench.connection.execute(sql, values)]

    def element_state(self, element: int) -> str:
        sql = "SELECT state FROM elements WHERE id = ?"
        return str(self.bench.connection.execute(sql, (element,)).fetchone()[0])

    def progress(self, element: int) -> Mapping[str, int]:
        names = ("jobs_done", "jobs_failed", "jobs_canceled", "events_done")
        row = self.bench.connection.execute(
            f"SELECT {', '.join(names)} FROM elements WHERE id = ?", (element,)
        ).fetchone()
        return dict(zip(names, row, strict=True))

    def state(self, request: int) -> str:
        row = requests.by_id(self.bench.connection, request)
        assert row is not None
        return str(row.state)

    def way(self, request: int) -> list[str]:
        """The states of a request in the order of its events; other events are of its elements."""
        events = requests.events_of(self.bench.connection, request)
        return [event.new for event in events if event.new and event.kind in ("submit", "state")]

    def details(self, request: int) -> list[dict[str, Any]]:
        rows = self.bench.connection.execute(
            "SELECT description, names FROM submissions WHERE request_id = ? ORDER BY id", (request,)
        )
        return [{**json.loads(row[0]), "names": json.loads(row[1])} for row in rows]


def limited(policy: str, **thresholds: int) -> str:
    """A policy with fixed thresholds of all sites and types."""
    lines = "\n".join(f"{name} = {value}" for name, value in thresholds.items())
    return f"{policy}\n[[requests.thresholds]]\n{lines}\n"
