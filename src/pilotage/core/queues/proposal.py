"""The result of a match: a proposed job, or the conditions that refused the offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pilotage.core.ids import JobId, QueueId
from pilotage.core.queues.fit import Condition
from pilotage.core.queues.indexed_queue import Head, IndexedQueue


class Proposal(NamedTuple):
    head: Head
    entry: IndexedQueue
    user_priority: int

    @property
    def job(self) -> JobId:
        return JobId(self.head[0])

    @property
    def queue(self) -> QueueId:
        return self.entry.id


@dataclass(frozen=True, slots=True)
class NoMatch:
    """The number of queues with waiting jobs by the first condition that each failed."""

    fallen: dict[Condition, int]
