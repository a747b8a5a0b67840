"""The payloads of a history, and their books: which ran, where and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from pilotage.twin.pilots import PayloadRun, SimulatedPilot
from pilotage.wire.data import CONCATENATE, REMOVE, DataOrder, StoredFile
from pilotage.wire.pilot import Finish, OfferedJob
from tests.simulation.broken import need


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


class Storage:
    """The storage places of all sites."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        """The events of each file that was written, by its path."""
        self.removed: set[str] = set()

    def read(self, order: DataOrder) -> None:
        """Raise `Broken` if a job that merges files does not find one of them."""
        if order.action == CONCATENATE:
            missing = [one.path for one in order.files if self._is_missing(one.path)]
            need(not missing, f"a merge of request {order.request} does not find {missing[:3]}")

    def _is_missing(self, path: str) -> bool:
        return path not in self.files or path in self.removed

    def write(self, order: DataOrder, written: list[StoredFile]) -> None:
        if order.action == REMOVE:
            self.removed.update(file.path for file in order.files)
        for file in written:
            self.files[f"{file.prefix}/{file.name}"] = file.events


def _outputs(order: DataOrder, offer: OfferedJob) -> tuple[StoredFile, ...]:
    """What the job writes: all its events, in one file for each pattern."""
    events = sum(file.event_count for file in order.files) if order.files else order.events
    folder = f"{order.element}/{offer.job}-{offer.epoch}"
    return tuple(
        StoredFile(
            f"{folder}/{pattern}",
            pattern,
            order.places[0].name,
            f"{order.places[0].path}/{order.folder}",
            1000 * events,
            "adler32:00000001",
            events,
        )
        for pattern in order.outputs
    )


class PayloadBooks:
    """Implements `Payloads`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.entries: list[PayloadEntry] = []
        self.storage = Storage()
        self._running: dict[tuple[int, int, int], PayloadEntry] = {}
        self.doubled: list[PayloadEntry] = []
        """Starts of a try that had been started before."""
        self._begun: set[tuple[int, int]] = set()

    def run_of(self, offer: OfferedJob) -> PayloadRun:
        """What the payload does is written in its arguments: seconds, and exit code of each try."""
        order = offer.payload.data
        seconds, *codes = offer.payload.arguments if order is None or not order.action else ("8", "0")
        rng = Random(f"{self._seed} payload {offer.job} {offer.epoch}")
        code = int(rng.choice(codes))
        files = _outputs(order, offer) if order is not None and not code else ()
        return PayloadRun(float(seconds) * rng.uniform(0.8, 1.2), code, files)

    def started(self, pilot: SimulatedPilot, offer: OfferedJob, now: float) -> None:
        entry = PayloadEntry(offer.job, offer.epoch, pilot.job.batch_id, pilot, offer.payload.processors, now)
        self.entries.append(entry)
        if (offer.job, offer.epoch) in self._begun:
            self.doubled.append(entry)
        self._begun.add((offer.job, offer.epoch))
        if offer.payload.data is not None:
            self.storage.read(offer.payload.data)
        self._running[id(pilot), offer.job, offer.epoch] = entry

    def ended(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, finish: Finish) -> None:
        entry = self._running.pop((id(pilot), offer.job, offer.epoch))
        entry.end, entry.finish = now, finish
        if offer.payload.data is not None and not finish.failure and not finish.exit_code:
            self.storage.write(offer.payload.data, finish.files)

    def lost(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, seconds: float) -> None:
        self._running.pop((id(pilot), offer.job, offer.epoch)).end = now

    def running_on(self, pilot: SimulatedPilot) -> list[PayloadEntry]:
        return [entry for (of, _, _), entry in self._running.items() if of == id(pilot)]
