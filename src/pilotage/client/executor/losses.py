"""Why calls have no result: their job crashed, was killed, or ended without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pilotage.core.errors import NotFound, PilotageError

if TYPE_CHECKING:
    from pilotage.client.api import Client
    from pilotage.client.executor.calls import PendingCall
    from pilotage.client.executor.chunking import ChunkRule

SHOWN_ERRORS = 5
"""Failed jobs of a turn of which the standard error is read."""


class CallLost(PilotageError):
    """The job of a call ended without a result of it: it crashed, was killed, or the call ended its process."""


@dataclass(frozen=True)
class LostCalls:
    """A job that has ended without the results of some of its calls."""

    job: int
    come: int
    """How many results it has: they are of its first calls."""
    calls: list[PendingCall]
    troubles: list[str]
    """Errors of its download."""


def tell_lost(client: Client, rule: ChunkRule, jobs: list[LostCalls]) -> None:
    """Give an error to each call without a result."""
    for place, lost in enumerate(jobs):
        calls = lost.calls[lost.come :]
        for call, error in zip(calls, _errors_of(client, lost, words=place < SHOWN_ERRORS), strict=True):
            if call.kind:
                rule.lost_probe(call.kind)
            call.future.settle(error=error)


def _errors_of(client: Client, lost: LostCalls, *, words: bool) -> list[CallLost]:
    """`words`: with the end of its standard error."""
    job, number = lost.job, len(lost.calls) - lost.come
    try:
        summary = client.job(job).job
    except NotFound:
        return [CallLost(f"job {job} no longer exists")] * number
    if summary.state == "Done" and not lost.troubles:
        return [_ended(job, is_first=not place) for place in range(number)]
    reason = f"job {job} is {summary.state}: {summary.reason}".rstrip(": ")
    reason += "".join(f"; {trouble}" for trouble in lost.troubles)
    if words:
        reason += _last_words(client, job)
    return [CallLost(reason)] * number


def _ended(job: int, *, is_first: bool) -> CallLost:
    """The error of a call whose job is Done: nothing went wrong for the system."""
    if is_first:
        return CallLost(
            f"the call ended its process without a result; job {job} is Done",
            hint="os._exit, or a library, ends a process with exit code 0: return instead",
        )
    return CallLost(f"an earlier call of job {job} ended the process without a result")


def _last_words(client: Client, job: int) -> str:
    text = b"".join(piece.data for piece in client.logs(job, stream="stderr"))
    lines = text.decode(errors="replace").strip().splitlines()
    return f"; stderr ends with: {lines[-1]}" if lines else ""
