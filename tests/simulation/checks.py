"""What must hold in each history: read from the store, the batch systems and the payloads, not from the services."""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from pilotage.core.jobs.states import FINAL, JobState
from pilotage.core.pilots.states import FINAL as PILOT_FINAL
from pilotage.core.queues.identity import QueueIdentity
from pilotage.outside.batch.submission import NativeState
from pilotage.twin.server import TwinServer
from tests.faults.ledger import Ledger
from tests.simulation import core_seconds
from tests.simulation.broken import Broken, need
from tests.simulation.payloads import PayloadBooks, PayloadEntry, incarnation_of
from tests.simulation.people import PeopleBooks
from tests.simulation.policy import MAX_RESCHEDULES, SOUTH_AT_ONCE, SOUTH_BUDGET
from tests.simulation.restores import Restores
from tests.simulation.server_host import ServerHosts
from tests.simulation.sites import Sites
from tests.simulation.stores import Rows, Store

_JOBS = (
    "(SELECT id, submission_id, state, finished_epoch, own_failures FROM jobs"
    " UNION ALL SELECT id, submission_id, state, finished_epoch, own_failures FROM history) j"
)
"""All jobs. Those that ended long ago by the server's clock are archived."""


def check_ledger(store: Store) -> None:
    """At any instant: each job has a legal history and one place, one try is applied at most, limits are kept."""
    with store.reading() as rows:
        ledger = Ledger(lambda sql: rows.execute(sql).fetchall(), store.dialect)
        if store.dialect == "postgresql":
            for queue, identity in rows.execute("SELECT id, identity FROM gone_queues"):
                ledger.queues[queue] = QueueIdentity.from_json(identity)
    try:
        ledger.check()
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}") from error


def check_damage(store: Store) -> None:
    """After each commit: the rules of `pilotage db check`."""
    damage = store.damage()
    need(not damage, f"the check of the database finds {damage[:3]}")


def unsettled(connection: Rows, sites: Sites, restores: Restores) -> Iterator[str]:
    """What is not at rest yet, once faults have ceased.

    A restore may forget a submission that was not released yet. Its batch jobs stay held until a person cancels them.
    """
    final = [str(state) for state in FINAL]
    marks = ",".join("?" * len(final))
    jobs = connection.execute(f"SELECT id, state FROM jobs WHERE state NOT IN ({marks})", final).fetchall()
    if jobs:
        yield f"{len(jobs)} jobs are not final: {jobs[:8]}"
    over = [str(state) for state in PILOT_FINAL]
    marks = ",".join("?" * len(over))
    pilots = connection.execute(
        f"SELECT id, ce, state, leave, batch_id FROM pilots WHERE state NOT IN ({marks})", over
    ).fetchall()
    if pilots:
        yield f"{len(pilots)} pilots have not ended: {pilots[:8]}"
    submissions = connection.execute(
        "SELECT id, stamp, ce, phase FROM pilot_submissions WHERE ended IS NULL"
    ).fetchall()
    if submissions:
        yield f"{len(submissions)} submissions of pilots have not ended: {submissions[:8]}"
    stamps = {stamp for (stamp,) in connection.execute("SELECT stamp FROM pilot_submissions")}
    tasks = [
        (system, task)
        for system, task in sites.tasks(NativeState.HELD, NativeState.WAITING, NativeState.RUNNING)
        if not (restores and task.state is NativeState.HELD and task.array.submission.stamp not in stamps)
    ]
    if tasks:
        shown = [(task.array.submission.stamp, task.batch_id, str(task.state)) for _, task in tasks[:8]]
        yield f"{len(tasks)} batch jobs are left: {shown}"
    if live := sites.live_pilots():
        yield f"{len(live)} pilots run: {[pilot.stamp for pilot in live[:8]]}"


def check_end(
    connection: Rows,
    people: PeopleBooks,
    payloads: PayloadBooks,
    sites: Sites,
    hosts: ServerHosts,
    restores: Restores,
    *,
    budget: bool,
    calm: bool,
) -> None:
    """Once all is at rest. `calm`: no fault has happened."""
    _starts_were_confirmed(connection, payloads, restores)
    _acknowledged_jobs_are_there(connection, people)
    _final_once(connection)
    _results_were_run(connection, payloads, restores)
    _leases_have_holders(connection)
    _each_try_ended_once(connection)
    _retries_are_bounded(connection)
    _failures_were_counted_once(connection)
    _no_result_was_dropped(connection, payloads, sites, restores)
    if budget:
        _budgets_were_kept(sites, hosts, restores)
    _use_is_that_of_attempts(connection)
    core_seconds.nothing_is_booked_without_a_start(connection, payloads, restores)
    if calm:
        core_seconds.all_books_agree(connection, payloads, sum(_booked(connection).values()))


