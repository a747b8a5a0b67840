"""Changes that an index passes to its peers."""

from __future__ import annotations

from dataclasses import dataclass, field

from pilotage.core.ids import QueueId


@dataclass(slots=True)
class IndexDelta:
    """Changes of an index since the last transaction, for the indexes of peers."""

    gone: list[tuple[QueueId, int, int, int]] = field(default_factory=list)
    """(queue, UserPriority, job, last event) of jobs that no longer wait. Event 0 matches any event."""
    back: list[tuple[QueueId, int, int, int]] = field(default_factory=list)
    """(queue, UserPriority, lowest id, count) of jobs that wait, new or again."""

    def __bool__(self) -> bool:
        return bool(self.gone or self.back)
