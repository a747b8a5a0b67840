"""A cache of submissions with their parsed descriptions."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pilotage.core.errors import NotFound
from pilotage.core.ids import SubmissionId
from pilotage.core.jobs.json_format import description_from_json
from pilotage.services.pool.lru_cache import LruCache
from pilotage.services.pool.records import SubmissionFacts
from pilotage.store.tables import submissions as submission_rows
from pilotage.store.writer.transaction import Transaction
from pilotage.wire.pilot import Input

MAX_SUBMISSIONS = 4096
"""Submissions in the cache. The least recently used one is evicted first."""


class SubmissionCache:
    """Reads submissions from the store when they are not in memory."""

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