def _acknowledged_jobs_are_there(connection: Rows, people: PeopleBooks) -> None:
    known = connection.execute(
        "SELECT first_job, count FROM submissions WHERE request_id IS NULL ORDER BY first_job"
    ).fetchall()
    told = sorted((answer.first, answer.count) for answer in people.submitted.values() if answer)
    need(known == told, f"submissions in the store {known}, as people were told {told}")
    jobs = {
        job
        for (job,) in connection.execute(
            f"SELECT j.id FROM {_JOBS}"
            " JOIN submissions s ON s.id = j.submission_id WHERE s.request_id IS NULL"
        )
    }
    promised = {job for first, count in told for job in range(first, first + count)}
    need(jobs == promised, f"lost {sorted(promised - jobs)}, nobody's {sorted(jobs - promised)}")


def _final_once(connection: Rows) -> None:
    """A job gets final once, and once more after each rerun by a person."""
    ends: Counter[int] = Counter()
    reruns: Counter[int] = Counter()
    final = {str(state) for state in FINAL}
    for kind, new, jobs in connection.execute("SELECT kind, new, jobs FROM events WHERE kind <> 'submitted'"):
        for job, *_ in json.loads(jobs) or ():
            if kind == "rescheduled":
                reruns[job] += 1
            elif new in final:
                ends[job] += 1
    for (job,) in connection.execute(f"SELECT j.id FROM {_JOBS}"):
        need(
            ends[job] == 1 + reruns[job], f"job {job} got final {ends[job]} times, with {reruns[job]} reruns"
        )


def _results_were_run(connection: Rows, payloads: PayloadBooks, restores: Restores) -> None:
    """A result that is applied is that of a payload of this try, on the pilot that the try belongs to.

    After a restore tries have the same numbers again, so the pilot tells which of them it is.
    """
    runs: dict[tuple[int, int], PayloadEntry] = {}
    by_pilot: dict[tuple[int, int, str], PayloadEntry] = {}
    for one in payloads.entries:
        runs[one.job, one.epoch] = by_pilot[one.job, one.epoch, one.batch_id] = one
    need(not payloads.doubled, f"a try was started twice: {payloads.doubled[:3]}")
    rows = connection.execute(
        "SELECT a.job_id, a.epoch, a.exit_code, a.failure, p.batch_id, j.state, j.finished_epoch"
        f" FROM attempts a JOIN pilots p ON p.id = a.pilot_id JOIN {_JOBS} ON j.id = a.job_id"
        " WHERE a.outcome = 'applied'"
    ).fetchall()
    applied = set()
    for job, epoch, exit_code, failure, batch_id, state, finished in rows:
        run = by_pilot.get((job, epoch, batch_id)) or runs.get((job, epoch))
        need(run is not None and run.finish is not None, f"job {job} try {epoch}: applied, but not run")
        assert run is not None
        entry = run
        assert entry.finish is not None
        need(entry.batch_id == batch_id, f"job {job} try {epoch}: run by {entry.batch_id}, not {batch_id}")
        for restore in restores.later_than(incarnation_of(entry.pilot)):
            need(
                (job, epoch) in restore.after.applied,
                f"job {job} try {epoch}: a result of a pilot from before the restore was applied",
            )
        expected = entry.finish.failure or ("payload" if entry.finish.exit_code else "")
        need(
            (entry.finish.exit_code, expected) == (exit_code, failure),
            f"job {job} try {epoch}: ended as {entry.finish}, stored {exit_code} {failure}",
        )
        if state == JobState.DONE:
            applied.add(job)
            if epoch == finished:
                need(exit_code == 0 and not failure, f"job {job} is Done with {exit_code} {failure}")
    done = {job for (job,) in connection.execute(f"SELECT j.id FROM {_JOBS} WHERE j.state = 'Done'")}
    need(done == applied, f"done without a result: {sorted(done - applied)}")


def _starts_were_confirmed(connection: Rows, payloads: PayloadBooks, restores: Restores) -> None:
    """A pilot starts no payload before the server has stored that it holds the job. A restore may forget that."""
    attempts = {tuple(row) for row in connection.execute("SELECT job_id, epoch FROM attempts")}
    stray = [
        entry
        for entry in payloads.entries
        if (entry.job, entry.epoch) not in attempts
        and not restores.may_be_forgotten(incarnation_of(entry.pilot), entry.begin)
    ]
    need(not stray, f"started without an attempt: {stray[:3]}")


