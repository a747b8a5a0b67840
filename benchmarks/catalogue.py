"""Registration in the catalogue on a real SQLite file with durable commits.

Files of a user come in slices, as the server stores them; a second pass sends all of them again. Outputs are registered
one job at a time, as finishes do it. A change of replicas then moves all blocks, and the elements of a step follow.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from benchmarks.figure import Figure, figure, part, told
from pilotage.core.datasets.facts import BlockEntry, FileEntry, Replica
from pilotage.services.catalogue import locations, outputs, registration
from pilotage.services.catalogue.locations import BLOCKS_AT_ONCE, ELEMENTS_AT_ONCE, ReplicaChange
from pilotage.services.catalogue.outputs import WrittenFile
from pilotage.services.catalogue.registration import FILES_AT_ONCE
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.sqlite import SqliteReaders, open_writer
from pilotage.store.tables import datasets, replicas
from pilotage.store.tables.selections import Viewer
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer

SUMMARY = "files per second registered in the catalogue, and the longest transaction"

ADA, HERE, THERE = Viewer("ada"), Replica("here", "/data"), Replica("there", "/data")
BLOCK = 900
AIM_RATE = 20_000.0
OUTPUTS = 20_000

Result = TypeVar("Result")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=100_000, help="files of the data set")
    parser.add_argument("--elements", type=int, default=10_000, help="elements that follow their blocks")
    parser.add_argument("--runs", type=int, default=3)


def run(asked: argparse.Namespace) -> Figure:
    rates, added, again, written, followed = [], [], [], [], []
    changed, moved = list[float](), list[float]()
    for _ in range(asked.runs):
        with (
            tempfile.TemporaryDirectory(prefix="bench-catalogue-") as name,
            closing(_Catalogue(Path(name))) as catalogue,
        ):
            seconds, times = catalogue.add(asked.files)
            rates.append(asked.files / seconds)
            added += times
            again.append(asked.files / catalogue.add(asked.files)[0])
            written.append(OUTPUTS / catalogue.write_outputs(OUTPUTS))
            followed.append(catalogue.move(asked.elements, changed, moved) * 1000)
    notes = {
        "case": f"{asked.files:,} files in blocks of {BLOCK:,}, {FILES_AT_ONCE} in a transaction, durable commits",
        "transactions": _told(added),
        "again": f"{told(_median(again))} files/s that are registered already",
        "outputs": f"{told(_median(written))} jobs/s with one output file, beside the rest of their finish",
        "locations": f"{told(_median(followed))} ms until {asked.elements:,} elements follow their moved blocks;"
        f" transactions of blocks {_told(changed)}, of elements {_told(moved)}",
    }
    return figure("catalogue", "files/s", rates, {"aim": AIM_RATE}, notes)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _told(times: list[float]) -> str:
    ordered = sorted(times)
    return f"median {told(part(ordered, 0.5))} ms, p99 {told(part(ordered, 0.99))} ms, longest {told(ordered[-1])} ms"


class _Catalogue:
    """A store with an empty data set `raw`."""

    def __init__(self, folder: Path) -> None:
        path = folder / "pool.db"
        engine = sqlite_engine(path)
        upgrade(engine)
        engine.dispose()
        self.connection, self.readers = open_writer(path), SqliteReaders(path)
        self.writer = Writer(self.connection)
        self.writer.start()
        self.raw = self.writer.call(
            lambda tx: registration.create(tx, "raw", owner="ada", group="g", changer=ADA, now=1.0)
        ).id

    def close(self) -> None:
        self.writer.stop()
        self.readers.close()
        self.connection.close()

    def add(self, count: int) -> tuple[float, list[float]]:
        """Seconds to add the files, and the times of the transactions in ms."""
        entries = list(_entries(count))
        times: list[float] = []
        begun = time.perf_counter()
        for entry, complete in entries:
            self._timed(
                times,
                lambda tx, entry=entry, complete=complete: registration.add_block(
                    tx, "raw", entry, changer=ADA, complete=complete, now=2.0
                ),
            )
        return time.perf_counter() - begun, times

    def write_outputs(self, count: int) -> float:
        """Seconds to register one file of each job, 30 jobs in a commit."""
        row = self.writer.call(
            lambda tx: outputs.create_output(tx, "aod", owner="ada", group="g", request=1, step=0, now=1.0)
        )
        assert row is not None

        def finish(tx: Transaction, first: int) -> None:
            for job in range(first, first + 30):
                file = FileEntry(f"{job}/out.root", 1000, 10, "adler32:00000000")
                outputs.register_outputs(tx, job, [WrittenFile(row.id, file, HERE)], 1.0)

        begun = time.perf_counter()
        for first in range(0, count, 30):
            self.writer.call(lambda tx, first=first: finish(tx, first))
        return time.perf_counter() - begun

    def move(self, elements: int, changed: list[float], moved: list[float]) -> float:
        """Seconds from a change of all replicas until the elements follow. Appends the times of transactions in ms."""
        blocks = datasets.block_ids(self.readers.connection(), self.raw)
        self.writer.call(lambda tx: self._insert_elements(tx, blocks, elements))
        change = ReplicaChange(add=(THERE,))
        begun = time.perf_counter()
        for first in range(0, len(blocks), BLOCKS_AT_ONCE):
            ids = blocks[first : first + BLOCKS_AT_ONCE]
            self._timed(changed, lambda tx, ids=ids: locations.change_replicas(tx, ids, change, 3.0))
        reading = self.readers.connection()
        moves = locations.elements_of_moved(reading, replicas.moved_blocks(reading, 10**6))
        assert len(moves) == elements
        for first in range(0, len(moves), ELEMENTS_AT_ONCE):
            some = moves[first : first + ELEMENTS_AT_ONCE]
            self._timed(moved, lambda tx, some=some: locations.move_elements(tx, some, 4.0))
        return time.perf_counter() - begun

    def _insert_elements(self, tx: Transaction, blocks: list[int], count: int) -> None:
        tx.connection.execute(
            "INSERT INTO request_steps (request_id, position, name, type, start_policy, splitting, input_dataset)"
            " VALUES (1, 0, 's', 'Processing', 'Block', '{}', ?)",
            (self.raw,),
        )
        [here] = {row.location_set for row in datasets.blocks_by_ids(tx.connection, blocks).values()}
        tx.connection.executemany(
            "INSERT INTO elements (request_id, step, digest, state, jobs, blocks, location_set, created, changed)"
            " VALUES (1, 0, ?, 'Available', 1, ?, ?, 1, 1)",
            [(str(number), json.dumps([blocks[number % len(blocks)]]), here) for number in range(count)],
        )

    def _timed(self, times: list[float], request: Callable[[Transaction], Result]) -> Result:
        def timed(tx: Transaction) -> Result:
            begun = time.perf_counter()
            result = request(tx)
            times.append((time.perf_counter() - begun) * 1000)
            return result

        return self.writer.call(timed)


def _entries(count: int) -> Iterator[tuple[BlockEntry, bool]]:
    """Slices of blocks, and whether each is the last one of its block."""
    for first in range(0, count, FILES_AT_ONCE):
        block = first // BLOCK
        files = tuple(
            FileEntry(f"run{block}/{n}.root", 10**9 + n, 1000, f"adler32:{n:08x}", ((block, n, n),))
            for n in range(first, min(first + FILES_AT_ONCE, count))
        )
        last = first + FILES_AT_ONCE
        yield BlockEntry(f"run{block}", files, (HERE,)), last % BLOCK == 0 or last >= count
