"""The payloads of a history, and their books: which ran, where and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from pilotage.twin.pilots import PayloadRun, SimulatedPilot
from pilotage.wire.pilot import Finish, OfferedJob


@dataclass(slots=True)
class PayloadEntry:
    """One start of a payload."""

    job: int
    epoch: int
    batch_id: str
    pilot: SimulatedPilot = field(repr=False)
    processors: int
    begin: float
    end: float | None = None
    finish: Finish | None = None
    """None: it runs, or was lost with its pilot."""


class PayloadBooks:
    """Implements `Payloads`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.entries: list[PayloadEntry] = []
        self._running: dict[tuple[int, int, int], PayloadEntry] = {}
        self.doubled: list[PayloadEntry] = []
        """Starts of a try that had been started before."""
        self._begun: set[tuple[int, int]] = set()

    def run_of(self, offer: OfferedJob) -> PayloadRun:
        """What the payload does is written in its arguments: seconds, and exit code of each try."""
        seconds, *codes = offer.payload.arguments
        rng = Random(f"{self._seed} payload {offer.job} {offer.epoch}")
        return PayloadRun(float(seconds) * rng.uniform(0.8, 1.2), int(rng.choice(codes)))

    def started(self, pilot: SimulatedPilot, offer: OfferedJob, now: float) -> None:
        entry = PayloadEntry(offer.job, offer.epoch, pilot.job.batch_id, pilot, offer.payload.processors, now)
        self.entries.append(entry)
        if (offer.job, offer.epoch) in self._begun:
            self.doubled.append(entry)
        self._begun.add((offer.job, offer.epoch))
        self._running[id(pilot), offer.job, offer.epoch] = entry

    def ended(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, finish: Finish) -> None:
        entry = self._running.pop((id(pilot), offer.job, offer.epoch))
        entry.end, entry.finish = now, finish

    def lost(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, seconds: float) -> None:
        self._running.pop((id(pilot), offer.job, offer.epoch)).end = now

    def running_on(self, pilot: SimulatedPilot) -> list[PayloadEntry]:
        return [entry for (of, _, _), entry in self._running.items() if of == id(pilot)]
