"""Every duty isolates the row that fails, tells it in `/metrics` and `status`, and goes on.

`ROWS` has a case for each duty that looks at rows: it makes some rows, of which one cannot be processed. `WHOLE` names
the duties that work on one thing, whose failed cycle is shown. A new duty without an entry fails the first test.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import pilotage.server
from pilotage.core.errors import Conflict
from pilotage.core.ids import JobId, PilotId, QueueId, SubmissionId
from pilotage.core.policy.model import Mail
from pilotage.outside.mail.smtp import Delivery, MailOutcome, OutgoingMail
from pilotage.server.duties import (
    addresses,
    agents,
    catalogues,
    ces,
    costs,
    dependants,
    director,
    embedded_agent,
    feed,
    information,
    intake,
    intervals,
    job_counts,
    leases,
    locations,
    mail,
    output_blocks,
    own_state,
    peers,
    propagation,
    queues,
    registrations,
    relays,
    release,
    retention,
    roll_up,
    shares,
    spans,
    storage,
    wait_reasons,
)
from pilotage.server.duties.duty import Duty
from pilotage.server.duties.loop import every
from pilotage.server.http.routes import administration
from pilotage.server.http.routes.duties import list_duties
from pilotage.server.process.schedule import DUTIES
from pilotage.server.tokens import Caller
from pilotage.services import retention as rules_of_retention
from pilotage.services.catalogue import outputs
from pilotage.services.jobs import dependants as of_dependants
from pilotage.services.peers import sync
from pilotage.services.pilots.costs import Booking
from pilotage.services.submission import chunked
from pilotage.services.submission.mails import MailReport
from pilotage.services.why import answer, wait_history
from pilotage.services.workqueue import expiry
from pilotage.services.workqueue.propagation import Propagation
from pilotage.store.tables import chains, job_outcomes, location_sets, mails
from pilotage.store.tables import job_counts as of_jobs
from pilotage.store.tables.job_counts import CountChange
from pilotage.store.tables.job_outcomes import JobEnd
from pilotage.store.tables.mails import MailRow
from pilotage.store.tables.work_queue_depth import WorkQueueDepth
from pilotage.store.writer.transaction import Transaction
from tests.unit.server.duty_pool import BAD, Pool
from tests.unit.services.bench import Bench
from tests.unit.services.workqueue.queue_bench import EVENTS, POLICY, QueueBench


@dataclass
class Case:
    """A duty with some rows, of which one cannot be processed."""

    duty: Duty
    bad: Hashable
    others_done: Callable[[], bool]
    """Whether the duty has processed all other rows."""


def _intake(pool: Pool) -> Case:
    queue = pool.queue
    made = [
        queue.request(queue.step(splitting=EVENTS, events=75, start_policy="MonteCarlo")) for _ in range(3)
    ]
    pool.spoil_request(made[0])
    return Case(intake.IntakeDuty(pool.context), made[0], lambda: all(map(queue.elements_of, made[1:])))


def _agents(pool: Pool) -> Case:
    queue = pool.queue
    gone = [queue.agent(name).id for name in ("first", "second", "third")]
    queue.bench.now += 1000
    pool.refuse(expiry, "expire", lambda _, tx, now, part: gone[0] in part)
    live = "SELECT id FROM agents WHERE ended IS NULL"
    return Case(agents.AgentDuty(pool.context), gone[0], lambda: queue.sql(live) == [(gone[0],)])


def _released(pool: Pool) -> list[int]:
    pool.requests.agent()
    made = [pool.requests.request() for _ in range(3)]
    for request in made:
        pool.requests.element(request, 2)
    return made


def _release(pool: Pool) -> Case:
    made = _released(pool)
    pool.spoil_request(made[1])
    waiting = "SELECT DISTINCT request_id FROM element_jobs WHERE state = 'made'"
    return Case(release.ReleaseDuty(pool.context), made[1], lambda: pool.queue.sql(waiting) == [(made[1],)])


def _roll_up(pool: Pool) -> Case:
    made = _released(pool)
    pool.requests.release()
    rows = pool.queue.sql("SELECT id, job_id FROM element_jobs ORDER BY id")
    ends = [JobEnd(row, job, "Failed", pool.bench.now, 1, "payload", "exit code 1") for row, job in rows]
    pool.bench.do(lambda tx: job_outcomes.append(tx.connection, ends))
    pool.spoil_request(made[0])
    outcomes = pool.bench.do(lambda tx: job_outcomes.after(tx.connection, 0, 9))
    left = "SELECT count(*) FROM job_outcomes"
    # Both ends of the first request fail.
    return Case(roll_up.RollUpDuty(pool.context), outcomes[0], lambda: pool.queue.sql(left) == [(2,)])


def _job_counts(pool: Pool) -> Case:
    """The submission of the second of three changes is not known."""
    pool.bench.submit(3)
    pool.queue.run("DELETE FROM count_changes")
    changes = [CountChange.of("", "Waiting", {submission: 1}) for submission in (1, 99, 1)]
    pool.bench.do(lambda tx: of_jobs.append(tx.connection, changes))
    bad = pool.bench.do(lambda tx: of_jobs.not_added(tx.connection, 0, 9))[1]
    added = "SELECT submission_id, state, jobs FROM submission_counts"
    return Case(
        job_counts.JobCountsDuty(pool.context), bad, lambda: pool.queue.sql(added) == [(1, "Waiting", 2)]
    )


def _dependants(pool: Pool) -> Case:
    """The gate of the second of three jobs fails."""
    bench = pool.bench
    parents = bench.submit(3)
    children = bench.submit(3, after_each=("s:1",))
    bench.act("kill", *parents)
    bad = chains.GateKey(SubmissionId(2), JobId(children[1]))
    pool.refuse(of_dependants, "move_dependants", lambda _pool, _tx, keys, _now: bad in keys)
    skipped = "SELECT id FROM jobs WHERE state = 'Skipped'"
    others = [(children[0],), (children[2],)]
    return Case(dependants.DependantsDuty(pool.context), bad, lambda: pool.queue.sql(skipped) == others)


def _propagation(pool: Pool) -> Case:
    made = _released(pool)
    pool.queue.run("UPDATE requests SET propagating = 1")
    pool.spoil_request(made[0])
    pool.refuse(Propagation, "run", lambda run, *_: run.request == made[0])
    left = "SELECT id FROM requests WHERE propagating = 1"
    return Case(
        propagation.PropagationDuty(pool.context), made[0], lambda: pool.queue.sql(left) == [(made[0],)]
    )


def _output_blocks(pool: Pool) -> Case:
    """The contents of one block cannot be counted."""
    queue = pool.queue
    data = queue.dataset("out", is_open=True)
    queue.run("UPDATE datasets SET request_id = 1 WHERE id = ?", data)
    blocks = [queue.block(data, f"b{number}", 3, is_open=True) for number in range(3)]
    pool.refuse(outputs, "due_blocks", lambda _, begun, *more: blocks[0] in [block.id for block in begun])
    queue.bench.now += 10**6
    bad = outputs.begun_blocks(queue.bench.connection)[0]
    left = "SELECT id FROM blocks WHERE open = 1"
    return Case(output_blocks.OutputBlockDuty(pool.context), bad, lambda: queue.sql(left) == [(blocks[0],)])


def _locations(pool: Pool) -> Case:
    queue = pool.queue
    blocks = [queue.block(queue.dataset(f"in{number}"), f"b{number}", sites=["A"]) for number in range(3)]
    for dataset in range(1, 4):
        queue.intake(queue.request(inputs=[dataset]))
    other = queue.bench.do(lambda tx: location_sets.id_of(tx.connection, ["B"]))
    queue.run("UPDATE blocks SET location_set = ?", other)
    queue.run("INSERT INTO moved_blocks (block_id, number, moved) SELECT id, id, ? FROM blocks", queue.now)
    [bad, *_] = queue.sql("SELECT id FROM elements ORDER BY id")
    queue.run("UPDATE elements SET blocks = '{' WHERE id = ?", *bad)
    old = "SELECT id FROM elements WHERE location_set <> ?"
    return Case(locations.LocationDuty(pool.context), blocks[0], lambda: queue.sql(old, other) == [bad])


def _retention(pool: Pool) -> Case:
    rules = [rule.name for rule in rules_of_retention.RULES]
    pool.refuse(rules_of_retention, "drop_month", lambda *_: False)
    ran = pool.refuse(rules_of_retention, "run_slice", lambda connection, rule, *more: rule.name == "hot")
    duty = retention.RetentionDuty(pool.context, Path("/nowhere"), lambda: None)
    pool.queue.run("INSERT INTO removals (kind, names) VALUES ('jobs', '[1]'), ('jobs', '[2]')")
    gone: list[int] = []

    def delete(job: int) -> None:
        if job == 1:
            raise ValueError(BAD)
        gone.append(job)

    pool.context.disk.sandbox = SimpleNamespace(
        delete_outputs=delete, delete_tails=lambda job: None, objects_of=lambda job: []
    )
    without_keys = {
        rule.name for rule in rules_of_retention.RULES if rule.find is None and rule.name != "hot"
    }
    return Case(
        duty,
        rules[0],
        lambda: {call[1].name for call in ran} == without_keys and gone == [2]
        and pool.queue.sql("SELECT count(*) FROM removals") == [(1,)],
    )  # fmt: skip


def _queues(pool: Pool) -> Case:
    made = [SubmissionId(number) for number in (1, 2, 3)]
    closed: set[int] = set()

    def close(_: Any, tx: Any, part: Sequence[int], now: float) -> int:
        if made[0] in part:
            raise ValueError(BAD)
        closed.update(part)
        return len(part)

    pool.monkeypatch.setattr(chunked, "idle_submissions", lambda tx, now: made)
    pool.monkeypatch.setattr(chunked, "close_idle_submissions", close)
    return Case(queues.QueueDuty(pool.context), made[0], lambda: closed == set(made[1:]))


def _leases(pool: Pool) -> Case:
    """A pilot in a state from which it cannot be lost."""
    bench = pool.bench
    for _ in range(3):
        bench.submit()
        bench.pilot("a").hold()
    bench.do(lambda tx: tx.connection.execute("UPDATE pilots SET state = 'Done' WHERE id = 2"))
    duty = leases.LeaseDuty(pool.context)
    asyncio.run(duty.cycle())
    bench.now += 1e6
    duty._reachable_until = bench.now
    duty._alive_at = bench.now
    held = "SELECT DISTINCT pilot_id FROM jobs WHERE pilot_id IS NOT NULL"
    return Case(duty, PilotId(2), lambda: pool.queue.sql(held) == [(2,)])


def _costs(pool: Pool) -> Case:
    saved: set[int] = set()

    def save(tx: Transaction, bookings: Sequence[Booking]) -> None:
        if any(booking.pilot == 1 for booking in bookings):
            raise ValueError(BAD)
        saved.update(booking.pilot for booking in bookings)

    made = [Booking(PilotId(number), None, 1.0, {}) for number in (1, 2, 3)]
    pool.context.pool.pilots.heard = {}
    pool.monkeypatch.setattr(costs, "unbooked", lambda *_, **__: made)
    pool.monkeypatch.setattr(costs, "book_pilots", lambda connection, rows: iter([rows]))
    pool.monkeypatch.setattr(costs, "save_bookings", save)
    return Case(costs.CostDuty(pool.context), PilotId(1), lambda: saved == {2, 3})


class _FakeCe:
    """The part of a CE's duty that all its CEs share."""

    def __init__(self, name: str, cycles: dict[str, int]) -> None:
        self._name, self._cycles = name, cycles

    async def cycle(self) -> None:
        if self._name == "a":
            raise ValueError(BAD)
        self._cycles[self._name] = self._cycles.get(self._name, 0) + 1

    def period(self) -> float:
        return 1.0


