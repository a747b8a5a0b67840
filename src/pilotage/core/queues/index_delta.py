"""What one server's index tells those of the others."""

from __future__ import annotations

from dataclasses import dataclass, field

from pilotage.core.ids import QueueId


@dataclass(slots=True)
class IndexDelta:
    """What was done to an index since somebody last looked, for the indexes of other servers."""

    gone: list[tuple[QueueId, int, int, int]] = field(default_factory=list)
    """(queue, UserPriority, job, what its last event was): they wait no longer. Event 0: whatever it was."""
    back: list[tuple[QueueId, int, int, int]] = field(default_factory=list)
    """(queue, UserPriority, lowest id, how many): they wait, new or again."""

    def __bool__(self) -> bool:
        return bool(self.gone or self.back)
