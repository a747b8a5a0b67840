"""The duty of mail: tells users that their submissions have ended or have failed, as these have asked."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from pilotage.core.ids import SubmissionId
from pilotage.core.plurals import plural
from pilotage.outside.mail.smtp import Delivery, MailOutcome, OutgoingMail, send_mail
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.duties.duty import Duty
from pilotage.services.submission.mails import MailReport, mail_reports
from pilotage.store.tables import mails
from pilotage.store.tables.mails import MailKey, MailRow
from pilotage.store.writer.transaction import Transaction

log = logging.getLogger(__name__)

AT_ONCE = 500
"""Mails that a cycle looks at."""
LINES = 100
"""Submissions in one mail."""
SEND = "send"
TRIES = 10
RETRY_DELAY = 60.0
"""Seconds until the second try; each further one comes after twice as many."""
_FIRST = MailKey(SubmissionId(0), "")


class MailDuty(Duty):
    """Looks at the submissions with mail in turns. A mail is sent in a thread, by the server that took its rows.

    Rows are deleted before the mail is sent, and stored again only if it was surely not taken. So an event is told once
    at most, and not at all if the server dies in between. A mail that cannot be made stops no other one.
    """

    name = lease = "mail"
    every = 30.0
    """Seconds between two cycles. A recipient gets one mail in a cycle at most."""
    _after = _FIRST

    async def work(self) -> None:
        context = self._context
        if not context.pool.policy.mail.server:
            return
        now, after = context.clock(), self._after

        def look() -> tuple[list[MailRow], list[MailReport], bool]:
            connection = context.readers.connection()
            pending = mails.pending(connection, now, after, AT_ONCE)
            return pending, mail_reports(connection, pending), mails.any_wait(connection, now)

        pending, reports, later = await asyncio.to_thread(look)
        if later or len(pending) == AT_ONCE or after != _FIRST:
            self._rows.leave_out(SEND)
        self._after = pending[-1].key if len(pending) == AT_ONCE else _FIRST
        by_recipient: dict[str, list[MailReport]] = defaultdict(list)
        for report in reports:
            by_recipient[report.recipient].append(report)
        for recipient, of_recipient in by_recipient.items():
            if context.stop.is_set():
                return
            tell = partial(self._tell, recipient, of_recipient[:LINES])
            if await self._rows.alone(SEND, recipient, tell) is False:
                # The server of mail does not serve, so it is not asked for the others.
                return

    async def _tell(self, recipient: str, reports: Sequence[MailReport]) -> bool:
        """Send one mail. Returns whether the next one may be tried now."""
        context, policy = self._context, self._context.pool.policy.mail
        keys = [key for report in reports for key in report.keys]
        taken = await context.writer.acall(lambda tx: mails.take(tx.connection, keys))
        present = {row.submission for row in taken}
        shown = [report for report in reports if report.line and report.keys[0].submission in present]
        lines = [report.line for report in shown]
        if not lines:
            return True
        subject = lines[0] if len(lines) == 1 else plural(len(lines), "submission")
        mail = OutgoingMail(policy.sender, recipient, f"Pilotage: {subject}", "\n".join(lines) + "\n")
        send = partial(send_mail, policy.server, mail)
        try:
            delivery = await asyncio.get_running_loop().run_in_executor(
                DaemonThreads(self.name), lambda: context.pilots.outside.ask("mail", Delivery, send)
            )
        except Exception:
            # The mail could not be made. From its first byte on, `send_mail` tells every failure as an outcome.
            await context.writer.acall(lambda tx: _try_later(tx, taken, context.clock()))
            raise
        if delivery.reason:
            log.warning("mail to %s: %s: %s", recipient, delivery.outcome, delivery.reason)
        if delivery.outcome is not MailOutcome.LATER:
            return True
        await context.writer.acall(lambda tx: _try_later(tx, taken, context.clock()))
        return False


def _try_later(tx: Transaction, rows: Sequence[MailRow], now: float) -> None:
    """Store rows again whose mail was not taken, unless they have had all of their tries."""
    mails.add(
        tx.connection,
        [
            row._replace(tries=row.tries + 1, not_before=now + RETRY_DELAY * 2**row.tries)
            for row in rows
            if row.tries + 1 < TRIES
        ],
    )