def _batch_ces(pool: Pool) -> Case:
    cycles: dict[str, int] = {}
    duty = ces.BatchCesDuty(pool.context, lambda name: cast(Any, _FakeCe(name, cycles)))
    return Case(duty, "a", lambda: cycles.get("b", 0) > 1)


def _local_ces(pool: Pool) -> Case:
    cycles: dict[str, int] = {}
    duty = ces.LocalCesDuty(pool.context, lambda name: cast(Any, _FakeCe(name, cycles)))
    duty._duties = {name: cast(Any, _FakeCe(name, cycles)) for name in "ab"}
    return Case(duty, "a", lambda: cycles.get("b", 0) > 1)


def _information(pool: Pool, kind: type[information.InformationDuty]) -> Case:
    stored = pool.refuse(
        information, "store_answers", lambda _, tx, answers, now: any(answer.ce == "a" for answer in answers)
    )
    duty = kind(pool.context, lambda name, ce: cast(Any, SimpleNamespace()))

    def ask(name: str, ce: Any, now: float) -> None:
        asked = information._InformationQuestion(name, ce, now, problem="no answer", ended=True)
        duty._questions[name], duty._due[name] = asked, now

    pool.monkeypatch.setattr(duty, "_ask", ask)
    for name, ce in pool.bench.pool.policy.ces.items():
        ask(name, ce, pool.bench.now)
    return Case(duty, "a", lambda: any(call[2][0].ce == "b" for call in stored))


