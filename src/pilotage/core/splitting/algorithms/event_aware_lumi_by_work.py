"""The algorithm EventAwareLumiByWork: whole lumis, as near to a number of events as possible."""

from __future__ import annotations

from typing import ClassVar

from pilotage.core.splitting.event_target import EventTarget
from pilotage.core.splitting.open_job import OpenJob
from pilotage.core.splitting.pieces import Piece


class EventAwareLumiByWork(EventTarget, frozen=True, kw_only=True):
    """A lumi joins a job while it brings the job nearer to `events_per_job`."""

    algorithm: ClassVar[str] = "EventAwareLumiByWork"
    meaning: ClassVar[str] = "whole lumis, as near as possible to a number of events for each job"
    example: ClassVar[str] = "events_per_job = 5000\n"

    def room(self, job: OpenJob, piece: Piece, lumis: int) -> int:
        events = max(piece.events, lumis)
        missing = self.events_per_job - max(job.events, job.lumis)
        # With n more lumis of e events each the job is nearer as long as n * e < missing + e / 2.
        nearer = (2 * missing * lumis + events - 1) // (2 * events)
        return nearer if job.lumis else max(nearer, 1)
