"""The algorithm EventAwareLumiBased: whole lumis, up to a number of events for each job."""

from __future__ import annotations

from typing import ClassVar

from pilotage.core.splitting.event_target import EventTarget
from pilotage.core.splitting.open_job import OpenJob
from pilotage.core.splitting.pieces import Piece


class EventAwareLumiBased(EventTarget, frozen=True, kw_only=True):
    """A job has at most `events_per_job` events, or one lumi."""

    algorithm: ClassVar[str] = "EventAwareLumiBased"
    meaning: ClassVar[str] = "whole lumis, up to a number of events for each job"
    example: ClassVar[str] = "events_per_job = 5000\n"

    def room(self, job: OpenJob, piece: Piece, lumis: int) -> int:
        # A lumi counts as one event at least, so that files without known events become several jobs.
        fitting = (self.events_per_job - max(job.events, job.lumis)) * lumis // max(piece.events, lumis)
        return fitting if job.lumis else max(fitting, 1)
