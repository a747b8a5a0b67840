"""`pilotage accounting export`."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Annotated, TextIO
from urllib.parse import urlsplit

from pilotage import wire
from pilotage.cli.csv_cells import csv_cell
from pilotage.cli.parser import CommandOption
from pilotage.cli.session import Session, connected
from pilotage.cli.time_format import utc_period
from pilotage.core.errors import InvalidInput
from pilotage.core.plurals import plural

if TYPE_CHECKING:
    from pilotage.client import Client
    from pilotage.wire.shares import AccountRow


class Format(StrEnum):
    CSV = "csv"
    JSON = "json"
    APEL = "apel"
    AUDITOR = "auditor"


@connected
def export(
    session: Session,
    format: Annotated[
        Format, CommandOption("Output format: sums as csv or json, records of apel or auditor")
    ] = Format.CSV,
    month: Annotated[str, CommandOption("Only this month (UTC)", "YYYY-MM")] = "",
    begin: Annotated[
        str, CommandOption("First month or day (UTC): 2026-11, 2026-11-05", "DATE", names="--from")
    ] = "",
    end: Annotated[str, CommandOption("Last month or day (UTC), included", "DATE", names="--until")] = "",
    benchmark: Annotated[
        str,
        CommandOption(
            "Score of a reference core, for apel (required) and auditor: hepscore23=15.3", "NAME=SCORE"
        ),
    ] = "",
    file: Annotated[
        str, CommandOption("Write to FILE instead of standard output", "FILE", names="--output -o")
    ] = "",
) -> None:
    """Export usage by month, site, group and owner: wall and CPU time, also normalised to reference cores.

    An attempt counts in the month in which it ended; failed attempts count too. Times are in seconds.
    apel: a message of normalised summaries. auditor: a JSON list with a record for each attempt.
    """
    since, until = _period(month, begin, end)
    if session.as_json:
        format = Format.JSON
    if format is Format.APEL and not benchmark:
        raise InvalidInput("apel needs the score of a reference core", hint="--benchmark hepscore23=15.3")
    with session.client() as client:
        if format in (Format.APEL, Format.AUDITOR):
            lines = _records(client, format, since, until, benchmark)
            counted = plural(_write(file, lines), "line")
        else:
            rows = client.accounting(since, until)
            counted = plural(len(rows), "row")
            _write(file, [_as_json(rows)] if format is Format.JSON else _as_csv(rows))
    if file:
        session.screen.note(f"{file} has {counted}")


def _period(month: str, begin: str, end: str) -> tuple[float | None, float | None]:
    if month:
        if begin or end:
            raise InvalidInput("--month goes with neither --from nor --until")
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}", month):
            raise InvalidInput(f"{month!r} is not a month", hint="write it as 2026-11")
        begin = end = month
    since = utc_period(begin)[0] if begin else None
    until = utc_period(end)[1] if end else None
    if since is not None and until is not None and since >= until:
        raise InvalidInput(
            f"the period from {begin} until {end} is empty", hint="--from must be before --until"
        )
    return since, until


def _records(
    client: Client, format: Format, since: float | None, until: float | None, benchmark: str
) -> Iterator[str]:
    """The lines of the records, each with its end."""
    from pilotage.cli.accounting_records import apel_message, auditor_records, parse_benchmark

    scored = parse_benchmark(benchmark) if benchmark else None
    attempts = client.accounted_attempts(since or 0.0, wire.limits.MAX_INSTANT if until is None else until)
    if format is Format.AUDITOR:
        lines = auditor_records(attempts, client.call(wire.identity.WHOAMI).instance, scored)
    else:
        assert scored is not None
        lines = apel_message(attempts, scored, urlsplit(client.url).hostname or "localhost")
    return (f"{line}\n" for line in lines)


def _write(file: str, texts: Iterator[str] | Sequence[str]) -> int:
    """Write texts to a file or, without a name, to standard output; returns their number."""
    texts = iter(texts)
    first = next(texts, "")  # An error of the server leaves no empty file.
    count = 0
    with _opened(file) as out:
        for text in chain([first], texts):
            out.write(text)
            count += 1
    return count


@contextmanager
def _opened(file: str) -> Iterator[TextIO]:
    if not file:
        yield sys.stdout
        return
    try:
        with open(file, "w", encoding="utf-8") as out:
            yield out
    except (OSError, ValueError) as trouble:
        reason = getattr(trouble, "strerror", None) or trouble
        raise InvalidInput(f"cannot write {file}: {reason}") from trouble


def _as_json(rows: Sequence[AccountRow]) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n"


def _as_csv(rows: Sequence[AccountRow]) -> Iterator[str]:
    names = [column.name for column in fields(wire.shares.AccountRow)]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        values = asdict(row)
        writer.writerow({name: csv_cell(values[name]) for name in names})
    yield buffer.getvalue()
