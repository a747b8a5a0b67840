"""The duty of mail: who is told what, once, and what happens while the server of mail does not serve."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.core.jobs.description import JobDescription
from pilotage.server.duties import mail
from pilotage.services.submission.mails import mail_warnings
from pilotage.store.tables import mails
from tests.doubles.smtp_server import SmtpDouble, running_smtp
from tests.unit.server.duty_pool import Pool
from tests.unit.services.bench import POLICY, Bench
from tests.unit.services.test_dependent_jobs import FAILS
from tests.unit.services.workqueue.queue_bench import QueueBench

BOTH = ("end", "fail")
MAIL = """
[mail]
server = "{server}"
sender = "pool@example.org"
recipients = ["@example.org"]
"""


@pytest.fixture
def smtp() -> Iterator[SmtpDouble]:
    with running_smtp() as server:
        yield server


@pytest.fixture
def bench(tmp_path: Path, smtp: SmtpDouble) -> Iterator[Bench]:
    bench = Bench(tmp_path, POLICY + MAIL.format(server=smtp.address))
    yield bench
    bench.end()


@pytest.fixture
def duty(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> mail.MailDuty:
    return mail.MailDuty(Pool(QueueBench(bench), monkeypatch).context)


def cycle(duty: mail.MailDuty) -> None:
    asyncio.run(duty.cycle())


def submit(bench: Bench, count: int = 1, **fields: Any) -> list[int]:
    return bench.submit(count, **{"mail_type": BOTH, "mail_user": "ada@example.org", **fields})


def run(bench: Bench, count: int, **content: Any) -> None:
    pilot = bench.pilot()
    for _ in range(count):
        [offer] = pilot.take()
        pilot.finish(offer, **content)


def subjects(smtp: SmtpDouble) -> list[str]:
    return [str(message["Subject"]) for message in smtp.taken]


def left(bench: Bench) -> list[tuple[int, str]]:
    return [
        tuple(row) for row in bench.connection.execute("SELECT submission_id, event FROM mails ORDER BY 1, 2")
    ]


def test_the_end_is_told_once(bench: Bench, duty: mail.MailDuty, smtp: SmtpDouble) -> None:
    jobs = submit(bench, 2, job_name="scan\r\nBcc: eve@example.org")
    cycle(duty)
    run(bench, 1)
    cycle(duty)
    assert smtp.taken == []
    run(bench, 1)
    cycle(duty)
    assert subjects(smtp) == ["Pilotage: submission 1 (scan Bcc: eve@example.org): 2 jobs ended: 2 Done"]
    assert smtp.taken[0]["To"] == "ada@example.org"
    assert smtp.taken[0]["Bcc"] is None
    assert left(bench) == []
    cycle(duty)
    assert len(smtp.taken) == 1
    assert jobs == [1, 2]


def test_no_name_of_a_job_stops_the_mails_of_others(
    bench: Bench, duty: mail.MailDuty, smtp: SmtpDouble
) -> None:
    odd = "".join(map(chr, (*range(32), *range(127, 161), 0x2028, 0x2029, 0x202E, 0xFEFF, 0xE000)))
    for number, letter in enumerate(odd):
        submit(bench, job_name=f"a{letter}b", mail_user=f"user{number}@example.org")
    run(bench, len(odd))
    cycle(duty)
    assert len(smtp.taken) == len(odd)
    assert all("(a b)" in subject for subject in subjects(smtp))
    assert left(bench) == []


def test_the_first_failure_is_told_once_and_then_the_end(
    bench: Bench, duty: mail.MailDuty, smtp: SmtpDouble
) -> None:
    submit(bench, 3)
    run(bench, 1, **FAILS)
    cycle(duty)
    run(bench, 1, **FAILS)
    cycle(duty)
    assert len(smtp.taken) == 1
    assert "failed: exit code 3" in subjects(smtp)[0]
    run(bench, 1)
    cycle(duty)
    assert subjects(smtp)[1:] == ["Pilotage: submission 1: 3 jobs ended: 1 Done, 2 Failed"]


def test_a_success_is_no_mail_for_who_asked_for_failures(
    bench: Bench, duty: mail.MailDuty, smtp: SmtpDouble
) -> None:
    submit(bench, mail_type=("fail",))
    run(bench, 1)
    cycle(duty)
    assert (smtp.taken, left(bench)) == ([], [])


def test_several_submissions_share_a_mail(bench: Bench, duty: mail.MailDuty, smtp: SmtpDouble) -> None:
    for _ in range(3):
        submit(bench)
    run(bench, 3)
    cycle(duty)
    assert subjects(smtp) == ["Pilotage: 3 submissions"]
    assert smtp.taken[0].get_payload().count("1 job ended: 1 Done") == 3


def test_a_refusal_for_now_is_tried_later_and_not_for_ever(
    bench: Bench, duty: mail.MailDuty, smtp: SmtpDouble
) -> None:
    submit(bench, mail_type=("end",))
    run(bench, 1)
    smtp.answers = {"RCPT": "451 later"}
    cycle(duty)
    cycle(duty)
    assert smtp.connections == 1
    assert left(bench) == [(1, "end")]
    for _ in range(mail.TRIES + 1):
        bench.now += 10 * 86400
        cycle(duty)
    assert smtp.connections == mail.TRIES
    assert left(bench) == []


@pytest.mark.parametrize("answers", [{"END": ""}, {"RCPT": "550 no"}])
def test_mail_that_may_have_been_taken_or_never_will_is_not_tried_again(
    answers: dict[str, str], bench: Bench, duty: mail.MailDuty, smtp: SmtpDouble
) -> None:
    submit(bench)
    run(bench, 1)
    smtp.answers = answers
    cycle(duty)
    smtp.answers = {}
    bench.now += 86400
    cycle(duty)
    assert (smtp.taken, left(bench)) == ([], [])


def test_two_servers_send_one_mail(bench: Bench, smtp: SmtpDouble) -> None:
    submit(bench, mail_type=("end",))
    [row] = mails.pending(bench.connection, bench.now, mails.MailKey(0, ""), 10)  # type: ignore[arg-type]
    assert bench.do(lambda tx: mails.take(tx.connection, [row.key])) == [row]
    assert bench.do(lambda tx: mails.take(tx.connection, [row.key])) == []
    assert smtp.connections == 0


def test_forbidden_and_unknown_addresses_are_warnings(bench: Bench) -> None:
    policy = bench.pool.policy
    for address, words in (
        ("eve@example.com", "no mail will be sent to eve@example.com: the policy allows @example.org"),
        ("", "no mail will be sent: give mail_user"),
    ):
        described = JobDescription("true", mail_type=BOTH, mail_user=address)
        [warning] = mail_warnings(policy, described, "alice")
        assert words in warning
        submit(bench, mail_user=address)
    assert left(bench) == []
    assert not list(mail_warnings(policy, JobDescription("true"), "alice"))
