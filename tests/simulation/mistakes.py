"""Deliberate mistakes in the product: the proof that the simulation sees. Each must be found within 500 seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final
from unittest.mock import patch

from pilotage.core import handover
from pilotage.core.errors import NotAuthenticated
from pilotage.core.handover import Answer, Custody, Decision, Fence, Message, Relation, RetryDecision
from pilotage.core.ids import QueueId
from pilotage.core.pilots.handover import Seen, Sight
from pilotage.core.queues.index import QueueIndex
from pilotage.core.requests.retries import FailedTry, RetryRules, RetryVerdict, after_failed_try
from pilotage.core.workqueue.states import ElementJobState, ElementState
from pilotage.pilot.assignments import Stage
from pilotage.pilot.machine import Machine
from pilotage.server.duties import duty_leases, peers
from pilotage.server.duties.duty_leases import DutyLeases
from pilotage.services.director import next_step, ordering, submitting
from pilotage.services.jobs import results, stored_files
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.peers import sync
from pilotage.services.pilots import enrolment, exchange, leases, lifecycle
from pilotage.services.pilots.exchange import PilotRequest
from pilotage.services.pool.known_pilots import PilotCache
from pilotage.services.pool.limits import RunningLimits
from pilotage.services.pool.task_queues import TaskQueues
from pilotage.services.submission import accept
from pilotage.services.workqueue import expiry, roll_up
from pilotage.services.workqueue.intake import _Intake
from pilotage.store.postgresql.connection import PostgresqlConnection
from pilotage.store.tables import (
    bans,
    element_jobs,
    element_progress,
    instance,
    job_outcomes,
    pilots,
    submission_ends,
    submissions,
)
from pilotage.store.tables.element_progress import StepProgress
from pilotage.store.tables.submission_ends import SubmissionEnds
from pilotage.store.writer.replies import send_results
from pilotage.store.writer.transaction import Transaction
from pilotage.store.writer.writer import Writer

Change = tuple[Any, str, Any]
"""The object, the name of its attribute, and the attribute with the mistake."""


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _table(custody: Custody, message: Message, decision: Decision) -> Change:
    key = custody, message, Relation.CURRENT
    return handover, "TABLE", MappingProxyType({**handover.TABLE, key: decision})


def _relation(self: Fence, epoch: int, digest: str = "") -> Relation:
    return Relation.CURRENT if epoch <= self.epoch else Relation.NEVER_GIVEN


def _answer_before_commit(
    self: Any, group: Any, transaction: Any, results_: Any, worked: Any, races: int
) -> None:
    send_results([reply for _, reply in group], results_, self._loop)
    _commit(self, [(request, _nothing) for request, _ in group], transaction, results_, worked, races)


_commit = Writer._commit


def _failed(director: Any, pool: Any, tx: Any, stamp: str, error: Any, now: float) -> None:
    submitting.full(director, pool, tx, stamp, error.reason, now)


def _no_take_back(moves: Any, job: Any, pilot: Any, rule: Any, reason: str) -> None:
    return None


def _resend_nothing(self: Any, event: Any, now: float, made: Any) -> None:
    """A pilot whose message has failed forgets the results in it."""
    _on_exchange_failed(self, event, now, made)
    for assignment in list(self.assignments.in_stages(Stage.FINISHED)):
        self.assignments.remove(assignment)


_on_exchange_failed = Machine._on_exchange_failed


def _deaf_to_stop(self: Any, assignment: Any, reason: str, now: float, made: Any, **_: Any) -> None:
    """A pilot goes on with a payload that is no longer its own."""


def _index_keeps(self: Any, *_: Any) -> None:
    return None


def _lets_everyone_in(tx: Any, request: Any) -> Any:
    pilot = pilots.by_secret(tx.connection, enrolment.secret_hash(request.secret), request.index)
    if pilot is None:
        raise NotAuthenticated("unknown pilot secret")
    return pilot


def _sight_at_once(seen: Seen, absent_since: float | None, listed: float, settle: float) -> Sight:
    return Sight.STILL_ABSENT if seen is Seen.ABSENT else Sight.UNKNOWN


def _begin_without_key(pool: Any, tx: Any, prepared: Any, state: str, now: float) -> Any:
    return _begin(pool, tx, replace(prepared, key=""), state, now)


_begin = accept.begin


def _move_but_back(self: Any, job: Any, kind: str, new: Any, reason: str = "") -> Any:
    return job if kind == "heard-again" else _move(self, job, kind, new, reason)


_move = JobTransitions.move


def _uncounted(failed: FailedTry, rules: RetryRules) -> RetryVerdict:
    return after_failed_try(replace(failed, retries=0), rules)


def _admit_each_incarnation(pool: Any, tx: Any, hashed: str, request: Any) -> Any:
    return _admit(pool, tx, hashed, replace(request, incarnation=pool.server.incarnation))


_admit = exchange._admit


def _begins_at_its_confirm(self: Any, job: Any, *, ahead: bool = False) -> Any:
    return _hold(self, job)


_hold = PilotRequest._hold


def _same_incarnation(connection: Any, incarnation: int, id_floor: int) -> None:
    _begin_incarnation(connection, incarnation - 1, id_floor)


def _no_floor(connection: Any, incarnation: int, id_floor: int) -> None:
    _begin_incarnation(connection, incarnation, 0)


_begin_incarnation = instance.begin_incarnation


async def _run_without_lease(self: Any, name: str, duty: Any) -> None:
    await duty()


MISTAKES: Final[Mapping[str, tuple[Change, ...]]] = {
    "the fence of epochs is dropped": ((Fence, "relation", _relation),),
    "a result is taken twice": ((JobTransitions, "finish_taken", lambda self, job, epoch, digest: job),),
    "a result is answered, and not applied": (
        _table(Custody.HELD, Message.FINISH, Decision(Answer.ACCEPTED)),
    ),
    "a result of a job that waits again is refused": (
        _table(Custody.FREE, Message.FINISH, Decision(Answer.SUPERSEDED)),
    ),
    "a late confirm of a lapsed offer is accepted": (
        _table(Custody.FREE, Message.CONFIRM, Decision(Answer.ACCEPTED)),
    ),
    "jobs taken ahead run from their confirm on": ((PilotRequest, "_hold", _begins_at_its_confirm),),
    "a released job is kept": (_table(Custody.HELD, Message.RELEASE, Decision(Answer.ACCEPTED)),),
    "a pilot may go on with a job of others": ((PilotRequest, "_jobs_to_stop", lambda self, holding: []),),
    "a pilot is deaf to stop": ((Machine, "_drop", _deaf_to_stop),),
    "a pilot forgets results that were not answered": ((Machine, "_on_exchange_failed", _resend_nothing),),
    "answers are sent before the commit": ((Writer, "_commit", _answer_before_commit),),
    "memory keeps what a failed commit has not stored": ((Transaction, "undo_changes", _nothing),),
    "queues are not read again after a failed commit": ((TaskQueues, "_restore", _nothing),),
    "limits are not counted again after a failed commit": ((RunningLimits, "_restore", _nothing),),
    "rows of pilots are kept after a failed commit": ((PilotCache, "_forget_touched", _nothing),),
    "offers never lapse": ((leases, "lapsing", lambda pool, now: []),),
    "leases never run out": ((leases, "over", lambda peers, tx, now: []),),
    "leases run out while the server is down": ((leases, "outage_credit", lambda *_, **__: 0.0),),
    "leases are not renewed": ((PilotRequest, "_heard", _nothing),),
    "rescheduled jobs stay so": ((leases, "due", lambda tx, now: []),),
    "stalled jobs stay so": ((JobTransitions, "move", _move_but_back),),
    "jobs of a pilot that has ended are not taken back": ((lifecycle, "_take_back", _no_take_back),),
    "limits are not counted": ((RunningLimits, "started", _nothing),),
    "limits are not given back": ((RunningLimits, "left", _nothing),),
    "the index forgets jobs that wait again": ((QueueIndex, "return_job", _index_keeps),),
    "the index keeps jobs that were killed": ((QueueIndex, "remove_job", _index_keeps),),
    "failures are not counted": (
        (results, "counted", lambda job, failure: job),
        (lifecycle, "counted", lambda job, failure: job),
    ),
    "failed jobs are tried again for ever": (
        (results, "after_failure", lambda *_, **__: RetryDecision.AGAIN),
        (lifecycle, "after_failure", lambda *_, **__: RetryDecision.AGAIN),
    ),
    "the key of a submission is ignored": (
        (accept.ChunkedInsert, "_known", _nothing),
        (accept, "begin", _begin_without_key),
    ),
    "one absence is trusted": ((next_step, "sight_of", _sight_at_once),),
    "signs of life contradict no absence": ((exchange, "contradict_absence", _nothing),),
    "a submission in doubt is given up": ((submitting, "failed", _failed),),
    "a submission in doubt is forgotten": ((submitting, "in_doubt", _nothing),),
    "a submission is not looked at again": ((next_step, "sight_of", lambda *_: Sight.UNKNOWN),),
    "pilots that were given up may call home": ((enrolment, "_find_pilot", _lets_everyone_in),),
    "a second program of a pilot keeps its jobs": ((enrolment, "_supersede", _nothing),),
    "the budget is ignored": ((ordering, "status_of", lambda *_, **__: None),),
    "silent agents keep their elements": ((expiry, "over", lambda tx, now: []),),
    "failed pieces are made again for ever": (
        (roll_up, "after_failed_try", lambda failed, rules: RetryVerdict(5.0)),
    ),
    "tries of pieces are not counted": ((roll_up, "after_failed_try", _uncounted),),
    "failed pieces count as done": ((roll_up, "state_of_job", lambda *_, **__: ElementJobState.DONE),),
    "a cleanup begins before its merges have ended": ((_Intake, "_may_clean", lambda *_: True),),
    "released jobs of requests stay made": ((element_jobs, "save_released", _nothing),),
    "ends of jobs of requests are forgotten": ((job_outcomes, "append", _nothing),),
    "the last output blocks stay open": ((roll_up, "close_output", lambda *_: True),),
    "outputs are not registered": ((stored_files, "register_outputs", lambda *_: ()),),
    "pilots from before a restore are heard": ((exchange, "_admit", _admit_each_incarnation),),
    "a restore keeps the incarnation": ((instance, "begin_incarnation", _same_incarnation),),
    "a restore gives ids again": ((instance, "begin_incarnation", _no_floor),),
}

MISTAKES_OF_SEVERAL: Final[Mapping[str, tuple[Change, ...]]] = {
    "every server runs all duties": (
        (DutyLeases, "run", _run_without_lease),
        (DutyLeases, "holds", lambda self, name: True),
    ),
    "the fence of duties is dropped": ((duty_leases, "_fenced", lambda request, name, epoch: request),),
    "silent servers are not given up": ((peers, "evict_silent", lambda pool, tx: []),),
    "servers hear nothing of each other": ((sync, "apply_changes", _nothing),),
    "a server that was given up goes on": ((PostgresqlConnection, "bind_to_server", _nothing),),
}
"""Mistakes that need several servers on one store."""


def _eight_looks(connection: Any, request: int, step: int) -> StepProgress:
    """Look for each state by a statement of its own."""
    sql = "SELECT 1 FROM elements WHERE request_id = ? AND step = ? AND state = ? LIMIT 1"
    states = {
        state
        for state in ElementState
        if connection.execute(sql, (request, step, str(state))).fetchone() is not None
    }
    sql = "SELECT 1 FROM element_jobs WHERE request_id = ? AND step = ? AND state = ? LIMIT 1"
    return StepProgress(
        frozenset(states),
        any(connection.execute(sql, (request, step, state)).fetchone() for state in element_jobs.UNFINISHED),
    )


def _two_looks(connection: Any, submission: int) -> SubmissionEnds:
    """Look for unfinished jobs of a submission, and then for failed ones."""
    unfinished = submission_ends.has_unfinished(connection, submission)
    return SubmissionEnds(unfinished, _ends_of_submission(connection, submission).not_done)


_ends_of_submission = submission_ends.ends_of_submission


def _keep_queue_unseen(connection: Any, queue: int) -> bool:
    """Say that a queue is kept, whether its row is there or not."""
    is_there = submissions.queue_identity(connection, QueueId(queue)) is not None
    sql = "UPDATE queues SET empty_since = NULL WHERE id = ? AND empty_since IS NOT NULL"
    connection.execute(sql, (queue,))
    return is_there


def _end_whatever_the_row_says(connection: Any, ban: int, *, by: str, now: float) -> bool:
    return bans.end(connection, ban, by=by, now=now)


MISTAKES_OF_OVERLAPS: Final[Mapping[str, tuple[Change, ...]]] = {
    "the states of a step are looked at one by one": ((element_progress, "of_step", _eight_looks),),
    "the ends of a submission are looked at twice": ((submission_ends, "ends_of_submission", _two_looks),),
    "a queue is kept by a look at its row": ((submissions, "keep_queue", _keep_queue_unseen),),
    "bans end by what a server remembers": ((bans, "end_if_over", _end_whatever_the_row_says),),
}
"""Mistakes that need transactions that overlap."""
_ALL: Final[Mapping[str, tuple[Change, ...]]] = {**MISTAKES, **MISTAKES_OF_SEVERAL, **MISTAKES_OF_OVERLAPS}


@contextmanager
def made(name: str) -> Iterator[None]:
    """Make a mistake for as long as this lasts."""
    changes = _ALL[name]
    patches = [patch.object(target, attribute, value) for target, attribute, value in changes]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def first_seed(name: str, simulate: Callable[[int], str], seeds: range) -> tuple[int, str] | None:
    """The first seed whose history shows the mistake, and how."""
    with made(name):
        for seed in seeds:
            if failure := simulate(seed):
                return seed, failure
    return None
