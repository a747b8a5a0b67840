"""Records that the pool keeps: submissions, directors' cycles, wait reasons, the progress of loading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pilotage.core.ids import QueueId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.pilots.backoff import Pause
from pilotage.core.requests.specification import Output
from pilotage.store.tables import submissions as submission_rows
from pilotage.wire.pilot import Input, Payload


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    """The parts of a submission from which payloads are made."""

    row: submission_rows.SubmissionRow
    description: JobDescription
    inputs: tuple[Input, ...]
    common: dict[str, Payload] = field(default_factory=dict)
    """The payload that all jobs share, under "", if no job has parameters of its own."""


class StepOutputs(NamedTuple):
    """The files that the jobs of a step write."""

    files: Output
    logs: Output


@dataclass(frozen=True, slots=True)
class DirectorNote:
    """The last cycle of a CE's director."""

    at: float
    ordered: int
    """Pilots asked for in that cycle."""
    pilots: int
    """Live pilots before that cycle."""
    cores: int
    used: int
    """Cores of these pilots. `cores` counts all of the CE."""
    not_before: float
    """No pilot is started before then, since earlier ones never called home or got no job. 0: no delay."""
    pauses: Mapping[QueueId, Pause] = field(default_factory=dict)
    """Queues for which no pilot is started for some time, since the last pilots got no job."""
    budget: str = ""
    """The budget and its use, if it allows no further pilot."""
    budget_room: int | None = None
    """Further pilots that the budget allows; None: there is no budget."""


@dataclass(frozen=True, slots=True)
class RecordedReason:
    """The last wait reason of a queue in the history. `reason` is "" if the queue had no waiting jobs."""

    reason: str
    detail: str
    began: float
    """When the queue began to wait. A change of the reason keeps this time."""


@dataclass(slots=True)
class IndexLoading:
    """How far the waiting jobs have been counted, by rising ids. Jobs that are added meanwhile are counted directly.

    If other servers change the same queues, all jobs are counted in one snapshot beside the writer. The counts of the
    index are then correct only when the snapshot has been applied.
    """

    last_job: int
    """The last job id at the start."""
    in_snapshot: bool = False
    """Whether all jobs are counted in one snapshot. The index offers no job until then."""
    counted_to: int = 0
    to_recount: set[QueueId] = field(default_factory=set)
    """Queues changed by a transaction that failed during loading. They are counted again at its end."""