def check_refusal(connection: Rows, job: int, epoch: int) -> None:
    """A result is taken however late, unless the job has ended, or was offered or begun again."""
    final = {str(state) for state in FINAL}
    for kind, new, jobs in connection.execute("SELECT kind, new, jobs FROM events WHERE kind <> 'submitted'"):
        if kind in ("offered", "rescheduled") or new in final:
            for one, its_epoch, *_ in json.loads(jobs) or ():
                if one == job and its_epoch >= epoch + (kind == "offered"):
                    return
    raise Broken(f"the result of job {job} try {epoch} was refused, and it is the last try")


def _leases_have_holders(connection: Rows) -> None:
    rows = connection.execute(
        "SELECT id, state, lease_until FROM pilots WHERE ended IS NOT NULL AND lease_until IS NOT NULL"
    ).fetchall()
    need(not rows, f"leases of pilots that have ended: {rows[:5]}")
    rows = connection.execute("SELECT job_id, epoch FROM attempts WHERE ended IS NULL").fetchall()
    need(not rows, f"tries without an end: {rows[:5]}")


def _each_try_ended_once(connection: Rows) -> None:
    """One result of a try is taken at most. Losing its pilot may end it before, and that may be taken back."""
    taken: Counter[tuple[int, int]] = Counter()
    for jobs in connection.execute("SELECT jobs FROM events WHERE kind IN ('finished', 'failed-try')"):
        taken.update((job, epoch) for job, epoch, *_ in json.loads(jobs[0]))
    doubled = [key for key, count in taken.items() if count > 1]
    need(not doubled, f"tries of which two results were taken: {doubled[:5]}")


def _retries_are_bounded(connection: Rows) -> None:
    ends: dict[int, list[str]] = {}
    for kind, jobs in connection.execute(
        "SELECT kind, jobs FROM events WHERE kind IN ('failed-try', 'lease-over', 'resumed', 'rescheduled')"
    ):
        for job, *_ in json.loads(jobs):
            ends.setdefault(job, []).append(kind)
    descriptions = {
        job: json.loads(text).get("retries", 0)
        for job, text in connection.execute(
            f"SELECT j.id, s.description FROM {_JOBS} JOIN submissions s ON s.id = j.submission_id"
        )
    }
    for job, kinds in ends.items():
        counts = Counter(kinds)
        begun = 1 + counts["rescheduled"]
        lost = counts["lease-over"] - counts["resumed"]
        need(lost <= begun * (MAX_RESCHEDULES + 1), f"job {job} was lost with its pilot {lost} times")
        tries = counts["failed-try"]
        most = begun * (descriptions[job] + MAX_RESCHEDULES)
        need(tries <= most, f"job {job} failed and was tried again {tries} times of {most}")


def _no_result_was_dropped(
    connection: Rows, payloads: PayloadBooks, sites: Sites, restores: Restores
) -> None:
    """A pilot that left in good order has told the results of its payloads: none is run again for nothing.

    A restore may forget the results of pilots that ended after the backup.
    """
    left = {id(process.pilot): process.ended or 0.0 for process in sites.pilots if process.exit_code == 0}
    outcomes = {
        (job, epoch): outcome
        for job, epoch, outcome in connection.execute("SELECT job_id, epoch, outcome FROM attempts")
    }
    for entry in payloads.entries:
        if entry.finish is None or entry.finish.failure == "killed" or id(entry.pilot) not in left:
            continue
        if restores.may_be_forgotten(incarnation_of(entry.pilot), left[id(entry.pilot)]):
            continue
        outcome = outcomes.get((entry.job, entry.epoch))
        need(
            outcome not in (None, "released"),
            f"job {entry.job} try {entry.epoch} ended with a result, and its attempt is {outcome}",
        )


def _budgets_were_kept(sites: Sites, hosts: ServerHosts, restores: Restores) -> None:
    """The server counts the seconds by which its clock jumped back only once for running pilots.

    It cannot know since when a batch job has run that began while no server ran, unless its pilot calls home.

    A restore forgets the pilots that were submitted after the backup, and so what they use. Each store has kept the
    budget with the pilots that it knew.
    """
    used: defaultdict[str, float] = defaultdict(float)
    for process in sites.pilots:
        if process.ce.name == "south":
            assert process.ended is not None
            assert process.link is not None
            # A pilot on a node that was cut off lives on, but its batch job has ended.
            end = (
                process.ended
                if process.task.ended < process.began
                else min(process.ended, process.task.ended)
            )
            unseen = 0.0 if process.link.heard else hosts.seconds_unseen(process.began, end)
            used[process.stamp] += (end - process.began - unseen) * process.ce.pilot_processors
    most = SOUTH_BUDGET * 3600 * 1.05 + (hosts.turned_back + restores.seconds_forgotten()) * SOUTH_AT_ONCE
    for known in restores.pilots_by_store(frozenset(used)):
        together = sum(used[stamp] for stamp in known)
        need(together <= most, f"{together / 3600:.2f} core-h of {SOUTH_BUDGET}")