def _reasons(pool: Pool) -> Case:
    for owner in ("alice", "bob"):
        pool.bench.submit(owner=owner)
    entries = sorted(pool.bench.pool.queues.index.entries)
    pool.bench.set("queues", recorded_reasons={})
    pool.refuse(wait_history, "main_reason", lambda _, connection, entry, now: entry.id == entries[0])

    async def snapshot(context: Any, now: float) -> Any:
        return pool.bench.do(lambda tx: answer.take_snapshot(pool.bench.pool, tx, now, _turn))

    pool.monkeypatch.setattr(wait_reasons, "snapshot", snapshot)
    duty = wait_reasons.ReasonDuty(pool.context)
    duty._started = True
    stored = "SELECT DISTINCT queue_id FROM queue_reasons"
    return Case(duty, entries[0], lambda: pool.queue.sql(stored) == [(entries[1],)])


def _turn(ask: Callable[[], Any]) -> Any:
    return ask()


def _recount(pool: Pool) -> Case:
    counted: set[int] = set()

    def recount(_: Any, tx: Any, part: Sequence[int]) -> int:
        if 1 in part:
            raise ValueError(BAD)
        counted.update(part)
        return 0

    pool.monkeypatch.setattr(sync, "all_queues", lambda _: [QueueId(number) for number in (1, 2, 3)])
    pool.monkeypatch.setattr(sync, "recount", recount)
    duty = peers.RecountDuty(pool.context)
    duty._recounted_at = -1e9
    return Case(duty, QueueId(1), lambda: counted == {2, 3})


