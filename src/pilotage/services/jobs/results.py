"""What the end of a payload does to its job."""

from __future__ import annotations

import base64
import binascii

from pilotage.core.handover import THE_PAYLOADS_OWN, Retry, after_failure
from pilotage.core.ids import JobId
from pilotage.core.jobs.states import HELD, JobState
from pilotage.services.jobs.transitions import JobTransitions, counted
from pilotage.services.pool.state import Pool
from pilotage.store.tables import attempts
from pilotage.store.tables.jobs import JobRow
from pilotage.store.tables.pilots import PilotRow
from pilotage.wire.pilot import Finish

MESSAGE_BYTES = 2000
"""A pilot's words about a failure are cut to this length."""
MOST_MISSING, MOST_REFUSED = 1000, 100
NAME_LENGTH, REASON_LENGTH = 1000, 200
"""Of what a pilot tells about outputs, in characters; the rest is cut."""
_SHOWN_NAME = 100


def apply_finish(pool: Pool, finish: Finish, job: JobRow, pilot: PilotRow, moves: JobTransitions) -> JobState:
    """Apply a finish that the hand-over has accepted; the new state of the job."""
    failure = finish.failure or ("payload" if finish.exit_code or finish.signal else "")
    reason = describe(finish, failure)
    place = pilot if job.pilot == pilot.id else None
    save_result(finish, moves)
    if not failure:
        moves.end(job, "finished", JobState.DONE, reason, place, exit_code=finish.exit_code)
        _close(finish, "applied", failure, moves)
        return JobState.DONE
    with_pilot = job.state in HELD or job.state is JobState.MATCHED
    if with_pilot or failure in THE_PAYLOADS_OWN:
        # Otherwise it was counted when its lease ran out.
        job = counted(job, failure)
    own = failure in THE_PAYLOADS_OWN
    description = pool.submission(moves.tx, job.submission).description
    verdict = after_failure(
        failure,
        job.own_failures if own else job.failures,
        most=pool.policy.jobs.max_reschedules,
        own_retries=description.retries,
    )
    if verdict is Retry.GIVE_UP:
        moves.end(job, "finished", JobState.FAILED, reason, place, exit_code=finish.exit_code)
        _close(finish, "applied", failure, moves)
        return JobState.FAILED
    _close(finish, "retried", failure, moves)
    if with_pilot:
        moves.retry(job, "failed-try", reason, place)
        return JobState.RESCHEDULED
    moves.count(job)
    return job.state


def describe(finish: Finish, failure: str) -> str:
    """One line for a person."""
    message = finish.message[:MESSAGE_BYTES]
    if failure in ("", "payload"):
        how = f"signal {finish.signal}" if finish.signal else f"exit code {finish.exit_code}"
        if not failure:
            return f"{how}: {message}" if message else incomplete_outputs(finish)
        return f"{how}: {message}" if message else how
    return f"{failure}: {message}" if message else failure


def incomplete_outputs(finish: Finish) -> str:
    """The first output that is missing or was refused, and how many there are; "" if all are stored."""
    number = len(finish.missing) + len(finish.refused)
    if not number:
        return ""
    if finish.missing:
        first = f"no file matches the output {finish.missing[0][:_SHOWN_NAME]!r}"
    else:
        refused = finish.refused[0]
        first = f"output {refused.name[:_SHOWN_NAME]!r} was not stored: {refused.reason[:REASON_LENGTH]}"
    return f"{first} (and {number - 1} more)" if number > 1 else first


def _close(finish: Finish, outcome: str, failure: str, moves: JobTransitions) -> None:
    moves.close_attempt(
        attempts.FinishedAttempt(
            moves.now,
            outcome,
            finish.exit_code,
            failure,
            finish.message[:MESSAGE_BYTES],
            finish.wall,
            finish.cpu,
            finish.max_rss,
            JobId(finish.job),
            finish.epoch,
        )
    )


def save_result(finish: Finish, moves: JobTransitions) -> None:
    """Store what a try printed, and which outputs it left."""
    stdout, stderr = _decoded(finish.stdout), _decoded(finish.stderr)
    if stdout or stderr or finish.outputs or finish.missing or finish.refused:
        outputs = [(name, -1) for name in finish.outputs]
        missing = [pattern[:NAME_LENGTH] for pattern in finish.missing[:MOST_MISSING]]
        refused = [
            (one.name[:NAME_LENGTH], one.reason[:REASON_LENGTH]) for one in finish.refused[:MOST_REFUSED]
        ]
        moves.result(
            attempts.Result(JobId(finish.job), finish.epoch, stdout, stderr, outputs, missing, refused)
        )


def _decoded(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return text.encode()