def _use_is_that_of_attempts(connection: Rows) -> None:
    """The core-seconds booked for shares are those of the attempts, without the time in which the server was down."""
    [as_of] = connection.execute("SELECT use_as_of FROM instance").fetchone()
    if as_of is None:
        return
    outages = connection.execute("SELECT down, up FROM outages").fetchall()
    run: Counter[tuple[str, str]] = Counter()
    tries: Counter[tuple[str, str]] = Counter()
    for owner, group, cores, begin, ended in connection.execute(
        "SELECT owner, grp, processors, started, coalesce(ended, 1e18) FROM attempts"
    ):
        end = min(ended, as_of)
        away = sum(max(0.0, min(end, up) - max(begin, down)) for down, up in outages)
        run[owner, group] += cores * max(0.0, end - begin - away)
        tries[owner, group] += cores
    booked = _booked(connection)
    for entity, seconds in run.items():
        # Each instant of an attempt may be rounded to its bucket.
        slack = 0.01 * seconds + tries[entity]
        need(
            abs(booked[entity] - seconds) <= slack,
            f"{entity}: {booked[entity]:.0f} core-s booked, {seconds:.0f} run",
        )


def _booked(connection: Rows) -> Counter[tuple[str, str]]:
    entities = {
        place: (owner, group)
        for place, owner, group in connection.execute("SELECT place, owner, grp FROM use_entities")
    }
    booked: Counter[tuple[str, str]] = Counter()
    for places, cores in connection.execute("SELECT places, cores FROM use_buckets WHERE span = 60"):
        for place, seconds in zip(array("q", places), array("d", cores), strict=True):
            booked[entities[place]] += seconds
    return booked


def _failures_were_counted_once(connection: Rows) -> None:
    """A failure of the payload counts once. That its pilot was lost before counts beside it."""
    rows = connection.execute(
        f"SELECT j.id, j.own_failures, count(a.job_id) FROM {_JOBS}"
        " LEFT JOIN attempts a ON a.job_id = j.id AND a.failure <> '' GROUP BY j.id, j.own_failures"
    ).fetchall()
    wrong = [row for row in rows if row[1] > row[2]]
    need(not wrong, f"failures of jobs, and their attempts that failed: {wrong[:5]}")


def memory_of(server: TwinServer) -> dict[str, Any]:
    """What a server has in memory about the store."""
    pool = server.context.pool
    now = server.context.clock()
    limits = {
        str(limit.key): pool.offers.limits.limiter.status(limit, now).running
        for limit in pool.policy.matching_limits()
    }
    waiting = {int(id_): entry.waiting for id_, entry in pool.queues.index.entries.items() if entry.waiting}
    return {
        "waiting": waiting,
        "limits": limits,
        "stalled": sorted(pool.pilots.stalled),
        "unconfirmed": sorted(pool.pilots.unconfirmed),
    }


def memory_in_store(server: TwinServer, connection: Rows) -> dict[str, Any]:
    """The same, counted in the store."""
    waiting = dict(
        connection.execute("SELECT queue_id, count(*) FROM jobs WHERE state = 'Waiting' GROUP BY queue_id")
    )
    held: Counter[str] = Counter()
    policy = server.context.pool.policy
    identities = server.context.pool.queues.identities
    for queue, site, ce in connection.execute(
        "SELECT j.queue_id, p.site, p.ce FROM jobs j JOIN pilots p ON p.id = j.pilot_id"
        " WHERE j.state IN ('Matched', 'Taken', 'Running', 'Stalled', 'Completing')"
    ):
        for limit in policy.matching_limits():
            if limit.applies_at(site, ce) and limit.applies_to(identities[queue]):
                held[str(limit.key)] += 1
    limits = {str(limit.key): held[str(limit.key)] for limit in policy.matching_limits()}
    stalled = connection.execute("SELECT DISTINCT pilot_id FROM jobs WHERE state = 'Stalled'").fetchall()
    offered = connection.execute("SELECT DISTINCT pilot_id FROM jobs WHERE state = 'Matched'").fetchall()
    return {
        "waiting": waiting,
        "limits": limits,
        "stalled": sorted(pilot for (pilot,) in stalled),
        "unconfirmed": sorted(pilot for (pilot,) in offered),
    }


def check_memory(server: TwinServer, connection: Rows) -> None:
    found, stored = memory_of(server), memory_in_store(server, connection)
    for part in ("waiting", "limits"):
        need(found[part] == stored[part], f"{part}: in memory {found[part]}, in the store {stored[part]}")
    for part in ("stalled", "unconfirmed"):
        missing = set(stored[part]) - set(found[part])
        need(not missing, f"{part}: memory has not {missing}")
