"""Releases, skips and revives jobs that depend on others.

The end of a parent stores a change in its own transaction. The functions here decide the conditions on it and move the
dependants, a few per transaction. All that is left to do is in the store, so another server or the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.dependencies import (
    Outlook,
    RunAfter,
    describe_end,
    outlook_of_all,
    outlook_of_job,
    outlook_of_submission,
)
from pilotage.core.jobs.states import FINAL, JobState
from pilotage.services.jobs.queue_of_job import find_queue
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pool.state import Pool
from pilotage.services.submission.gates import EVERYBODY
from pilotage.services.submission.handed_outputs import lacking_outputs
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import chains, history, jobs, listing, parallel_limits, submission_ends
from pilotage.store.tables.chains import (
    ConditionRow,
    ConditionState,
    GateKey,
    GateRow,
    GateState,
    ParentChange,
)
from pilotage.store.tables.jobs import JobRow
from pilotage.store.tables.selections import JobSelection
from pilotage.store.writer.transaction import Transaction

ACTOR = "server"
FAN_OUT = 100
"""Jobs of a submission, or conditions on one parent, that a transaction processes."""
_GONE = frozenset({JobState.SUPERSEDED, JobState.DELETED})
_MOVING = {
    Outlook.OPEN: (JobState.SKIPPED,),
    Outlook.MET: (JobState.BLOCKED, JobState.SKIPPED),
    Outlook.NEVER: (JobState.BLOCKED,),
}
"""The states that jobs of a gate leave, by its outlook."""


def mark_parents(pool: Pool, tx: Transaction, submissions: Sequence[int]) -> int:
    """Mark the next unfinished jobs of submissions that others depend on. Returns the number of submissions.

    The submissions come from `chains.unmarked`: all of their jobs exist. A job that returns after its end leaves a
    change, and `decide_changes` marks it.
    """
    for submission in submissions:
        parent = chains.lock_parent_submission(tx.connection, submission)
        if parent is None or parent.marked:
            continue
        ids = chains.unfinished(tx.connection, submission, parent.cursor, FAN_OUT)
        # A job that ends meanwhile is marked before, or has ended in the store.
        chains.lock_jobs(tx.connection, ids)
        chains.mark_jobs(tx.connection, ids)
        cursor, marked = (ids[-1] if ids else parent.cursor), len(ids) < FAN_OUT
        chains.save_marked(tx.connection, parent._replace(cursor=cursor, marked=int(marked)))
        if marked:
            # Jobs that ended before they were marked have told no conditions.
            chains.add_changes(tx.connection, [ParentChange(0, parent.submission, "")])
            pool.jobs.dependants_due()
    return len(submissions)


# --- decisions


@dataclass(slots=True)
class _Decisions:
    """New outlooks of conditions, with the reason if a condition cannot come true."""

    conditions: list[ConditionState] = field(default_factory=list)
    gates: set[GateKey] = field(default_factory=set)
    further: list[ParentChange] = field(default_factory=list)
    """Ends that must be decided after these conditions."""

    def add(self, row: ConditionRow, outlook: Outlook, reason: str) -> None:
        why = reason if outlook is Outlook.NEVER else ""
        self.conditions.append(ConditionState(outlook, why, row.submission, row.job, row.number))
        self.gates.add(row.gate)


def decide_changes(tx: Transaction, ids: Sequence[int]) -> int:
    """Decide the conditions on jobs that have changed. Returns the number of changes.

    A change with more than `FAN_OUT` conditions stays for the next call.
    """
    changes = chains.lock_changes(tx.connection, ids)
    decisions, decided = _Decisions(), list[int]()
    # Parent submissions are locked before their jobs, as by `mark_parents`.
    locked = {
        submission: chains.lock_parent_submission(tx.connection, submission)
        for submission in sorted({change.submission for change in changes.values()})
    }
    parents = sorted({change.job for change in changes.values() if change.job})
    facts = chains.facts_of_jobs(tx.connection, parents)
    returned = [job for job, parent in facts.items() if parent.state not in FINAL]
    if returned:
        chains.mark_returned(tx.connection, returned)
    submissions = dict[SubmissionId, bool]()
    for id_, change in changes.items():
        complete = not change.job or _decide_on_job(tx, change, facts.get(change.job), decisions)
        if change.submission not in submissions:
            submissions[change.submission] = _decide_on_submission(
                tx, change.submission, locked.get(change.submission), decisions
            )
        if complete and submissions[change.submission]:
            decided.append(id_)
    chains.delete_changes(tx.connection, decided)
    chains.add_changes(tx.connection, decisions.further)
    decide_gates(tx, decisions.gates, decisions.conditions)
    parallel_limits.unsettle(tx.connection, submissions)
    return len(changes)


def _decide_on_job(
    tx: Transaction, change: ParentChange, facts: chains.ParentFacts | None, decisions: _Decisions
) -> bool:
    """Whether all conditions on the job are decided."""
    noted = JobState(change.state)
    present = noted if facts is None else JobState(facts.state)
    # It was tried again and has ended since: its end is decided afterwards, since dependants read the new outputs.
    ended_since = present in FINAL and noted not in FINAL
    # The end of a job that is gone counts.
    state = noted if present in _GONE or ended_since else present
    outlooks = {condition: outlook_of_job(condition, state) for condition in RunAfter}
    rows = chains.of_parent(tx.connection, "parent_job", change.job, outlooks, FAN_OUT)
    reason = describe_end(change.job, state, None if facts is None else facts.exit_code)
    for row in rows:
        decisions.add(row, outlooks[RunAfter(row.condition)], reason)
    complete = len(rows) < FAN_OUT
    if complete and ended_since:
        decisions.further.append(change._replace(state=present))
    return complete


def _decide_on_submission(
    tx: Transaction, submission: SubmissionId, parent: chains.ParentSubmission | None, decisions: _Decisions
) -> bool:
    """Whether all conditions on the submission are decided, as far as its jobs allow."""
    if not chains.has_conditions(tx.connection, "parent_submission", submission):
        return True
    if parent is None or not parent.marked:
        # It is decided when all of its jobs are marked.
        return True
    unfinished, failed = submission_ends.ends_of_submission(tx.connection, submission)
    outlooks = {
        condition: outlook_of_submission(condition, unfinished=unfinished, failed=failed is not None)
        for condition in RunAfter
    }
    rows = chains.of_parent(tx.connection, "parent_submission", submission, outlooks, FAN_OUT)
    reason = f"submission {submission} succeeded"
    if failed is not None:
        reason = f"{describe_end(*failed)}, a job of submission {submission}"
    for row in rows:
        decisions.add(row, outlooks[RunAfter(row.condition)], reason)
    return len(rows) < FAN_OUT


def decide_on_gone_parents(tx: Transaction, rows: Iterable[ConditionRow]) -> None:
    """Decide conditions on parents that exist no more, as if these had been deleted. No server leaves such a state."""
    decisions = _Decisions()
    for row in rows:
        outlook = outlook_of_job(RunAfter(row.condition), JobState.DELETED)
        parent = f"job {row.parent_job}" if row.parent_job else f"submission {row.parent_submission}"
        decisions.add(row, outlook, f"{parent} is gone")
    decide_gates(tx, decisions.gates, decisions.conditions)


def decide_gates(tx: Transaction, keys: set[GateKey], decided: Sequence[ConditionState] = ()) -> None:
    """Set the outlooks of gates by their conditions. A gate without a condition opens.

    `decided`: new outlooks of their conditions. Gates are locked before conditions, as by the deletion of both.
    """
    gates = chains.gates(tx.connection, keys)
    chains.save_conditions(tx.connection, decided)
    of_gates: dict[GateKey, list[ConditionRow]] = {key: [] for key in gates}
    for row in chains.conditions_of(tx.connection, gates.keys()) if gates else ():
        of_gates[row.gate].append(row)
    states = []
    outlooks = {key: outlook_of_all(Outlook(row.outlook) for row in rows) for key, rows in of_gates.items()}
    met = [key.submission for key, outlook in outlooks.items() if outlook is Outlook.MET and not key.job]
    lacking = lacking_outputs(tx.connection, met) if met else {}
    for key, gate in gates.items():
        outlook = Outlook.NEVER if key.submission in lacking else outlooks[key]
        never = next((row.reason for row in of_gates[key] if row.outlook == Outlook.NEVER), "")
        reason = lacking.get(key.submission, never)
        # A gate that jobs are passing stays open, since jobs behind it may have started.
        if outlook != gate.outlook and gate.outlook != Outlook.MET:
            states.append(GateState(outlook, reason, 0, 0, *key))
    chains.save_gates(tx.connection, states)


# --- moves


def move_dependants(pool: Pool, tx: Transaction, keys: Sequence[GateKey], now: float) -> int:
    """Move jobs as these gates demand. Returns the number of gates.

    A gate with more than `FAN_OUT` jobs stays for the next call, and so does a gate that gets jobs meanwhile.
    """
    moves = JobTransitions(pool, tx, now, pool.event_batch(now, ACTOR))
    # Jobs are locked before gates, as by people who let a job wait again.
    looked = {job for _, ids in _next_jobs(tx, keys, lock="") for job in ids}
    rows = _load(moves, sorted(looked))
    unsettled = _next_jobs(tx, keys, lock="UPDATE")
    locked = [(gate, ids) for gate, ids in unsettled if looked.issuperset(ids)]
    _move(moves, locked, rows)
    _settle(tx, [gate for gate, ids in locked if gate.job or len(ids) < FAN_OUT])
    chains.save_gates(
        tx.connection,
        [
            GateState(gate.outlook, gate.reason, 0, ids[-1], *gate.key)
            for gate, ids in locked
            if not gate.job and len(ids) == FAN_OUT
        ],
    )
    # Limits are locked last.
    parallel_limits.unsettle(tx.connection, {gate.submission for gate, _ in locked})
    moves.write()
    return len(unsettled)


def _next_jobs(
    tx: Transaction, keys: Sequence[GateKey], *, lock: str
) -> list[tuple[GateRow, Sequence[JobId]]]:
    """The unsettled gates among these, each with its next jobs to look at. `lock`: of the gates."""
    gates = chains.gates(tx.connection, set(keys), lock=lock).values()
    return [(gate, _jobs_of(tx, gate)) for gate in gates if not gate.settled]


def _jobs_of(tx: Transaction, gate: GateRow) -> Sequence[JobId]:
    if gate.job:
        return (gate.job,)
    states = [str(state) for state in _MOVING[Outlook(gate.outlook)]]
    selection = JobSelection(submission=gate.submission, states=states)
    ids = listing.job_ids(tx.connection, selection, EVERYBODY, gate.cursor, FAN_OUT)
    return [JobId(job) for job in ids]


def _settle(tx: Transaction, gates: Iterable[GateRow]) -> None:
    """Delete gates that all jobs have passed; the others stay, for parents that are tried again."""
    passed = [gate.key for gate in gates if gate.outlook == Outlook.MET]
    stay = [
        GateState(gate.outlook, gate.reason, 1, 0, *gate.key) for gate in gates if gate.outlook != Outlook.MET
    ]
    if passed:
        chains.delete_gates(tx.connection, passed)
    chains.save_gates(tx.connection, stay)


def _move(
    moves: JobTransitions,
    gates: Sequence[tuple[GateRow, Sequence[JobId]]],
    rows: Mapping[int, JobRow],
) -> None:
    connection = moves.tx.connection
    limited = parallel_limits.limited(connection, {gate.submission for gate, _ in gates})
    for gate, ids in gates:
        outlook = Outlook(gate.outlook)
        for id_ in ids:
            job = rows.get(id_)
            if job is not None and job.state in _MOVING[outlook]:
                _move_job(moves, job, outlook, gate.reason, limited=job.submission in limited)


def _load(moves: JobTransitions, ids: list[JobId]) -> dict[int, JobRow]:
    """The jobs, locked. Skipped ones that are archived are restored, since they may change."""
    rows = jobs.by_ids(moves.tx.connection, ids)
    skipped = [job.id for job in rows.values() if job.state is JobState.SKIPPED]
    if skipped and history.restore(moves.tx.connection, skipped):
        rows |= jobs.by_ids(moves.tx.connection, skipped)
    moves.rows.update(rows)
    return rows


def _move_job(moves: JobTransitions, job: JobRow, outlook: Outlook, reason: str, *, limited: bool) -> None:
    """`limited`: a job that passes its gate stays Blocked, until it gets a place of its submission."""
    if job.state is JobState.SKIPPED:
        queue = find_queue(moves, job)
        job = moves.block(job._replace(queue=queue), "revived")
        moves.parent_changed(job, returned=True)
    if outlook is Outlook.MET:
        if not limited:
            moves.requeue(job, "unblocked")
    elif outlook is Outlook.NEVER:
        moves.end(job, "skipped", JobState.SKIPPED, reason, None)


def block_again(moves: JobTransitions, job: JobRow, gate: GateRow) -> None:
    """Rescheduled or Held → Blocked, for a job that has not passed its gate. It is moved on if the gate is decided."""
    moves.block(job, "blocked")
    state = GateState(gate.outlook, gate.reason, 0, 0, *gate.key)
    chains.save_gates(moves.tx.connection, [state])
    moves.pool.jobs.dependants_due()


def count_needing(connection: Connection, killed: Sequence[int]) -> int:
    """The number of Blocked jobs that are skipped if these jobs are killed, directly or by a skipped job."""
    counted, total = set[tuple[int, int]](), 0
    parents = list(killed)
    while parents:
        gates = chains.needing_success(connection, "parent_job", parents)
        submissions = chains.submissions_of(connection, parents)
        if submissions:
            gates += chains.needing_success(connection, "parent_submission", submissions)
        parents = []
        for gate in gates:
            if (gate.submission, gate.job) not in counted:
                counted.add((gate.submission, gate.job))
                total += gate.jobs
                parents += [gate.job] if gate.job else chains.jobs_of(connection, gate.submission)
    return total
