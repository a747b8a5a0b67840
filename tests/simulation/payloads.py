"""The payloads of a history, and their books: which ran, where and when."""

from __future__ import annotations

from collections.abc import Callable
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
        self.removed: dict[str, int] = {}
        """The files that were removed, with the incarnation of the pilot that did so."""
        self.incarnation = 1
        """Of the server now."""
        self._folders: set[str] = set()

    def read(self, order: DataOrder) -> bool:
        """Whether a job that merges files finds them. Only jobs that the store has forgotten may have removed some."""
        if order.action != CONCATENATE:
            return True
        missing = [one.path for one in order.files if one.path not in self.files or one.path in self.removed]
        lost = [path for path in missing if self.removed.get(path, self.incarnation) == self.incarnation]
        need(not lost, f"a merge of request {order.request} does not find {lost[:3]}")
        return not missing

    def write(self, order: DataOrder, written: list[StoredFile], incarnation: int) -> None:
        if order.action == REMOVE:
            self.removed.update((file.path, incarnation) for file in order.files)
        for file in written:
            self.files[f"{file.prefix}/{file.name}"] = file.events

    def new_folder(self, name: str) -> str:
        """A folder that did not exist: after a restore, tries have numbers that were given before."""
        number, folder = 1, name
        while folder in self._folders:
            number += 1
            folder = f"{name}-{number}"
        self._folders.add(folder)
        return folder


def incarnation_of(pilot: SimulatedPilot) -> int:
    """The incarnation of the server that has accepted the pilot."""
    assert pilot._machine is not None
    return pilot._machine.config.incarnation


def _outputs(order: DataOrder, offer: OfferedJob, storage: Storage) -> tuple[StoredFile, ...]:
    """What the job writes: all its events, in one file for each pattern."""
    events = sum(file.event_count for file in order.files) if order.files else order.events
    folder = storage.new_folder(f"{order.element}/{offer.job}-{offer.epoch}")
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


SHORT = 0.02
"""The part of their time that payloads take where they are short: pilots then take jobs ahead."""


def has_short_payloads(seed: int) -> bool:
    return seed % 5 == 4


class PayloadBooks:
    """Implements `Payloads`."""

    def __init__(self, seed: int, clock: Callable[[], float]) -> None:
        """`clock`: the true one. Those of nodes are wrong."""
        self._seed, self._clock = seed, clock
        self.entries: list[PayloadEntry] = []
        self.storage = Storage()
        self._pace = SHORT if has_short_payloads(seed) else 1.0
        self._running: dict[tuple[int, int, int], PayloadEntry] = {}
        self.doubled: list[PayloadEntry] = []
        """Starts of a try that had been started before."""
        self._begun: set[tuple[int, int, int]] = set()

    def run_of(self, offer: OfferedJob) -> PayloadRun:
        """What the payload does is written in its arguments: seconds, and exit code of each try."""
        order = offer.payload.data
        seconds, *codes = offer.payload.arguments if order is None or not order.action else ("8", "0")
        rng = Random(f"{self._seed} payload {offer.job} {offer.epoch}")
        code = int(rng.choice(codes))
        if order is not None and not self.storage.read(order):
            code = 1
        files = _outputs(order, offer, self.storage) if order is not None and not code else ()
        return PayloadRun(self._pace * float(seconds) * rng.uniform(0.8, 1.2), code, files)

    def started(self, pilot: SimulatedPilot, offer: OfferedJob, now: float) -> None:
        processors, begin = offer.payload.processors, self._clock()
        entry = PayloadEntry(offer.job, offer.epoch, pilot.job.batch_id, pilot, processors, begin)
        self.entries.append(entry)
        key = incarnation_of(pilot), offer.job, offer.epoch
        if key in self._begun:
            self.doubled.append(entry)
        self._begun.add(key)
        self._running[id(pilot), offer.job, offer.epoch] = entry

    def ended(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, finish: Finish) -> None:
        entry = self._running.pop((id(pilot), offer.job, offer.epoch))
        entry.end, entry.finish = self._clock(), finish
        if offer.payload.data is not None and not finish.failure and not finish.exit_code:
            self.storage.write(offer.payload.data, finish.files, incarnation_of(pilot))

    def lost(self, pilot: SimulatedPilot, offer: OfferedJob, now: float, seconds: float) -> None:
        self._running.pop((id(pilot), offer.job, offer.epoch)).end = self._clock()

    def running_on(self, pilot: SimulatedPilot) -> list[PayloadEntry]:
        return [entry for (of, _, _), entry in self._running.items() if of == id(pilot)]
