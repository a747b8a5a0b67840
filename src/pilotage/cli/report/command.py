"""`pilotage report`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.console import Column
from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import utc_period
from pilotage.core.errors import InvalidInput

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.report.figures import WorkReport

_SUBJECT = re.compile(r"(?:(submission|request):)?([1-9][0-9]{0,17})")


@connected
def report(
    session: Session,
    subject: Annotated[
        str, CommandArgument("A submission, 12 or submission:12, or a request, request:12", "[SUBJECT]")
    ] = "",
    month: Annotated[str, CommandOption("A month (UTC) instead", "YYYY-MM")] = "",
    html: Annotated[str, CommandOption("Write one HTML file, which needs no server", "FILE")] = "",
) -> None:
    """Report on a submission, a request or a month, for a ticket or a paper.

    Jobs by state, failures by cause with their last line, attempts by site and CE, core-seconds, and versions.
    The HTML file also has a timeline of the attempts. It has no script and loads nothing. Users see their own jobs.
    """
    now = time.time()
    if bool(subject) == bool(month):
        raise InvalidInput(
            "give either a submission or request, or --month", hint="12, request:12, --month 2026-11"
        )
    with session.client() as client:
        shown = _read_month(client, month, now) if month else _read_subject(client, subject, now)
    session.screen.json(shown.document)
    if html:
        from pilotage.report.page import page_of

        text = page_of(shown)
        try:
            Path(html).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as trouble:
            reason = getattr(trouble, "strerror", None) or trouble
            raise InvalidInput(f"cannot write {html}: {reason}") from trouble
        session.screen.note(f"{html} is written: {len(text.encode()):,} bytes")
    elif not session.as_json:
        _print(session, shown)


def _read_subject(client: Client, subject: str, now: float) -> WorkReport:
    from pilotage.cli.report.reading import answered
    from pilotage.report.readings import read_request, read_submission

    match = _SUBJECT.fullmatch(subject)
    if match is None:
        raise InvalidInput(
            f"{subject!r} is no submission or request", hint="12 is a submission, request:12 a request"
        )
    read = read_request if match[1] == "request" else read_submission
    return answered(client, read(int(match[2]), now))


def _read_month(client: Client, month: str, now: float) -> WorkReport:
    from pilotage.cli.report.reading import read_month

    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}", month):
        raise InvalidInput(f"{month!r} is not a month", hint="write it as 2026-11")
    begin, end = utc_period(month)
    if begin > now:
        present = datetime.fromtimestamp(now, UTC)
        raise InvalidInput(f"{month} has not begun", hint=f"the present month is {present:%Y-%m} (UTC)")
    return read_month(client, month, begin, end, now)


def _print(session: Session, shown: WorkReport) -> None:
    screen = session.screen
    screen.line(shown.title)
    screen.facts(shown.facts)
    if shown.causes:
        screen.line(f"failures by cause: {shown.causes_note}".rstrip(": "))
    for cause in shown.causes:
        screen.line(f"  {cause.count:,} x {cause.cause}, such as {cause.example}")
        if cause.last_line:
            screen.line(f"      {cause.last_line}")
    for table in shown.tables:
        screen.line()
        screen.line(table.title)
        columns = [Column(name, right=place >= table.texts) for place, name in enumerate(table.columns)]
        screen.table(columns, table.rows)