def _submissions(pool: Pool) -> Case:
    done: set[int] = set()

    async def found(context: Any, before: float) -> Sequence[SubmissionId]:
        return [SubmissionId(number) for number in (1, 2, 3)]

    async def finish(context: Any, submission: SubmissionId) -> None:
        if submission == 1:
            raise ValueError(BAD)
        done.add(submission)

    pool.monkeypatch.setattr(peers, "unaccepted", found)
    pool.monkeypatch.setattr(peers, "unfinished", found)
    pool.monkeypatch.setattr(peers, "forget_staged", finish)
    pool.monkeypatch.setattr(peers, "finish_submission", finish)
    return Case(peers.SubmissionsDuty(pool.context), SubmissionId(1), lambda: done == {2, 3})


def _mails(pool: Pool) -> Case:
    """The mail to the first of three recipients cannot be made. Its row is deleted before the try."""
    queue, told = pool.queue, list[str]()
    for _ in range(3):
        pool.bench.submit()
    made = [MailRow(SubmissionId(number), "end", f"user{number}@example.org") for number in (1, 2, 3)]
    pool.bench.do(lambda tx: mails.add(tx.connection, made))

    def reports(_: Any, rows: Sequence[MailRow]) -> list[MailReport]:
        return [MailReport((row.key,), row.recipient, "ended") for row in rows]

    def send(_: str, message: OutgoingMail) -> Delivery:
        if message.recipient == made[0].recipient:
            raise ValueError(BAD)
        told.append(message.recipient)
        return Delivery(MailOutcome.SENT)

    pool.monkeypatch.setattr(mail, "mail_reports", reports)
    pool.monkeypatch.setattr(mail, "send_mail", send)
    policy = msgspec.structs.replace(pool.bench.pool.policy, mail=Mail("smtp.example.org", "p@example.org"))
    pool.monkeypatch.setattr(pool.bench.pool, "policy", policy)
    left = "SELECT recipient FROM mails"
    others = [row.recipient for row in made[1:]]
    return Case(
        mail.MailDuty(pool.context),
        made[0].recipient,
        lambda: told == others and queue.sql(left) == [(made[0].recipient,)],
    )


