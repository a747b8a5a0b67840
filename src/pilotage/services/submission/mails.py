"""Mail about submissions: who gets it, and the words for events that have happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pilotage.core.ids import SubmissionId
from pilotage.core.jobs.description import JobDescription
from pilotage.core.jobs.states import JobState
from pilotage.core.mail import MailEvent, mail_addresses
from pilotage.core.plurals import plural
from pilotage.core.policy import Policy
from pilotage.core.printable import printable
from pilotage.services.submission.gates import EVERYBODY
from pilotage.store.engine.connection import Connection
from pilotage.store.tables import job_counts, listing, mails, submission_ends, submissions
from pilotage.store.tables.mails import MailKey, MailRow
from pilotage.store.tables.selections import JobSelection
from pilotage.store.tables.submissions import SubmissionRow
from pilotage.store.writer.transaction import Transaction

MOST_TEXT = 200
"""Characters of a name or a reason in a mail."""


def _recipients(policy: Policy, description: JobDescription, owner: str) -> tuple[list[str], list[str]]:
    """The addresses for mail about a submission, and the forbidden ones."""
    user = policy.users.get(owner)
    own = user.mail if user is not None else ""
    ends = tuple(ending.lower() for ending in policy.mail.recipients)
    allowed: list[str] = []
    forbidden: list[str] = []
    for address in dict.fromkeys(mail_addresses(description.mail_user or own)):
        (allowed if address == own or address.lower().endswith(ends) else forbidden).append(address)
    return allowed, forbidden


def mail_warnings(policy: Policy, description: JobDescription, owner: str) -> Iterator[str]:
    """Why somebody will not get the mail that a description asks for."""
    if not description.mail_type:
        return
    allowed, forbidden = _recipients(policy, description, owner)
    if not policy.mail.server:
        yield "no mail will be sent: mail.server of the policy is empty"
    elif forbidden:
        ends = ", ".join(policy.mail.recipients) or f"users.{owner}.mail only"
        yield f"no mail will be sent to {', '.join(forbidden)}: the policy allows {ends}"
    elif not allowed:
        yield f"no mail will be sent: give mail_user, or users.{owner}.mail in the policy"


def insert_mails(tx: Transaction, policy: Policy, row: SubmissionRow, description: JobDescription) -> None:
    """Let the duty watch a new submission for the events of its description."""
    if not (description.mail_type and policy.mail.server):
        return
    allowed, _ = _recipients(policy, description, row.owner)
    if allowed:
        to = ",".join(allowed)
        mails.add(tx.connection, [MailRow(row.id, event, to) for event in description.mail_type])


@dataclass(frozen=True, slots=True)
class MailReport:
    """Mails of one submission whose events have happened, or cannot happen any more."""

    keys: tuple[MailKey, ...]
    recipient: str
    line: str
    """"": there is nothing to tell."""


def mail_reports(connection: Connection, rows: Sequence[MailRow]) -> list[MailReport]:
    """The reports for which these mails wait, as far as their events have happened. `rows` are sorted by submission."""
    reports = []
    for submission, of_submission in groupby(rows, key=lambda row: row.submission):
        report = _report(connection, submission, list(of_submission))
        if report is not None:
            reports.append(report)
    return reports


def _report(connection: Connection, id_: SubmissionId, rows: Sequence[MailRow]) -> MailReport | None:
    events = {row.event: row.key for row in rows}
    submission = submissions.by_id(connection, id_)
    if submission is None:
        return MailReport(tuple(events.values()), rows[0].recipient, "")
    closed = submission.state == submissions.CLOSED
    if closed and not submission_ends.has_unfinished(connection, id_):
        wanted = MailEvent.END in events or _first_failure(connection, id_)
        line = f"{_named(submission)}: {_ends(connection, submission)}" if wanted else ""
        return MailReport(tuple(events.values()), rows[0].recipient, line)
    failure = _first_failure(connection, id_) if MailEvent.FAIL in events else ""
    if not failure:
        return None
    return MailReport((events[MailEvent.FAIL],), rows[0].recipient, f"{_named(submission)}: {failure}")


def _named(submission: SubmissionRow) -> str:
    name = f" ({_plain(submission.job_name)})" if submission.job_name else ""
    return f"submission {submission.id}{name}"


def _ends(connection: Connection, submission: SubmissionRow) -> str:
    states = job_counts.by_state(connection, JobSelection(submission=submission.id), EVERYBODY)
    ends = ", ".join(f"{number:,} {state}" for state, number in sorted(states.items()) if number)
    return f"{plural(submission.count, 'job')} ended: {ends}"


def _first_failure(connection: Connection, submission: int) -> str:
    failed = JobSelection(submission=submission, states=[JobState.FAILED])
    rows = listing.jobs(connection, failed, EVERYBODY, 0, 1)
    return f"job {rows[0].id} failed: {_plain(rows[0].reason)}" if rows else ""


def _plain(text: str) -> str:
    """A text of a user on one line of a mail."""
    return " ".join(printable(text).split())[:MOST_TEXT]
