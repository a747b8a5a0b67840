"""When pilots that were started for a task queue have no job, the next ones are started ever more seldom.

Events are counted, not pilots. Pilots of one submission that come in vain are one event. So are all pilots of one
queue whose end is noticed in the same cycle.

A pilot can come in vain although the predicate said that it fits: its node differs from the one that was expected,
or a limit closed. Such pilots must not be started in a tight loop. One object serves one CE; it may be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pilotage.core.ids import PilotId, QueueId

FIRST, LONGEST = 8.0, 300.0
"""Seconds without a pilot for a queue after the first event; doubled by each further one."""

IN_A_ROW, LONGEST_OF_ALL = 3, 60.0
"""After this number in a row, for any queues, the whole CE pauses too; and the seconds of its longest pause."""


class LastSeen(NamedTuple):
    """A pilot as the director sees it in one cycle."""

    pilot: PilotId
    submission: str
    """Equal for pilots that were submitted together."""
    had_job: bool
    in_vain: bool
    """It has called home and has ended by itself, without a job."""


@dataclass(slots=True)
class Pause:
    """The pilots that came in vain for one queue, and until when no other one is started for it."""

    pilots: int = 0
    until: float = 0.0
    events: int = 0
    submissions: set[str] = field(default_factory=set)
    """Submissions that are counted among the events."""


@dataclass(slots=True)
class BackOff:
    """One director's memory of the pilots that it started."""

    started_for: dict[PilotId, QueueId] = field(default_factory=dict)
    """Pilots that have not had a job yet, and the queues that they were started for."""
    pauses: dict[QueueId, Pause] = field(default_factory=dict)
    in_a_row: int = 0
    all_until: float = 0.0
    switched: float | None = None
    """When the CE was last stopped or enabled, as far as this director knows."""

    def follow_switch(self, switched: float | None) -> None:
        """Forget all pauses if the CE was enabled or stopped since the last call."""
        if switched != self.switched:
            self.forget()
            self.switched = switched

    def forget(self) -> None:
        """The CE was changed: pilots that came in vain there may be of use now."""
        self.started_for.clear()
        self.pauses.clear()
        self.in_a_row, self.all_until = 0, 0.0

    def observe(self, seen: Iterable[LastSeen], waiting: Mapping[QueueId, int], now: float) -> None:
        """Note the fate of pilots. `waiting`: the queues with waiting jobs, and how many."""
        self.pauses = {queue: pause for queue, pause in self.pauses.items() if waiting.get(queue)}
        in_vain: dict[QueueId, list[str]] = {}
        useful = set()
        for pilot in seen:
            if pilot.pilot not in self.started_for:
                continue
            queue = self.started_for[pilot.pilot]
            if pilot.had_job:
                del self.started_for[pilot.pilot]
                self.pauses.pop(queue, None)
                self.in_a_row, self.all_until = 0, 0.0
                useful.add(queue)
            elif pilot.in_vain:
                del self.started_for[pilot.pilot]
                if waiting.get(queue):
                    in_vain.setdefault(queue, []).append(pilot.submission)
        events = [
            self._came_in_vain(queue, submissions, now)
            for queue, submissions in in_vain.items()
            if queue not in useful
        ]
        if any(events):
            self.in_a_row += 1
            if self.in_a_row >= IN_A_ROW:
                self.all_until = now + _doubled(FIRST, self.in_a_row - IN_A_ROW, LONGEST_OF_ALL)
        # Where others took all the jobs of a queue, its pilots are not to blame.
        self.started_for = {pilot: queue for pilot, queue in self.started_for.items() if waiting.get(queue)}

    def ended(self, pilot: PilotId) -> None:
        """A pilot ended in a way that says nothing about its queue."""
        self.started_for.pop(pilot, None)

    def _came_in_vain(self, queue: QueueId, submissions: Sequence[str], now: float) -> bool:
        """Note pilots of a queue, one submission each; whether this is a new event."""
        pause = self.pauses.setdefault(queue, Pause())
        pause.pilots += len(submissions)
        is_new = not pause.submissions.issuperset(submissions)
        if is_new:
            pause.until = now + _doubled(FIRST, pause.events, LONGEST)
            pause.events += 1
            pause.submissions.update(submissions)
        return is_new

    def paused_queues(self, now: float) -> tuple[int, float]:
        """The number of queues that pause, and the end of the longest pause; all queues: (0, its end)."""
        if self.pauses_for_all(now):
            return 0, self.all_until
        ends = [pause.until for queue, pause in self.pauses.items() if self.pauses_at(queue, now)]
        return len(ends), max(ends, default=0.0)

    def pauses_at(self, queue: QueueId, now: float) -> bool:
        """Whether no pilot is started for `queue` now. A clock that stepped back ends a pause."""
        pause = self.pauses.get(queue)
        return pause is not None and pause.until - LONGEST <= now < pause.until

    def pauses_for_all(self, now: float) -> bool:
        return self.all_until - LONGEST_OF_ALL <= now < self.all_until


def _doubled(first: float, times: int, most: float) -> float:
    return float(min(most, first * 2.0 ** min(times, 30)))
