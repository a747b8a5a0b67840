"""Mail by SMTP: what counts as sent, and what may be tried again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilotage.outside.mail.smtp import Delivery, MailOutcome, OutgoingMail, send_mail, server_address
from tests.doubles.smtp_server import running_smtp
from tests.ports import free_port

MAIL = OutgoingMail(
    "pool@example.org", "ada@example.org", "Pilotage: submission 3 (größer) ended", "1 Done\n"
)


def test_a_mail_arrives_with_its_headers() -> None:
    with running_smtp() as server:
        assert send_mail(server.address, MAIL).outcome is MailOutcome.SENT
        [mail] = server.taken
    assert (mail["From"], mail["To"], mail["Auto-Submitted"]) == (
        MAIL.sender,
        MAIL.recipient,
        "auto-generated",
    )
    assert mail.get_payload(decode=True).decode().strip() == "1 Done"


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ({"RCPT": "550 no such user"}, MailOutcome.REFUSED),
        ({"RCPT": "451 later"}, MailOutcome.LATER),
        ({"MAIL": "552 no"}, MailOutcome.REFUSED),
        ({"DATA": "421 busy"}, MailOutcome.LATER),
        ({"RCPT": ""}, MailOutcome.UNKNOWN),
        ({"END": ""}, MailOutcome.UNKNOWN),
        ({"QUIT": ""}, MailOutcome.SENT),
    ],
)
def test_only_what_was_surely_not_taken_may_be_tried_again(
    answers: dict[str, str], outcome: MailOutcome
) -> None:
    with running_smtp() as server:
        server.answers = answers
        assert send_mail(server.address, MAIL).outcome is outcome


def test_a_mail_goes_to_each_of_several_addresses() -> None:
    several = replace(MAIL, recipient="ada@example.org,bob@example.org")
    with running_smtp() as server:
        assert send_mail(server.address, several) == Delivery(MailOutcome.SENT)
        [mail] = server.taken
        server.answers = {"RCPT": "451 later"}
        assert send_mail(server.address, several).outcome is MailOutcome.LATER
    assert mail["To"] == "ada@example.org, bob@example.org"


def test_a_server_that_is_down_is_asked_later() -> None:
    assert send_mail(f"127.0.0.1:{free_port()}", MAIL).outcome is MailOutcome.LATER


def test_a_server_has_a_port() -> None:
    assert server_address("mail.example.org") == ("mail.example.org", 25)
    assert server_address("mail:587") == ("mail", 587)
