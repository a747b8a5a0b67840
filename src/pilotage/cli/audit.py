"""`pilotage audit`."""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated

from pilotage import wire
from pilotage.cli.console import Column
from pilotage.cli.csv_cells import csv_cell
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import LimitOption, Session, connected
from pilotage.cli.time_format import parse_instant

if TYPE_CHECKING:
    from pilotage.wire.audit import AuditEntry

DEFAULT_ROWS = 50


@connected
def audit(
    session: Session,
    since: Annotated[str, CommandOption("Changes since then: 2d (ago) or 2026-11-05", "WHEN")] = "",
    user: Annotated[str, CommandOption("Changes by this user", "USER")] = "",
    as_csv: Annotated[bool, CommandOption("Print all columns as CSV", names="--csv")] = False,
    limit: LimitOption = None,
) -> None:
    """List the changes that people made, newest first: by whom, from where, before and after (administrators).

    Changes through the API that are not work of one's own: of the policy, tokens, bans, sites, CEs and pilots,
    and of jobs, submissions, requests and data sets of others.
    """
    begin = parse_instant(since, time.time()) if since else 0.0
    with session.client() as client:
        rows = client.audit(since=max(0.0, begin), user=user)
        if as_csv and not session.as_json:
            _print_csv(list(rows) if limit is None else session.screen.first_rows(rows, limit, DEFAULT_ROWS))
            return
        entries = session.screen.first_rows(rows, limit, DEFAULT_ROWS)
    session.screen.json({"entries": entries})
    columns = [
        Column("at"),
        Column("user"),
        Column("address", rank=2),
        Column("call", rank=1),
        *(Column(name, text=True) for name in ("target", "before", "after")),
        Column("reason", text=True, rank=1),
    ]
    session.screen.table(columns, (_cells(session, row) for row in entries))


def _cells(session: Session, row: AuditEntry) -> tuple[object, ...]:
    at = session.screen.instant(row.at)
    return at, row.user, row.address, row.call, row.target, row.before, row.after, row.reason


def _print_csv(entries: list[AuditEntry]) -> None:
    names = [column.name for column in fields(wire.audit.AuditEntry)]
    writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    writer.writeheader()
    for row in entries:
        writer.writerow({name: csv_cell(value) for name, value in asdict(row).items()})
