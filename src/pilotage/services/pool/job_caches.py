"""The parts of jobs and requests that memory keeps, so that messages of pilots read few rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pilotage.core.errors import NotFound
from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.json_format import description_from_json
from pilotage.services.pool.lru_cache import LruCache
from pilotage.services.pool.records import StepOutputs, SubmissionFacts
from pilotage.store.tables import submissions as submission_rows
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Input

MAX_SUBMISSIONS = 4096
"""Submissions in the cache. The least recently used one is evicted first."""


class SubmissionCache:
    """Submissions with their parsed descriptions. They are read from the store when they are not in memory."""

    __slots__ = ("facts",)

    def __init__(self) -> None:
        self.facts: LruCache[SubmissionId, SubmissionFacts] = LruCache(MAX_SUBMISSIONS)

    def get(self, tx: Transaction, id_: SubmissionId) -> SubmissionFacts:
        """A submission. Raises `NotFound`."""
        facts = self.facts.use(id_)
        if facts is None:
            row = submission_rows.by_id(tx.connection, id_)
            if row is None:
                raise NotFound(f"there is no submission {id_}")
            facts = self._remember(tx, row)
        return facts

    def load(self, tx: Transaction, ids: Iterable[SubmissionId]) -> None:
        """Read missing submissions with one statement. Ids without a row are ignored."""
        missing = {id_ for id_ in ids if id_ not in self.facts}
        if missing:
            for row in submission_rows.by_ids(tx.connection, sorted(missing)):
                self._remember(tx, row)

    def _remember(self, tx: Transaction, row: submission_rows.SubmissionRow) -> SubmissionFacts:
        inputs = tuple(Input(**plain) for plain in json.loads(row.inputs))
        facts = SubmissionFacts(row, description_from_json(json.loads(row.description)), inputs)
        # If the transaction that inserted the row fails, its id is allocated again.
        tx.put(self.facts, row.id, facts)
        return facts


@dataclass(slots=True)
class WorkSignal:
    """Tells a duty of this server that a transaction leaves work for it. No part of the state of the pool."""

    listener: Callable[[], object] | None = None

    def __call__(self) -> None:
        if self.listener is not None:
            self.listener()


@dataclass(slots=True)
class JobCaches:
    """Submissions, the outputs of requests, and jobs that a user watches."""

    submissions: SubmissionCache = field(default_factory=SubmissionCache)
    step_outputs: LruCache[tuple[int, int], StepOutputs] = field(default_factory=lambda: LruCache(4096))
    """The outputs of a step, by request and position of the step."""
    given_places: set[tuple[str, str]] = field(default_factory=set)
    """Sites and storage places that the store has as given to pilots, as far as known here."""
    dependants_due: WorkSignal = field(default_factory=WorkSignal)
    """Called when conditions must be decided after the transaction."""
    followed: dict[JobId, float] = field(default_factory=dict)
    """Jobs with output that a user watches, and until when. The lease duty drops expired entries."""
