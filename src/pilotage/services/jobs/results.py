"""Applies the result of a payload to its job."""

from __future__ import annotations

import base64
import binascii

from pilotage.core.handover import THE_PAYLOADS_OWN, RetryDecision, after_failure
from pilotage.core.ids import JobId
from pilotage.core.jobs.states import CONFIRMED, JobState
from pilotage.core.requests.retries import DATA_FAILURES
from pilotage.core.short_text import cut_middle
from pilotage.services.jobs.attempt_changes import MESSAGE_BYTES
from pilotage.services.jobs.failures import counted
from pilotage.services.jobs.stored_files import register_files, register_logs
from pilotage.services.jobs.transitions import JobTransitions
from pilotage.services.pool.state import Pool
from pilotage.store.tables import attempts
from pilotage.store.tables.jobs import JobRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.wire.pilot import Finish

MAX_MISSING, MAX_REFUSED = 1000, 100
NAME_LENGTH, REASON_LENGTH = 1000, 200
"""Characters of a name and a reason in a report about outputs; the rest is cut."""
_SHOWN_NAME = 100


def apply_finish(pool: Pool, finish: Finish, job: JobRow, pilot: PilotRow, moves: JobTransitions) -> JobState:
    """Apply a finish that the hand-over has accepted. Returns the new state of the job."""
    # The row of the attempt is bounded by its confirm. The pilot's age bounds the end that the roll-up reads.
    age = max(0.0, moves.now - (moves.now if pilot.started is None else pilot.started))
    finish.wall = min(finish.wall, age * attempts.DRIFT + attempts.MAX_DRIFT)
    failure = finish.failure or ("payload" if finish.exit_code or finish.signal else "")
    refusal = None if failure else register_files(pool, moves.tx, finish, job, pilot, moves.now)
    if finish.logs is not None:
        register_logs(pool, moves.tx, finish, job, pilot, moves.now)
    if refusal is not None:
        failure, finish.message = refusal.failure, refusal.reason
    reason = describe(finish, failure)
    place = pilot if job.pilot == pilot.id else None
    save_result(finish, moves)
    if not failure:
        return _end(finish, job, JobState.DONE, reason, place, moves)
    with_pilot = job.state in CONFIRMED or job.state is JobState.MATCHED
    if with_pilot or failure in THE_PAYLOADS_OWN:
        # Otherwise the failure was counted when the lease expired.
        job = counted(job, failure)
    own = failure in THE_PAYLOADS_OWN
    description = pool.jobs.submissions.get(moves.tx, job.submission).description
    verdict = after_failure(
        failure,
        job.own_failures if own else job.failures,
        # A request tries the data elsewhere, after its own pause.
        most=0 if failure in DATA_FAILURES and moves.of_request(job) else pool.policy.jobs.max_reschedules,
        own_retries=description.retries,
    )
    if verdict is RetryDecision.GIVE_UP or (refusal is not None and refusal.is_final):
        return _end(finish, job, JobState.FAILED, reason, place, moves, failure)
    moves.attempts.close(finish, "retried", failure)
    if with_pilot:
        moves.retry(job, "failed-try", reason, place)
        return JobState.RESCHEDULED
    moves.count(job)
    return job.state


def _end(
    finish: Finish,
    job: JobRow,
    new: JobState,
    reason: str,
    place: PilotRow | None,
    moves: JobTransitions,
    failure: str = "",
) -> JobState:
    """End the job with this result; returns its state."""
    moves.end(
        job, "finished", new, reason, place, exit_code=finish.exit_code, failure=failure, wall=finish.wall
    )
    moves.attempts.close(finish, "applied", failure)
    return new


def describe(finish: Finish, failure: str) -> str:
    """The result as one line of text."""
    message = cut_middle(finish.message, MESSAGE_BYTES)
    if failure in ("", "payload"):
        how = f"signal {finish.signal}" if finish.signal else f"exit code {finish.exit_code}"
        if not failure:
            return f"{how}: {message}" if message else incomplete_outputs(finish)
        return f"{how}: {message}" if message else how
    return f"{failure}: {message}" if message else failure


def incomplete_outputs(finish: Finish) -> str:
    """The first missing or refused output, and the number of others; "" if all are stored."""
    number = len(finish.missing) + len(finish.refused)
    if not number:
        return ""
    if finish.missing:
        first = f"no file matches the output {finish.missing[0][:_SHOWN_NAME]!r}"
    else:
        refused = finish.refused[0]
        first = f"output {refused.name[:_SHOWN_NAME]!r} was not stored: {refused.reason[:REASON_LENGTH]}"
    return f"{first} (and {number - 1} more)" if number > 1 else first


def save_result(finish: Finish, moves: JobTransitions) -> None:
    """Store the standard output and error of an attempt, and the list of its outputs."""
    stdout, stderr = _decoded(finish.stdout), _decoded(finish.stderr)
    if stdout or stderr or finish.outputs or finish.missing or finish.refused:
        outputs = [(name, -1) for name in finish.outputs]
        missing = [pattern[:NAME_LENGTH] for pattern in finish.missing[:MAX_MISSING]]
        refused = [
            (output.name[:NAME_LENGTH], output.reason[:REASON_LENGTH])
            for output in finish.refused[:MAX_REFUSED]
        ]
        moves.attempts.result(
            attempts.Result(JobId(finish.job), finish.epoch, stdout, stderr, outputs, missing, refused)
        )


def _decoded(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return text.encode()
