"""A share correction as the server's duty carries it out: read from SQLite, computed, stored, taken up by the index."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from random import Random

from benchmarks.shares import PERIOD, SLICES
from benchmarks.shares import Pool as Facts
from pilotage.core import policy as policies
from pilotage.core.ids import JobId, PilotId, QueueId
from pilotage.core.queues.identity import QueueIdentity
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.services.shares import corrections
from pilotage.services.shares.corrections import UseBook
from pilotage.store.admin.upgrade import sqlite_engine, upgrade
from pilotage.store.engine.sqlite import SqliteReaders, open_writer
from pilotage.store.tables import attempts, instance, usage
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer


class Stored:
    """A store with the rows of `facts`, and an index with `queues` queues."""

    def __init__(self, folder: Path, facts: Facts, queues: int) -> None:
        path = folder / "shares.db"
        engine = sqlite_engine(path)
        upgrade(engine)
        engine.dispose()
        self.now = facts.ledger.as_of
        self.connection = open_writer(path)
        self.writer = Writer(self.connection)
        self.writer.start()
        self.readers = SqliteReaders(path)
        self.writer.call(lambda tx: self._fill(tx, facts))
        self.pool = self.writer.call(lambda tx: self._pool(tx, facts, queues))
        self.book = UseBook(self.pool.policy.accounting.history)
        # All priorities of a first start.
        self._settle()

    def close(self) -> None:
        self.writer.stop()
        self.readers.close()
        self.connection.close()

    def _fill(self, tx: Transaction, facts: Facts) -> None:
        connection, ledger = tx.connection, facts.ledger
        instance.create(connection, "bench", self.now)
        rows = [(span, start, b) for span, level in ledger.levels.items() for start, b in level.items()]
        usage.save_changes(connection, usage.LedgerChanges(0, self.now, True, 0, ledger.entities, rows, []))
        begun = [
            attempts.StartedAttempt(  # type: ignore[call-arg]
                JobId(job), 1, 1, PilotId(1), start, int(cores), *ledger.entities[place], "here", 1.0
            )
            for job, (place, start, cores) in enumerate(
                zip(facts.running.entities, facts.running.starts, facts.running.cores, strict=True), 1
            )
        ]
        attempts.save_started(connection, begun)

    def _pool(self, tx: Transaction, facts: Facts, queues: int) -> Pool:
        policy = policies.parse(policy_text(facts))
        pool = open_pool(tx, policy, version=1, incarnation=1, rng=Random(1), secrets=secrets, home_owner="")
        rng, people = Random(1), facts.ledger.entities
        for queue in range(1, queues + 1):
            owner, group = people[queue % len(people)]
            identity = QueueIdentity(owner, group, job_type=f"T{queue}")
            pool.queues.index.add_queue(pool.queues.new_entry(QueueId(queue), identity))
            pool.queues.index.reset_queue(QueueId(queue), {rng.randrange(1, 10): rng.randrange(1, 500)})
        return pool

    def cycle(self) -> float:
        """Milliseconds of one cycle of the duty, a minute after the last."""
        self.now += PERIOD
        self.writer.call(lambda tx: instance.heartbeat(tx.connection, self.now))
        begun = time.perf_counter()
        connection, pool = self.readers.connection(), self.pool
        charged = self.book.charge(connection)
        for part in self.book.saving(charged):
            self.writer.call(lambda tx, part=part: corrections.save_use(tx, part))
        who = self.writer.call(lambda _: corrections.waiting_entities(pool))
        found = corrections.compute_corrections(self.book, who, *usage.corrector_memory(connection))
        self.writer.call(lambda tx: corrections.apply_corrections(pool, tx, found, charged.as_of))
        self._settle()
        return (time.perf_counter() - begun) * 1000

    def _settle(self) -> None:
        while not self.writer.call(lambda _: corrections.apply_priorities(self.pool.queues)):
            pass

    def first_cycle(self) -> float:
        """The same with nothing in memory, as after a start."""
        self.book = UseBook(self.pool.policy.accounting.history)
        return self.cycle()


def policy_text(facts: Facts) -> str:
    lines = [f"[groups.{name}]\nshare = {share}" for name, share in facts.shares.items()]
    lines += [f'[users.{owner}]\ngroups = ["{group}"]' for owner, group in facts.ledger.entities]
    lines.append('[correction]\ncorrectors = ["WMSHistory"]')
    for name, one in facts.instances.items():
        lines.append(f'[correction.WMSHistory.{name}]\ngroup = "{one.group}"\nform = "{one.form}"')
        for label, part in SLICES.items():
            lines.append(f"[correction.WMSHistory.{name}.slices.{label}]\ntime_span = {part.time_span}")
            lines.append(f"weight = {part.weight}\nmax_correction = {part.max_correction}")
    return "\n".join(lines)
