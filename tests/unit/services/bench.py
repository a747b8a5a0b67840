"""A pool over a real SQLite file, driven by hand: `now` moves when told, pilots are obedient sheets of paper."""

from __future__ import annotations

import json
import secrets
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

import pytest

from pilotage.core import policy as policies
from pilotage.core.ids import JobId, PilotId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.states import FINAL, JOB_STATES, JobState
from pilotage.services.jobs.actions import ActionOutcome, act
from pilotage.services.pilots import leases
from pilotage.services.pilots.enrolment import enrol
from pilotage.services.pilots.exchange import token_hash
from pilotage.services.pool.index_loading import open_pool
from pilotage.services.pool.state import Pool
from pilotage.services.submission.accept import PreparedSubmission, accept, identity_of
from pilotage.services.submission.job_creation import JobCreator
from pilotage.store.engine.connection import Readers, WriterConnection
from pilotage.store.engine.sqlite import SqliteReaders, open_writer
from pilotage.store.postgresql.dsn import DatabaseAddress
from pilotage.store.schema import metadata
from pilotage.store.tables import counts as count_rows
from pilotage.store.tables import events, history, instance, pilots, submissions
from pilotage.store.tables.pilots import PilotRow
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer
from pilotage.wire.pilot import (
    EnrolRequest,
    ExchangeRequest,
    ExchangeResponse,
    Finish,
    Input,
    Node,
    OfferedJob,
    Reference,
    Release,
    Take,
)
from tests.contract.stores import assert_counted, migrated_database
from tests.pilot_intent import pilot_intent
from tests.postgres import server
from tests.single_exchange import exchange
from tests.writer_guard import as_writer

Result = TypeVar("Result")

LEASE, HEARTBEAT, RETRY_DELAY, OFFER_TIMEOUT, MAX_RESCHEDULES = 300.0, 10.0, 20.0, 60.0, 2
HOME_OWNER = "alice"

POLICY = f"""\
[groups.physics]
share = 1000
[groups.sharing]
properties = ["NORMAL_USER", "JOB_SHARING"]
[users.alice]
groups = ["physics", "sharing"]
[users.bob]
groups = ["physics", "sharing"]
[sites.here]
[ces.local]
site = "here"
owners = "any"
lease = {LEASE}
heartbeat = {HEARTBEAT}
[ces.home]
site = "here"
owners = "home"
lease = {LEASE}
heartbeat = {HEARTBEAT}
[jobs]
max_reschedules = {MAX_RESCHEDULES}
retry_delay = {RETRY_DELAY}
offer_timeout = {OFFER_TIMEOUT}
"""
HISTORY_COLUMNS = ", ".join(
    column.name for column in metadata.tables["history"].c if column.name != "pilot_id"
)
NODE = Node(hostname="n1", platform="el9", processors=1, memory=4096, cpu_left=100000.0, wall_left=100000.0)


