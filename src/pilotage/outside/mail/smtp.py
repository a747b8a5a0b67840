"""Sends mail by SMTP to a server that takes it without a password, as the one of a site does.

The outcome tells whether another try is safe. A mail is never tried again if the server may have taken it.
"""

from __future__ import annotations

import contextlib
import smtplib
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from enum import StrEnum

from pilotage.core.mail import mail_addresses
from pilotage.outside.one_deadline import one_deadline

TIMEOUT = 10.0
"""Seconds for each answer of the server."""
WHOLE = 60.0
"""Seconds for all answers to one mail."""
PORT = 25
READY = 220
_POLICY = SMTP.clone(max_line_length=900)
"""A subject is one line: folded ones get a blank more in some programs. RFC 5321 allows 998 bytes."""


class MailOutcome(StrEnum):
    SENT = "sent"
    LATER = "later"
    """It was not taken, and may be taken later."""
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """The connection broke while it was being sent, so it may have been taken."""


@dataclass(frozen=True, slots=True)
class Delivery:
    outcome: MailOutcome
    reason: str = ""
    """Why it was not taken, or why some recipients of a mail that was sent will not get it."""


@dataclass(frozen=True, slots=True)
class OutgoingMail:
    sender: str
    recipient: str
    """One address, or several with commas."""
    subject: str
    text: str


def server_address(text: str) -> tuple[str, int]:
    """The host and port of `HOST` or `HOST:PORT`."""
    host, colon, port = text.rpartition(":")
    return (host, int(port)) if colon else (text, PORT)


def send_mail(server: str, mail: OutgoingMail) -> Delivery:
    """Send one mail. It blocks for `WHOLE` seconds and a little. Raises an error only if no server was asked."""
    message = EmailMessage(_POLICY)
    message["From"], message["To"], message["Subject"] = mail.sender, mail.recipient, mail.subject
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    content = message.as_bytes()
    host, port = server_address(server)
    smtp, taken = smtplib.SMTP(timeout=TIMEOUT), False
    refused: dict[str, tuple[int, bytes]] = {}
    try:
        with one_deadline(WHOLE) as deadline:
            deadline.watch(lambda: smtp.sock)
            code, words = smtp.connect(host, port)
            if code != READY:
                raise OSError(f"it answers {code} {words.decode(errors='replace')[:200]}")
            taken = True
            refused = smtp.sendmail(mail.sender, mail_addresses(mail.recipient), content)
    except smtplib.SMTPRecipientsRefused as error:
        return _refused(min(code for code, _ in error.recipients.values()), str(error))
    except smtplib.SMTPResponseException as error:
        return _refused(error.smtp_code, str(error))
    except Exception as error:
        return Delivery(MailOutcome.UNKNOWN if taken else MailOutcome.LATER, f"{server}: {error}")
    else:
        return Delivery(MailOutcome.SENT, str(refused) if refused else "")
    finally:
        with contextlib.suppress(Exception), one_deadline(TIMEOUT) as deadline:
            deadline.watch(lambda: smtp.sock)
            smtp.quit()
        smtp.close()


def _refused(code: int, reason: str) -> Delivery:
    """SMTP uses codes from 400 to 499 for refusals that may pass, and higher codes for the others."""
    return Delivery(MailOutcome.LATER if 400 <= code < 500 else MailOutcome.REFUSED, reason)
