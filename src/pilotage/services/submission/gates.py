"""Gates of new jobs: the conditions on other jobs under which they may wait for a pilot.

A gate is stored in the transaction that accepts its submission, or that creates its job. The parents are locked there.
So a parent that ends at the same time is either found to have ended, or finds the condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pilotage.core.errors import InvalidInput
from pilotage.core.ids import JobId, SubmissionId
from pilotage.core.jobs.dependencies import (
    EACH,
    Dependency,
    Outlook,
    Parent,
    RunAfter,
    describe_end,
    outlook_of_all,
    outlook_of_job,
    parse_parent,
)
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.states import JobState
from pilotage.core.plurals import plural
from pilotage.services.pool.state import Pool
from pilotage.services.submission.handed_outputs import check_outputs, hold_outputs, insert_outputs
from pilotage.store.tables import chains, chunks, parallel_limits
from pilotage.store.tables import submissions as submission_rows
from pilotage.store.tables.chains import ConditionRow, GateKey, GateRow, ParentChange, ParentFacts
from pilotage.store.tables.selections import Viewer
from pilotage.store.tables.submissions import SubmissionRow
from pilotage.store.writer.transaction import Transaction

EVERYBODY = Viewer("", everything=True)


@dataclass(frozen=True, slots=True)
class _ParentState:
    """A dependency, as its parent stands."""

    dependency: Dependency
    outlook: Outlook
    reason: str


def check_parents(tx: Transaction, description: JobDescription, owner: str, count: int | None) -> None:
    """Refuse dependencies on jobs that do not exist or belong to others. `count`: the number of jobs, if known."""
    check_outputs(tx.connection, description, _outlooks(_shared(tx, description.dependencies, owner)))
    if description.after_each:
        _paired(tx, description, owner, count)


def _outlooks(states: Iterable[_ParentState]) -> list[tuple[Parent, Outlook]]:
    return [(state.dependency.parent, state.outlook) for state in states]


def insert_whole_gate(pool: Pool, tx: Transaction, row: SubmissionRow, description: JobDescription) -> None:
    """Store the limit and the gate of all jobs of a new submission. Without them, its jobs wait for a pilot at once."""
    if description.parallel:
        parallel_limits.save(tx.connection, row.id, description.parallel)
    if not description.is_dependent:
        return
    if description.after_each:
        _paired(tx, description, row.owner, row.expected)
        return
    states = _shared(tx, description.dependencies, row.owner)
    hold_outputs(tx, description)
    check_outputs(tx.connection, description, _outlooks(states))
    insert_outputs(tx, row.id, description)
    if outlook_of_all(state.outlook for state in states) is Outlook.MET:
        return
    _insert(pool, tx, {GateKey(row.id, chains.WHOLE): states})
    _watch(pool, tx, states)


def state_of_new_jobs(
    pool: Pool, tx: Transaction, row: SubmissionRow, description: JobDescription
) -> JobState:
    """The state in which jobs of a submission begin. Its gate stays as it is until the transaction ends."""
    if description.hold:
        return JobState.HELD
    state = _state_behind_gate(pool, tx, row, description)
    if not description.parallel:
        return state
    parallel_limits.unsettle(tx.connection, [row.id])
    pool.jobs.dependants_due()
    return JobState.BLOCKED


def _state_behind_gate(
    pool: Pool, tx: Transaction, row: SubmissionRow, description: JobDescription
) -> JobState:
    if not description.is_dependent:
        return JobState.WAITING
    if description.after_each:
        return JobState.BLOCKED
    key = GateKey(row.id, chains.WHOLE)
    # Not shared: two servers that create jobs of the submission would wait for each other when they store the gate.
    gate = chains.gates(tx.connection, {key}).get(key)
    if gate is None:
        return JobState.WAITING
    if gate.outlook != Outlook.OPEN and gate.settled:
        state = chains.GateState(gate.outlook, gate.reason, 0, 0, *key)
        chains.save_gates(tx.connection, [state])
        pool.jobs.dependants_due()
    return JobState.BLOCKED


def insert_paired_gates(
    pool: Pool,
    tx: Transaction,
    row: SubmissionRow,
    description: JobDescription,
    first: JobId,
    count: int,
    place: int,
) -> None:
    """Store the gates of new jobs from id `first` on: each waits for its counterpart. `place`: of the first one.

    A counterpart may not exist yet. Its creator finds the condition, since both lock the chunk.
    """
    parent = parse_parent(description.after_each[0], EACH)
    submission = SubmissionId(parent.submission)
    counterparts = chunks.jobs_at(tx.connection, submission, place, count)
    if len(counterparts) < count:
        raise InvalidInput(
            f"{parent} has fewer jobs than this submission",
            hint="send as many rows as it has jobs",
            field=EACH,
        )
    unmade = chunks.lock_unmade(tx.connection, submission, counterparts)
    facts = chains.facts_of_jobs(tx.connection, [job for job in counterparts if job not in unmade])
    states = {}
    for index, job in enumerate(counterparts):
        dependency = Dependency(RunAfter.SUCCEEDED, Parent(job, 0))
        undecided = _ParentState(dependency, Outlook.OPEN, "")
        state = undecided if job in unmade else _state_of_job(dependency, facts.get(job))
        states[GateKey(row.id, JobId(first + index))] = [state]
    _insert(pool, tx, states)
    chains.mark_jobs(tx.connection, [job for job in counterparts if job in facts])


def _insert(pool: Pool, tx: Transaction, given: Mapping[GateKey, Sequence[_ParentState]]) -> None:
    gates, conditions = list[GateRow](), list[ConditionRow]()
    for key, states in given.items():
        outlook = outlook_of_all(state.outlook for state in states)
        reason = next((state.reason for state in states if state.outlook is Outlook.NEVER), "")
        gates.append(GateRow(*key, outlook, reason, int(outlook is Outlook.OPEN)))
        conditions += (
            ConditionRow(
                *key,
                number,
                state.dependency.condition,
                *state.dependency.parent,
                state.outlook,
                state.reason,
            )
            for number, state in enumerate(states)
        )
        if outlook is not Outlook.OPEN:
            pool.jobs.dependants_due()
    chains.insert_gates(tx.connection, gates)
    chains.insert_conditions(tx.connection, conditions)


def _watch(pool: Pool, tx: Transaction, states: Iterable[_ParentState]) -> None:
    """Let the ends of the parents decide about the conditions."""
    parents = [state.dependency.parent for state in states]
    chains.mark_jobs(tx.connection, [parent.job for parent in parents if parent.job])
    submissions = sorted({SubmissionId(parent.submission) for parent in parents if parent.submission})
    if submissions:
        chains.add_parent_submissions(tx.connection, submissions)
        # Jobs that end while this transaction is open have not found its conditions.
        chains.add_changes(tx.connection, [ParentChange(0, submission, "") for submission in submissions])
        pool.jobs.dependants_due()


def lock_parents(tx: Transaction, description: JobDescription) -> None:
    """Lock the parents that are jobs before the queue, as by people who let a job wait again."""
    parents = {dependency.parent.job for dependency in description.dependencies}
    chains.facts_of_jobs(tx.connection, sorted(parents - {0}))


def _shared(tx: Transaction, dependencies: Sequence[Dependency], owner: str) -> list[_ParentState]:
    """The dependencies as their parents stand. Locks the parents that are jobs.

    Conditions on submissions are open here: the duty decides them at once.
    """
    named = sorted({SubmissionId(d.parent.submission) for d in dependencies if d.parent.submission})
    rows = {row.id: row for row in submission_rows.by_ids(tx.connection, named)} if named else {}
    facts = chains.facts_of_jobs(tx.connection, sorted({d.parent.job for d in dependencies if d.parent.job}))
    states = []
    for dependency in dependencies:
        condition, parent = dependency
        if parent.job:
            _check_job(facts.get(parent.job), parent, condition, owner)
            states.append(_state_of_job(dependency, facts[parent.job]))
        else:
            _check_submission(rows.get(SubmissionId(parent.submission)), parent, condition, owner)
            states.append(_ParentState(dependency, Outlook.OPEN, ""))
    return states


def _check_job(facts: ParentFacts | None, parent: Parent, field: str, owner: str) -> None:
    if facts is None or facts.owner != owner:
        raise InvalidInput(f"{field}: {owner} has no {parent}", field=field)
    if facts.state == JobState.DELETED:
        raise InvalidInput(f"{field}: {parent} is deleted", field=field)


def _state_of_job(dependency: Dependency, facts: ParentFacts | None) -> _ParentState:
    """`facts` None: the job has been deleted by the retention, since it ended long ago."""
    state = JobState.DELETED if facts is None else JobState(facts.state)
    outlook = outlook_of_job(dependency.condition, state)
    end = describe_end(dependency.parent.job, state, None if facts is None else facts.exit_code)
    return _ParentState(dependency, outlook, end if outlook is Outlook.NEVER else "")


def _check_submission(row: SubmissionRow | None, parent: Parent, field: str, owner: str) -> SubmissionRow:
    if row is None or row.owner != owner or row.state == submission_rows.STAGED:
        raise InvalidInput(f"{field}: {owner} has no {parent}", field=field)
    if row.state == submission_rows.OPEN:
        raise InvalidInput(
            f"{field}: {parent} is still open for rows",
            hint="submit again when all its rows are sent",
            field=field,
        )
    return row


def _paired(tx: Transaction, description: JobDescription, owner: str, count: int | None) -> None:
    parent = parse_parent(description.after_each[0], EACH)
    stored = submission_rows.by_id(tx.connection, SubmissionId(parent.submission))
    row = _check_submission(stored, parent, EACH, owner)
    if count is not None and count != row.count:
        raise InvalidInput(
            f"{EACH}: {parent} has {plural(row.count, 'job')}, and this submission has {count:,}",
            hint="both need the same number of jobs",
            field=EACH,
        )