class Bench:
    """The pool, its database and the clock."""

    def __init__(
        self, folder: Path, policy: str = POLICY, now: float = 1000.0, store: str = "sqlite"
    ) -> None:
        self.path = folder / "pool.db"
        self.database = ""
        if store == "postgresql":
            self.database = server().migrated()
            self.address = DatabaseAddress.parse(server().url(self.database))
        else:
            shutil.copy(migrated_database(), self.path)
        self.now = now
        self.policy_text = policy
        self.nonces = 0
        self.open()

    def open(self) -> None:
        """As the server does at its start."""
        self.connection: WriterConnection
        if self.database:
            self.connection = self.address.open_writer()
        else:
            self.connection = open_writer(self.path)
            self.connection.execute("PRAGMA synchronous=OFF")
        self.writer = Writer(self.connection)
        self.pool: Pool = self.do(self._load)

    def _load(self, tx: Transaction) -> Pool:
        connection = tx.connection
        found = instance.load(connection) or instance.create(connection, "bench", self.now)
        if instance.current_policy(connection) is None:
            instance.save_policy(connection, text=self.policy_text, now=self.now, by="test", reason="first")
        current = instance.current_policy(connection)
        assert current is not None
        policy = policies.parse(current.text)
        return open_pool(
            tx,
            policy,
            version=current.version,
            incarnation=found.incarnation,
            rng=Random(5),
            secrets=secrets,
            home_owner=HOME_OWNER,
        )

    def close(self) -> None:
        self.connection.close()

    def end(self) -> None:
        """Close it for good."""
        self.close()
        if self.database:
            server().drop(self.database)

    def readers(self) -> Readers:
        return self.address.readers() if self.database else SqliteReaders(self.path)

    @property
    def writes(self) -> int:
        """How many rows were written; PostgreSQL does not say."""
        if not isinstance(self.connection, sqlite3.Connection):
            pytest.skip("only SQLite counts what is written")
        return self.connection.total_changes

    def crash(self, *under_way: Callable[[Transaction], Any]) -> None:
        """End in the middle of a transaction; begin again from the file."""
        self.connection.begin()
        with as_writer():
            for request in under_way:
                request(Transaction(self.connection))
        self.close()
        self.open()

    def do(self, request: Callable[[Transaction], Result]) -> Result:
        """One request in a transaction of its own."""
        [result] = self.together(request)
        if isinstance(result, BaseException):
            raise result
        return result  # type: ignore[no-any-return]

    def set(self, part: str = "", /, **values: Any) -> None:
        """Assign fields of a part of the pool, or of the pool itself, as a request of the writer."""
        target = getattr(self.pool, part) if part else self.pool
        self.do(lambda tx: [setattr(target, name, value) for name, value in values.items()])

    def together(self, *requests: Callable[[Transaction], Any]) -> list[Any | BaseException]:
        """Several in one group, as the writer does it: if it fails, each again by itself."""
        answers: list[Any | BaseException] = []

        def reply(result: Any, error: BaseException | None) -> None:
            answers.append(error if error is not None else result)

        self.writer._run_group([(request, reply) for request in requests])
        return answers

    # --- people

    def prepared(
        self,
        count: int = 1,
        *,
        owner: str = "alice",
        group: str = "physics",
        key: str = "",
        names: Sequence[str] = (),
        rows: Sequence[Sequence[Any]] = (),
        inputs: Sequence[Input] = (),
        **fields: Any,
    ) -> PreparedSubmission:
        if count > 1:
            names, rows = ("",), [[place] for place in range(count)]
        description = JobDescription(executable="/bin/true", **fields)
        identity = identity_of(description, owner, group, self.pool.policy)
        return PreparedSubmission(
            owner, group, key, description, tuple(names), rows, tuple(inputs), identity, ()
        )

    def accept(self, prepared: PreparedSubmission) -> submissions.SubmissionRow:
        for item in prepared.inputs:
            self.do(
                lambda tx, item=item: submissions.insert_upload(
                    tx.connection, prepared.owner, item.source, item.size, self.now
                )
            )
        return self.do(lambda tx: accept(self.pool, tx, prepared, self.now))

    def make(self, submission: submissions.SubmissionRow) -> None:
        making = JobCreator(submission.id)
        while not self.do(lambda tx: making.step(self.pool, tx)):
            pass

    def submit(self, count: int = 1, **more: Any) -> list[int]:
        submission = self.accept(self.prepared(count, **more))
        self.make(submission)
        return list(range(submission.first_job, submission.first_job + submission.count))

    def act(self, verb: str, *ids: int, dry_run: bool = False, priority: int | None = None) -> ActionOutcome:
        return self.do(
            lambda tx: act(
                self.pool,
                tx,
                verb,
                ids,
                actor="user:alice",
                reason="",
                now=self.now,
                dry_run=dry_run,
                priority=priority,
            )
        )

    # --- duties

    def duties(self) -> None:
        """One cycle, in the server's order."""
        for duty in (leases.expire, leases.lapse_offers, leases.requeue_due, leases.note_stalled):
            self.do(lambda tx, duty=duty: duty(self.pool, tx, self.now))

    def sign_of_life(self) -> float:
        return self.do(lambda tx: leases.heartbeat(self.pool, tx, self.now))

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.duties()

    def tidy(self, hot: float = 0.0, most: int = 1000) -> int:
        """Move what ended longer ago out of the hot table."""
        return self.do(lambda tx: history.archive(tx.connection, self.now - hot, most))

    # --- pilots

    def pilot(self, ce: str = "local", *, only_owner: str | None = None, **more: Any) -> Paper:
        """The intent is stored and the pilot has called home."""
        secret = f"secret {self.nonces}"
        self.nonces += 1
        facts = {"pilot_type": "generic", "processors": 1, "memory": 0, **more}
        site = self.pool.policy.ces[ce].site
        self.do(
            lambda tx: pilots.insert(
                tx.connection,
                pilot_intent(secret, site=site, ce=ce, only_owner=only_owner, submitted=self.now, **facts),
            )
        )
        return Paper(self, secret)

    def pilot_row(self, pilot: int) -> PilotRow:
        row = pilots.by_id(self.connection, PilotId(pilot))
        assert row is not None
        return row

    # --- what stands in the store

    def job(self, job: int) -> dict[str, Any]:
        for sql in (
            "SELECT * FROM jobs WHERE id = ?",
            # Of a job of the past pilot_id is whoever had its last try.
            f"SELECT {HISTORY_COLUMNS}, NULL AS pilot_id, NULL AS not_before FROM history WHERE id = ?",
        ):
            cursor = self.connection.execute(sql, (job,))
            names = [column[0] for column in cursor.description or ()]
            row = cursor.fetchone()
            if row is not None:
                return dict(zip(names, row, strict=True))
        raise KeyError(job)

    def state(self, job: int) -> str:
        return str(self.job(job)["state"])

    def outcomes(self, job: int) -> list[str | None]:
        sql = "SELECT outcome FROM attempts WHERE job_id = ? ORDER BY epoch"
        return [row[0] for row in self.connection.execute(sql, (job,))]

    def history(self, job: int) -> list[events.Event]:
        return events.history(self.connection, JobId(job), self.job(job)["last_event"])

    def moves(self, job: int) -> list[str]:
        """The states of a job, in order, checked to be one legal chain."""
        return legal_chain(self.history(job), self.state(job))

    def kinds(self, kind: str) -> list[str]:
        """The details of all events of one kind."""
        sql = "SELECT detail FROM events WHERE kind = ? ORDER BY id"
        return [row[0] for row in self.connection.execute(sql, (kind,))]

    def check(self) -> None:
        """What must hold after every request."""
        connection, pool = self.connection, self.pool
        assert not connection.in_transaction
        expected = count_rows.waiting_counts(connection)
        found = {
            queue: counts
            for queue, entry in pool.queues.index.entries.items()
            if (counts := {weight: part.count for weight, part in entry.levels.items() if part.count})
        }
        assert found == expected
        for entry in pool.queues.index.entries.values():
            parts = entry.levels.items()
            assert entry.waiting == sum(part.count for _, part in parts)
            assert entry.priority_sum == sum(weight * part.count for weight, part in parts)
        counted: Counter[tuple[str, str, str, str]] = Counter()
        for queue, site, ce, count in count_rows.held_counts(connection):
            identity = submissions.queue_identity(connection, queue)
            assert identity is not None
            for limit in pool.offers.limits.limiter.limits:
                if limit.applies_at(site, ce) and limit.applies_to(identity):
                    counted[limit.key] += count
        meters = {
            key: meter.running for key, meter in pool.offers.limits.limiter._meters.items() if meter.running
        }
        assert meters == counted
        twice = "SELECT id FROM jobs WHERE id IN (SELECT id FROM history)"
        assert not connection.execute(twice).fetchall()
        assert_counted(connection)
        outcomes: dict[int, list[str | None]] = {}
        for job, outcome in connection.execute("SELECT job_id, outcome FROM attempts"):
            outcomes.setdefault(job, []).append(outcome)
        everything = """SELECT id, state, last_event, pilot_id FROM jobs
            UNION ALL SELECT id, state, last_event, NULL FROM history"""
        steps, legal = self._steps(), set[tuple[tuple[Step, ...], str]]()
        for job, state, last_event, pilot in connection.execute(everything):
            history = steps_of(steps, job, last_event)
            if (history, state) not in legal:
                legal_chain(history, state)
                legal.add((history, state))
            of_job = outcomes.get(job, [])
            # A person may have a failed job begin again.
            assert of_job.count("applied") <= 1 + [step.kind for step in history].count("rescheduled")
            assert (pilot is not None) == (
                state in ("Matched", "Taken", "Running", "Stalled", "Completing")
            ), job
            if state in FINAL:
                assert None not in of_job
        assert (
            connection.execute("SELECT count(*), count(DISTINCT digest) FROM queues").fetchone()[0]
            == (connection.execute("SELECT count(DISTINCT identity) FROM queues").fetchone()[0])
        )

    def _steps(self) -> dict[int, tuple[Step, dict[int, int]]]:
        """All transitions by the id of their event, each with the event before it by job."""
        steps = {}
        for id_, kind, old, new, jobs in self.connection.execute(
            "SELECT id, kind, old, new, jobs FROM events"
        ):
            entries = [entry for entry in json.loads(jobs) if isinstance(entry, list)]
            steps[id_] = Step(kind, old, new), {entry[0]: entry[2] for entry in entries}
        return steps


