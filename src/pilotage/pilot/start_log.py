"""Log lines that tell who runs payloads on this node: sites look them up afterwards.

Payloads of one owner that start within a second share a line, so a pilot of very short jobs writes few lines.
Pure, but for the log: instants are arguments.
"""

from __future__ import annotations

import math
from typing import Dict, List, Mapping, Optional, Tuple

from pilotage.wire.pilot import OfferedJob

from .log import log

PERIOD = 1.0
"""Seconds between lines about payloads of the same owner."""


class StartLog:
    """The payloads started since the last line, in the order of their starts."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        """`facts`: of the pilot, for each line."""
        self._facts = dict(facts)
        self._owner: Optional[Tuple[str, str]] = None
        self._started: List[OfferedJob] = []
        self._quiet_until = -math.inf

    @property
    def next_at(self) -> float:
        """When `write` is due; infinite: nothing is left to write."""
        return self._quiet_until if self._started else math.inf

    def add(self, offer: OfferedJob, now: float) -> None:
        """Note a payload that starts. The first of an owner is written at once."""
        owner = (offer.payload.owner, offer.payload.group)
        if owner != self._owner:
            self.write()
            self._owner, self._quiet_until = owner, -math.inf
        self._started.append(offer)
        self.write_due(now)

    def write_due(self, now: float) -> None:
        """Write a line about the payloads that wait for one, if it is due."""
        if now >= self.next_at:
            self.write()
            self._quiet_until = now + PERIOD

    def write(self) -> None:
        """Write a line about all payloads that wait for one."""
        if not self._started:
            return
        started, self._started = self._started, []
        assert self._owner is not None
        who = {"owner": self._owner[0], "group": self._owner[1], **self._facts}
        if len(started) == 1:
            log("payload", job=started[0].job, epoch=started[0].epoch, **who)
        else:
            log("payloads", count=len(started), jobs=_ranges(started), **who)


def _ranges(started: List[OfferedJob]) -> str:
    """The numbers of the jobs as ranges, such as 4-7,9."""
    ranges: Dict[int, int] = {}
    first = last = -1
    for job in sorted(offer.job for offer in started):
        if job != last + 1:
            first = job
        last = ranges[first] = job
    return ",".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in ranges.items())