ROWS: dict[type[Duty], Callable[[Pool], Case]] = {
    agents.AgentDuty: _agents,
    ces.BatchCesDuty: _batch_ces,
    costs.CostDuty: _costs,
    dependants.DependantsDuty: _dependants,
    information.InformationDuty: lambda pool: _information(pool, information.InformationDuty),
    information.LocalInformationDuty: lambda pool: _local_information(pool),
    intake.IntakeDuty: _intake,
    job_counts.JobCountsDuty: _job_counts,
    leases.LeaseDuty: _leases,
    ces.LocalCesDuty: _local_ces,
    locations.LocationDuty: _locations,
    mail.MailDuty: _mails,
    output_blocks.OutputBlockDuty: _output_blocks,
    peers.RecountDuty: _recount,
    peers.SubmissionsDuty: _submissions,
    propagation.PropagationDuty: _propagation,
    queues.QueueDuty: _queues,
    release.ReleaseDuty: _release,
    retention.RetentionDuty: _retention,
    roll_up.RollUpDuty: _roll_up,
    wait_reasons.ReasonDuty: _reasons,
}


def _local_information(pool: Pool) -> Case:
    return _information(pool, information.LocalInformationDuty)


WHOLE: dict[type[Duty], str] = {
    addresses.AddressDuty: "the addresses of this server",
    catalogues.CatalogueDuty: "each data set keeps its own problem, which `catalogue show` tells",
    director.DirectorDuty: "one iteration decides over all queues and CEs together",
    embedded_agent.EmbeddedAgentDuty: "one process",
    feed.FeedDuty: "changes have one order, and their listeners wait for all of them",
    intervals.IntervalDuty: "one sum over all queues",
    own_state.AnnouncementDuty: "one file of this server",
    own_state.CertificateDuty: "the certificate of this server",
    own_state.DiskDuty: "the disks of this server",
    own_state.RenewalDuty: "all leases are claimed by one statement",
    peers.ClockDuty: "the clock of the database",
    peers.LimitsDuty: "all limits are one table of the policy",
    peers.PeersDuty: "changes of other servers have an order that none may leave",
    peers.RebalanceDuty: "the room of all limits is shared out together",
    peers.ServersDuty: "silent servers are evicted by one decision",
    spans.SpanDuty: "an event that cannot be read costs its spans, which are counted as dropped",
    relays.RelayDuty: "each relay keeps its own failure, which `ce show` tells",
    registrations.RegistrationDuty: "each block keeps its own problem, which `catalogue show` tells",
    storage.StorageDuty: "each place keeps its own problem, which `storage list` tells",
    shares.LedgerDuty: "one sum over all attempts",
    shares.PriorityDuty: "one computation over all queues in memory",
    shares.ShareDuty: "one sum over all attempts",
}
"""Duties that have no rows of their own, with the reason."""


def all_duties() -> set[type[Duty]]:
    for module in pkgutil.walk_packages(pilotage.server.__path__, "pilotage.server."):
        importlib.import_module(module.name)
    found, left = set[type[Duty]](), [Duty]
    while left:
        of = left.pop().__subclasses__()
        of_program = (kind for kind in of if kind.__module__.startswith("pilotage."))
        found.update(kind for kind in of_program if not inspect.isabstract(kind))
        left += of
    return found


