"""Repairs of jobs that depend on others: the duty of dependants gets the changes that it has missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pilotage.core.ids import SubmissionId
from pilotage.services.jobs import dependants
from pilotage.services.repairs.repair import Repair, RepairRun
from pilotage.store.integrity import mended_jobs
from pilotage.store.tables import chains, parallel_limits
from pilotage.store.tables.chains import GateKey, GateRow, GateState, ParentChange, ParentSubmission
from pilotage.store.writer.transaction import Transaction


def mark(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Let the ends of all parents of these submissions be told."""
    parents = mended_jobs.parents_of(tx.connection, ids)
    chains.mark_jobs(tx.connection, [job for job, _, _ in parents.jobs])
    chains.add_parent_submissions(tx.connection, map(SubmissionId, parents.submissions))


def mark_again(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    for submission in ids:
        chains.save_marked(tx.connection, ParentSubmission(SubmissionId(submission), 0, 0))


def decide_again(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Note the states of all parents of these submissions, so that their conditions are decided again."""
    parents = mended_jobs.parents_of(tx.connection, ids)
    of_jobs = [ParentChange(job, SubmissionId(submission), state) for job, submission, state in parents.jobs]
    of_submissions = [ParentChange(0, SubmissionId(submission), "") for submission in parents.submissions]
    chains.add_changes(tx.connection, [*of_jobs, *of_submissions])


def decide_on_gone(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    dependants.decide_on_gone_parents(tx, mended_jobs.conditions_on_gone(tx.connection, ids))


def decide_gates(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    dependants.decide_gates(tx, {gate.key for gate in _gates(tx, ids)})


def move_again(run: RepairRun, tx: Transaction, ids: Sequence[int]) -> None:
    """Let the jobs of gates be looked at again."""
    states = [GateState(gate.outlook, gate.reason, 0, 0, *gate.key) for gate in _gates(tx, ids)]
    chains.save_gates(tx.connection, states)


def _gates(tx: Transaction, submissions: Sequence[int]) -> list[GateRow]:
    keys = {GateKey(*key) for key in mended_jobs.gates_of(tx.connection, submissions)}
    return list(chains.gates(tx.connection, keys).values())


REPAIRS: Final[Mapping[str, Repair]] = {
    "parents-unmarked": mark,
    "parents-marked-early": mark_again,
    "conditions-on-gone-parents": decide_on_gone,
    "conditions-behind-jobs": decide_again,
    "conditions-behind-submissions": decide_again,
    "gates-behind": decide_gates,
    "gates-unmoved": move_again,
    "limits-unmoved": lambda run, tx, ids: parallel_limits.unsettle(tx.connection, ids),
}
