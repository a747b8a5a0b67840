"""Mail about submissions, on both stores: the events that have happened, and rows that one server takes."""

from __future__ import annotations

import pytest

from pilotage.core.errors import InvalidInput
from pilotage.core.ids import SubmissionId
from pilotage.core.jobs.parsers import parse_yaml_mapping
from pilotage.core.policy import Policy
from pilotage.core.policy.model import Mail
from pilotage.services.submission.mails import MailReport, _recipients, mail_reports, mail_warnings
from pilotage.store.tables import mails
from pilotage.store.tables.mails import MailKey, MailRow
from tests.unit.services.bench import Bench
from tests.unit.services.test_dependent_jobs import FAILS

ADA = "ada@example.org"
FIRST = MailKey(SubmissionId(0), "")


def row(submission: int, event: str, not_before: float = 0.0) -> MailRow:
    return MailRow(SubmissionId(submission), event, ADA, 0, not_before)


def reports(bench: Bench) -> list[MailReport]:
    return mail_reports(bench.connection, mails.pending(bench.connection, bench.now, FIRST, 10))


def test_of_several_addresses_the_allowed_ones_get_mail() -> None:
    policy = Policy(
        groups={}, users={}, mail=Mail(server="mail", sender="pool@example.org", recipients=("@example.org",))
    )
    description = parse_yaml_mapping(
        {"executable": "true", "mail_type": ["end"], "mail_user": "bob@example.org, eve@elsewhere.org"}
    ).description
    assert _recipients(policy, description, "ada") == (["bob@example.org"], ["eve@elsewhere.org"])
    [warning] = mail_warnings(policy, description, "ada")
    assert warning == "no mail will be sent to eve@elsewhere.org: the policy allows @example.org"
    with pytest.raises(InvalidInput, match="'no address' is not an address of mail"):
        parse_yaml_mapping({"executable": "true", "mail_user": "bob@example.org,no address"})


def test_reports_follow_the_jobs(bench: Bench) -> None:
    bench.submit(2)
    bench.do(lambda tx: mails.add(tx.connection, [row(1, "end"), row(1, "fail"), row(99, "end")]))
    gone = MailReport((MailKey(SubmissionId(99), "end"),), ADA, "")
    assert reports(bench) == [gone]
    pilot = bench.pilot()
    [offer] = pilot.take()
    pilot.finish(offer, **FAILS)
    failed = MailReport(
        (MailKey(SubmissionId(1), "fail"),), ADA, f"submission 1: job {offer.job} failed: exit code 3"
    )
    assert reports(bench) == [failed, gone]
    [other] = pilot.take()
    pilot.finish(other)
    [ended, _] = reports(bench)
    assert ended.line == "submission 1: 2 jobs ended: 1 Done, 1 Failed"
    assert [key.event for key in ended.keys] == ["end", "fail"]


def test_pages_of_pending_mail_and_rows_that_are_taken_once(bench: Bench) -> None:
    rows = [row(1, "end"), row(1, "fail"), row(2, "end"), row(3, "end", bench.now + 60)]
    bench.do(lambda tx: mails.add(tx.connection, rows))
    page = mails.pending(bench.connection, bench.now, FIRST, 2)
    assert page == rows[:2]
    assert mails.pending(bench.connection, bench.now, page[-1].key, 2) == [rows[2]]
    assert mails.pending(bench.connection, bench.now + 60, page[-1].key, 2) == rows[2:]
    keys = [one.key for one in rows[:2]]
    assert bench.do(lambda tx: mails.take(tx.connection, keys)) == rows[:2]
    assert bench.do(lambda tx: mails.take(tx.connection, keys)) == []
    bench.do(lambda tx: mails.delete_of_submissions(tx.connection, [2]))
    assert mails.pending(bench.connection, bench.now + 60, FIRST, 9) == [rows[3]]
