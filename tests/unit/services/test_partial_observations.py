"""Observations of some pilots of a submission: they change the store exactly as observations of all its pilots do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pilotage.core.errors import PilotageError
from pilotage.outside.batch.submission import ListedTask, NativeState
from pilotage.services.director import listing_comparison
from pilotage.services.director.listing_comparison import ListingComparison, Observation, compare, stamps_of
from pilotage.services.pilots.lifecycle import PilotEnd, end_silent_pilot
from pilotage.store.tables import pilots
from tests.paper_batch import PaperBatch, PaperJob
from tests.unit.services.bench import Bench, Paper
from tests.unit.services.test_batch_director import BATCH_POLICY, SETTLE, Site

WAITING, RUNNING = 8, 30


class ReasonBatch(PaperBatch):
    """Some jobs have a reason why they wait."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: dict[str, str] = {}

    def _tasks(self) -> Iterator[ListedTask]:
        for task in super()._tasks():
            yield replace(task, reason=self.reasons.get(task.batch_id, ""))


class WideSite(Site):
    """A site whose submissions have several pilots."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        policy = BATCH_POLICY.replace("max_waiting = 3", f"max_waiting = {WAITING}")
        self.bench = Bench(folder, policy.replace("max_running = 5", f"max_running = {RUNNING}"))
        self.batch: ReasonBatch = ReasonBatch()
        self.papers = {}
        self.director = self._new_director()

    def snapshot(self) -> dict[str, Any]:
        """All that a listing may change. Stamps are random, so the order of the rows takes their place."""
        of_pilots = "idx, state, batch_id, cores_from, cores_until, silent_from, reason, ended, leave"
        of_submissions = "phase, batch_id, absent_since, reason, ended"
        memory = self.director.memory
        return {
            "pilots": self._rows(f"SELECT {of_pilots} FROM pilots ORDER BY id"),
            "submissions": self._rows(f"SELECT {of_submissions} FROM pilot_submissions ORDER BY id"),
            "jobs": self._rows("SELECT id, state FROM jobs ORDER BY id"),
            "memory": (memory.trouble, memory.failures, memory.not_before, memory.alike, memory.failure),
            "orphaned": self.director.memory.orphans,
            "listed": [(job.index, job.batch_id, job.state) for job in self.batch.jobs],
        }

    def _rows(self, sql: str) -> list[Any]:
        return list(self.bench.connection.execute(sql).fetchall())

    def compared(self) -> ListingComparison:
        listing, bench = self.batch.list_pilots(), self.bench
        return compare(bench.connection, "batch", self.director.unchanged, listing, bench.now)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], WideSite]]:
    made: list[WideSite] = []

    def make(name: str) -> WideSite:
        made.append(WideSite(tmp_path / name))
        return made[-1]

    yield make
    for site in made:
        site.close()


def change(site: WideSite, rng: Random) -> None:
    """Something happens to one job or pilot."""
    batch, bench = site.batch, site.bench
    kinds = ["submit", "start", "start silently", "ends", "is ended", "hold", "reason", "give up", "work"]
    kind = rng.choice([*kinds, "later", "crash of the controller"])
    if kind == "submit":
        bench.submit(rng.randrange(1, 12))
    elif kind == "work":
        site.work()
    elif kind == "later":
        bench.now += rng.choice([SETTLE / 3, SETTLE])
    elif kind == "give up":
        if rows := sorted(pilots.live(bench.connection, "batch"), key=lambda row: row.id):
            row, end = rng.choice(rows), PilotEnd.LEASE_OVER
            bench.do(lambda tx: end_silent_pilot(bench.pool, tx, row, end, "silent", bench.now))
    elif kind == "crash of the controller":
        batch.save_state()
        batch.crash()
    elif batch.jobs:
        change_job(site, rng.choice(batch.jobs), kind)


def change_job(site: WideSite, job: PaperJob, kind: str) -> None:
    batch = site.batch
    if kind == "ends":
        batch.end(job.batch_id)
    elif kind == "is ended":
        set_state(batch, job, NativeState.ENDED)
    elif kind == "reason":
        batch.reasons[job.batch_id] = "" if batch.reasons.get(job.batch_id) else "Priority"
    elif kind == "hold" and job.state is not NativeState.ENDED:
        set_state(batch, job, NativeState.HELD)
    elif kind.startswith("start") and job.state is NativeState.WAITING:
        set_state(batch, job, NativeState.RUNNING)
        if kind == "start":
            try:
                site.papers[job.batch_id] = job, Paper(site.bench, job.script, job.index)
            except PilotageError:
                batch.end(job.batch_id)


def set_state(batch: PaperBatch, job: PaperJob, state: NativeState) -> None:
    batch.jobs = [
        replace(known, state=state) if known.batch_id == job.batch_id else known for known in batch.jobs
    ]


@pytest.mark.parametrize("seed", range(6))
def test_partial_observations_change_the_store_as_full_ones(
    make: Callable[[str], WideSite], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    partial, full, observations = make("partial"), make("full"), list[Observation]()
    for site in (partial, full):
        site.bench.submit(WAITING)
        site.cycle()
    rngs = Random(seed), Random(seed)
    for _ in range(60):
        for site, rng in zip((partial, full), rngs, strict=True):
            for _ in range(2):
                change(site, rng)
            site.bench.do(site.director.memory.end_pause)
        observations += [
            observation for observation in partial.compared().observations if observation.indexes is not None
        ]
        partial.cycle()
        with monkeypatch.context() as patched:
            patched.setattr(listing_comparison, "_observe_some", lambda *_: None)
            full.cycle()
        assert partial.snapshot() == full.snapshot()
    assert len(observations) > 10


def test_only_the_pilot_whose_job_has_changed_is_read(make: Callable[[str], WideSite]) -> None:
    site = make("one")
    site.bench.submit(WAITING)
    site.cycle()
    site.start_pilots()
    site.cycle()
    assert site.compared().observations == []
    first, *_ = site.batch.jobs
    site.batch.end(first.batch_id)
    [observation] = site.compared().observations
    assert stamps_of(observation) == [f"{first.stamp}/{first.index}"]
    assert observation.others == WAITING - 1


def test_a_settled_submission_is_noted_without_an_observation(make: Callable[[str], WideSite]) -> None:
    site = make("unchanged")
    site.bench.submit(WAITING)
    site.cycle()
    site.start_pilots()
    site.cycle()
    site.cycle()
    site.director = site._new_director()
    comparison = site.compared()
    assert comparison.observations == []
    assert set(comparison.unchanged) == {job.stamp for job in site.batch.jobs}
    site.cycle()
    assert site.director.unchanged == comparison.unchanged
