"""What the pool keeps in memory of submissions, directors, waits, and of its own filling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pilotage.core.ids import QueueId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.pilots.backoff import Pause
from pilotage.store.tables import submissions as submission_rows
from pilotage.wire.pilot import Input, Payload


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    """What a payload is made of."""

    row: submission_rows.SubmissionRow
    description: JobDescription
    inputs: tuple[Input, ...]
    common: dict[str, Payload] = field(default_factory=dict)
    """The payload of every job, under "", where no job has one of its own."""


@dataclass(frozen=True, slots=True)
class DirectorNote:
    """What the director of a CE did in its last cycle."""

    at: float
    ordered: int
    """Pilots asked for in that cycle."""
    pilots: int
    """Live ones before it."""
    cores: int
    used: int
    """Cores that they have, of all of the CE."""
    not_before: float
    """It holds back until then: pilots never called home, or came in vain. 0: it does not."""
    pauses: Mapping[QueueId, Pause] = field(default_factory=dict)
    """Queues for which no pilot is started for a while, since the last ones had no job."""


@dataclass(frozen=True, slots=True)
class RecordedReason:
    """What a queue waits for since when, as the history has it; "" when nothing waits in it."""

    reason: str
    detail: str
    began: float
    """When its wait began, whatever it waited for then."""


@dataclass(slots=True)
class IndexLoading:
    """How far the waiting jobs have been counted, by rising ids. What came since the start is counted as it comes.

    Where other servers change the same queues all are counted as of one instant, without the writer: the index counts
    what comes, and is right only when that count has been taken up.
    """

    top: int
    """The last id that was there at the start."""
    at_once: bool = False
    """Whether all jobs are counted in one snapshot: the index gives out nothing until then."""
    done_to: int = 0
    disturbed: set[QueueId] = field(default_factory=set)
    """Queues to be counted again at the end: a transaction that had changed them failed meanwhile."""