class Step(NamedTuple):
    """A transition of a job."""

    kind: str
    old: str
    new: str


def steps_of(steps: Mapping[int, tuple[Step, dict[int, int]]], job: int, last_event: int) -> tuple[Step, ...]:
    """The transitions of a job, oldest first, as `events.history` finds them one by one."""
    found = []
    while last_event in steps:
        step, previous = steps[last_event]
        found.append(step)
        last_event = previous.get(job, 0)
    return tuple(reversed(found))


def legal_chain(history: Sequence[events.Event | Step], state: str) -> list[str]:
    """The states of a job by its events, in order, checked to be one legal chain that ends in `state`."""
    assert history[0].kind == "submitted"
    states = [history[0].new]
    assert states[0] in ("Waiting", "Blocked", "Held")
    for event in history[1:]:
        assert event.old == states[-1], (states, event)
        JOB_STATES.check(JobState(event.old), JobState(event.new))
        states.append(event.new)
    assert states[-1] == state
    return states


class Paper:
    """What a pilot knows."""

    def __init__(self, bench: Bench, secret: str, index: int = 0) -> None:
        self.bench = bench
        self.secret, self.index = secret, index
        self.number = 1
        self.node = NODE
        self.enrol()

    def enrol(self, nonce: str = "first") -> None:
        request = EnrolRequest(secret=self.secret, index=self.index, nonce=nonce, hostname="n1")
        response = self.bench.do(lambda tx: enrol(self.bench.pool, tx, request, self.bench.now))
        self.token, self.id, self.terms = response.token, response.pilot, response
        self.incarnation = response.incarnation

    @property
    def row(self) -> PilotRow:
        return self.bench.pilot_row(self.id)

    def request(self, **parts: Any) -> ExchangeRequest:
        return ExchangeRequest(incarnation=self.incarnation, **parts)

    def asking(self, request: ExchangeRequest) -> Callable[[Transaction], ExchangeResponse]:
        bench, hashed = self.bench, token_hash(self.token)
        return lambda tx: exchange(bench.pool, tx, hashed, request, bench.now)

    def send(self, **parts: Any) -> ExchangeResponse:
        return self.bench.do(self.asking(self.request(**parts)))

    def asked(self, count: int = 1, *, number: int = 0, ahead: int = 0, **node: Any) -> Take:
        """`node`: changes of the node. Without another `wall_left` its clock allows as much as `cpu_left`."""
        if "cpu_left" in node:
            node.setdefault("wall_left", node["cpu_left"])
        plain = {**vars(self.node), **node}
        return Take(number or self.number, count, Node(**plain), ahead)

    def take(self, count: int = 1, **more: Any) -> list[OfferedJob]:
        response = self.send(take=self.asked(count, **more))
        if response.take_number:
            self.number = max(self.number, response.take_number) + 1
        return response.offers

    def confirm(self, offer: OfferedJob) -> str:
        return self.send(confirms=[Reference(offer.job, offer.epoch)]).confirms[0].verdict

    def finish(self, offer: OfferedJob, **content: Any) -> str:
        return self.send(finishes=[finished(offer, **content)]).finishes[0].verdict

    def release(self, offer: OfferedJob) -> str:
        return self.send(releases=[Release(offer.job, offer.epoch, "test")]).releases[0].verdict

    def stopped(self, *offers: OfferedJob) -> list[int]:
        holding = [Reference(offer.job, offer.epoch) for offer in offers]
        return [verdict.job for verdict in self.send(holding=holding).stop]

    def hold(self, **more: Any) -> OfferedJob:
        """Take and confirm one job."""
        [offer] = self.take(**more)
        assert self.confirm(offer) == "accepted"
        return offer


def finished(offer: OfferedJob, **content: Any) -> Finish:
    return Finish(offer.job, offer.epoch, **{"exit_code": 0, **content})


def dumped(value: Any) -> str:
    return json.dumps(value, default=vars, sort_keys=True)


MakeBench = Callable[[str], Bench]
"""Makes a bench from the text of a policy."""