def test_every_duty_has_an_entry_a_name_and_a_known_lease() -> None:
    duties = all_duties()
    assert duties == ROWS.keys() | WHOLE.keys()
    assert not ROWS.keys() & WHOLE.keys()
    names = [duty.name for duty in duties]
    assert len(set(names)) == len(names)
    # A server without `--otlp` does not claim the lease of spans.
    assert {duty.lease for duty in duties} - {"", spans.SpanDuty.lease} <= set(DUTIES)


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    bench = Bench(tmp_path, POLICY)
    yield Pool(QueueBench(bench), monkeypatch)
    bench.end()


def _shown(pool: Pool) -> tuple[str, list[tuple[str, str, str]]]:
    """The metrics, and the failing rows that an administrator and others see."""
    context = pool.context
    depth = WorkQueueDepth({}, {}, {})
    context.work.telemetry = None
    context.work.work_queue_depth = SimpleNamespace(read=lambda: depth)
    context.writer = pool.bench.writer
    context.work.connections = SimpleNamespace(evicted=0, refused=0)
    metrics = bytes(administration.metrics(context).body).decode()
    administrator = Caller("alice", "physics", frozenset({"ADMINISTRATOR"}), 0.0)
    listed = list_duties(context, administrator)
    hidden = list_duties(context, Caller("bob", "physics", frozenset(), 0.0))
    assert {(row.row, row.error) for row in hidden.failing} <= {("", "")}
    assert len(hidden.failing) == len(listed.failing) == listed.count
    return metrics, [(row.duty, row.row, row.error) for row in listed.failing]


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__name__)
def test_a_duty_isolates_the_failing_row_tells_it_and_goes_on(kind: type[Duty], pool: Pool) -> None:
    case = ROWS[kind](pool)

    async def cycles() -> None:
        for _ in range(3):
            await case.duty.cycle()
            await asyncio.sleep(0)

    asyncio.run(cycles())
    assert case.others_done()
    metrics, rows = _shown(pool)
    assert str(case.bad) in [row for duty, row, _ in rows if duty == kind.name]
    [line] = [line for line in metrics.splitlines() if f'failing_rows{{duty="{kind.name}"}}' in line]
    assert int(line.split()[-1]) > 0


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
def test_a_failed_cycle_is_told_until_one_succeeds(kind: type[Duty], pool: Pool) -> None:
    duty = object.__new__(kind)
    Duty.__init__(duty, pool.context)
    results = iter([Conflict(BAD), Conflict(BAD), None])
    seen: list[int] = []

    async def work() -> None:
        seen.append(len(pool.context.duties.failing.of(kind.name)))
        error = next(results)
        if error is not None:
            raise error
        pool.context.stop.set()

    pool.monkeypatch.setattr(duty, "work", work)
    pool.monkeypatch.setattr(duty, "period", lambda: 0.0)
    asyncio.run(every(pool.context, duty))
    assert seen == [0, 1, 1]
    assert not pool.context.duties.failing.of(kind.name)


def test_a_row_that_succeeds_or_is_gone_is_not_shown_any_more(pool: Pool) -> None:
    queue = pool.queue
    step = queue.step(splitting=EVENTS, events=75, start_policy="MonteCarlo")
    made = [queue.request(step) for _ in range(3)]
    [(sound,)] = queue.sql("SELECT specification FROM requests WHERE id = ?", made[0])
    for request in made[:2]:
        pool.spoil_request(request)
    duty = intake.IntakeDuty(pool.context)
    asyncio.run(duty.cycle())
    assert len(pool.context.duties.failing.of("intake")) == 2
    queue.run("UPDATE requests SET specification = ? WHERE id = ?", sound, made[0])
    queue.run("UPDATE requests SET state = 'rejected' WHERE id = ?", made[1])
    asyncio.run(duty.cycle())
    assert not pool.context.duties.failing.of("intake")
    assert queue.elements_of(made[0])
