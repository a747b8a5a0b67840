"""`pilotage request wait`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.outcome import JOB_FAILED, note_on_interrupt
from pilotage.cli.parser import CommandArgument
from pilotage.cli.session import LONG_PATIENCE, Session, TimeoutOption, connected
from pilotage.cli.time_format import parse_duration
from pilotage.core.plurals import plural
from pilotage.core.requests.states import ENDED, SUCCESSFUL, RequestState

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.requests import RequestDetail
    from pilotage.wire.resubmissions import Resubmissions


@dataclass
class RequestOutcome:
    """The JSON of `request wait`."""

    request: int
    state: str
    ended: bool
    done_jobs: int
    failed_jobs: int
    failed_elements: int
    canceled_elements: int
    repaired: bool = False
    """Resubmissions have done all parts of it that failed."""

    @property
    def code(self) -> int:
        """0 if it is completed, each failed part is repaired, and no element of it was cancelled."""
        is_whole = self.repaired or not (self.failed_jobs or self.failed_elements)
        is_whole = is_whole and not self.canceled_elements
        return 0 if self.state in SUCCESSFUL and is_whole else JOB_FAILED


def is_repaired(parts: Resubmissions | None) -> bool:
    """Whether each failed part is done in an ended resubmission with accepted results."""
    if parts is None or not parts.failed or parts.taken < parts.failed:
        return False
    return all(RequestState(other.state) in REPAIRING for other in parts.resubmissions)


REPAIRING = ENDED - {RequestState.FAILED, RequestState.REJECTED, RequestState.REJECTED_ARCHIVED}
"""States of resubmissions that keep done parts only, and whose results nobody has refused."""


@connected
def wait(
    session: Session,
    ids: Annotated[list[int], CommandArgument("Numbers of requests", "REQUEST...")],
    timeout: TimeoutOption = "",
) -> int | None:
    """Wait until requests have ended. The exit code is 0 if all are completed, and no job or element failed.

    Failed parts do not count once resubmissions have done all of them.
    A request that `force-complete` has ended before all of its work was done counts as failed.
    """
    limit = parse_duration(timeout) if timeout else None
    with session.client(patience=LONG_PATIENCE) as client:
        outcomes = [watch_request(session, client, number, limit) for number in ids]
    session.screen.json({"requests": outcomes})
    return max(outcome.code for outcome in outcomes)


def watch_request(
    session: Session, client: Client, number: int, timeout: float | None = None
) -> RequestOutcome:
    """Wait for a request with a progress bar, then say how it ended."""
    screen = session.screen
    text = f"the request continues: `pilotage request wait {number}` waits for it again"
    with note_on_interrupt(screen, text), screen.progress(f"request {number}") as advance:

        def show(detail: RequestDetail) -> None:
            row = detail.request
            ended = row.done_jobs + row.failed_jobs
            advance(ended, row.jobs, f"{row.state}, {row.done_jobs:,} of {plural(row.jobs, 'job')} done")

        detail = client.wait_for_request(number, timeout=timeout, progress=show)
    row = detail.request
    ended = RequestState(row.state) in ENDED
    failed = f", {row.failed_jobs:,} failed" if row.failed_jobs else ""
    if row.failed_elements:
        failed += f", {plural(row.failed_elements, 'element')} failed"
    if row.canceled_elements:
        failed += f", {plural(row.canceled_elements, 'element')} canceled"
    repaired = is_repaired(detail.resubmitted)
    later = [other.request for other in detail.resubmitted.resubmissions] if detail.resubmitted else []
    if repaired:
        failed += f", all of it repaired by {plural(len(later), 'resubmission')}"
    reason = f": {row.reason}" if row.reason else ""
    screen.line(
        f"request {number} ({row.name}) is {row.state}{reason}; {plural(row.done_jobs, 'job')} done{failed}"
    )
    if (row.failed_jobs or row.failed_elements) and not repaired:
        going_on = f"; its failed parts are made again: pilotage request wait {later[-1]}" if later else ""
        screen.note(f"next: pilotage request show {number}{going_on}")
    counts = (row.done_jobs, row.failed_jobs, row.failed_elements, row.canceled_elements)
    return RequestOutcome(number, row.state, ended, *counts, repaired=repaired)
