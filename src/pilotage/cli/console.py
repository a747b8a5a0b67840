"""Where output goes: JSON for programs, plain lines for pipes, tables and colours for people."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

from pilotage.cli.time_format import format_instant
from pilotage.core.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

    from pilotage.wire.jobs import Counts

Row = TypeVar("Row")

STATE_COLOURS = {
    "Done": "green",
    "Failed": "bold red",
    "Killed": "red",
    "Held": "yellow",
    "Skipped": "yellow",
    "Superseded": "bright_black",
    "Stalled": "yellow",
    "Rescheduled": "yellow",
    "Unknown": "yellow",
    "Aborted": "red",
    "Running": "bright_blue",
    "Completing": "bright_blue",
    "Completed": "bright_blue",
    "Matched": "cyan",
    "Taken": "cyan",
    "Deleted": "bright_black",
}

Advance = Callable[[int, int, str], None]
"""Called with (done, total, text)."""

COLUMN_GAP = 2
"""Characters between two columns of a table."""
TEXT_WIDTH = 20

PLAIN_PERIOD = 2.0
"""Seconds between two plain lines of one progress. The last line is always printed."""


@dataclass(frozen=True)
class Column:
    name: str
    right: bool = False
    state: bool = False
    """Its words are states, coloured so."""
    rank: int = 0
    """On a narrow terminal columns of the highest rank are left out first. Columns of rank 0 stay."""
    text: bool = False
    """Free text, folded over several lines where there is little room."""
    least: int = TEXT_WIDTH
    """Characters of a folded column at least."""

    def width(self, cells: Iterable[str]) -> int:
        """The characters that the column needs for these cells."""
        natural = max(map(len, (self.name, *cells)))
        return min(natural, self.least) if self.text else natural


Columns = tuple[tuple[Column, Callable[[Row], object]], ...]
"""The columns of a table, each with the function that makes its cell of a row."""


class CommandOutput:
    """One command's output. With `as_json` only `json` writes to standard output, notes go to standard error."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.terminal = sys.stdout.isatty() and not as_json
        self.moving = sys.stderr.isatty() and not as_json and os.environ.get("TERM") != "dumb"
        """Whether progress bars may be drawn (on standard error)."""

    def json(self, value: object) -> None:
        """The one document of --json: wire dataclasses, dictionaries, lists. Without --json nothing is written."""
        if not self.as_json:
            return
        import msgspec

        sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")

    def line(self, text: str = "") -> None:
        """A line of the result: standard output, unless that is for JSON."""
        if not self.as_json:
            print(printable(text))

    def instant(self, at: float | None) -> str:
        """Local time and how long ago it is on a terminal, else ISO 8601 with its offset; "" for None."""
        return format_instant(at, time.time(), exact=not self.terminal)

    def note(self, text: str) -> None:
        """A word beside the result: standard error."""
        sys.stdout.flush()  # in one order with the result, also where both go to one file
        print(printable(text), file=sys.stderr)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """A table for people; one line of tab-separated cells each, below their names, for pipes."""
        if self.as_json:
            return
        if not self.terminal:
            print("\t".join(column.name.replace(" ", "_") for column in columns))
            for row in rows:
                print("\t".join(printable(cell) or "-" for cell in row))
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        console = self.console()
        lines = [[printable(cell) for cell in row] for row in rows]
        shown = fitting_columns(columns, lines, console.width)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for place in shown:
            column = columns[place]
            justify: Literal["left", "right"] = "right" if column.right else "left"
            table.add_column(column.name, justify=justify, overflow="fold", min_width=column.width(()))
        for line in lines:
            cells = [(columns[place], line[place]) for place in shown]
            table.add_row(
                *(
                    Text(cell, style=STATE_COLOURS.get(cell, "") if column.state else "")
                    for column, cell in cells
                )
            )
        console.print(table)
        left_out = [column.name for place, column in enumerate(columns) if place not in shown]
        if any(line[place] for line in lines for place in range(len(columns)) if place not in shown):
            self.note(f"no room for {', '.join(left_out)}: a wider terminal or --json shows them")

    def listing(self, columns: Columns[Row], rows: Iterable[Row]) -> None:
        """A table of these rows."""
        cells = ([cell(row) for _, cell in columns] for row in rows)
        self.table([column for column, _ in columns], cells)

    def row_limit(self, limit: int | None, default: int) -> int:
        """How many rows a list may have; 0: all. Without a limit: `default` on a terminal, elsewhere all."""
        if limit is not None:
            return limit
        return default if self.terminal else 0

    def first_rows(self, rows: Iterable[Row], limit: int | None, default: int) -> list[Row]:
        """The rows within `row_limit`. Tells on standard error if the default leaves rows out."""
        most = self.row_limit(limit, default)
        listed = list(islice(rows, most + 1 if most else None))
        if most and limit is None and len(listed) > most:
            self.note(f"only the first {most:,} are shown: --limit 0 shows all")
        return listed[:most] if most else listed

    def facts(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Name and value, a line each; empty values are left out."""
        shown = [(name, printable(value)) for name, value in pairs if printable(value)]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            if not self.as_json:
                print(f"{name:<{width}}  {value}" if self.terminal else f"{name}\t{value}")

    def console(self, *, stderr: bool = False) -> Console:
        from rich.console import Console

        return Console(stderr=stderr, highlight=False, markup=False, emoji=False)

    @contextmanager
    def progress(self, what: str) -> Iterator[Advance]:
        """A bar on a terminal; elsewhere plain lines on standard error, at most one each `PLAIN_PERIOD` seconds."""
        if not self.moving:
            yield self._plain_progress(what)
            return
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console(stderr=True)) as bar:
            row = bar.add_task(what, total=None, text="")

            def advance(done: int, total: int, text: str) -> None:
                bar.update(row, completed=done, total=total or None, text=text)

            yield advance

    def _plain_progress(self, what: str) -> Advance:
        shown, shown_at = "", -PLAIN_PERIOD

        def advance(done: int, total: int, text: str) -> None:
            nonlocal shown, shown_at
            now = time.monotonic()
            is_due = now - shown_at >= PLAIN_PERIOD or bool(total and done >= total)
            if text and not self.as_json and text != shown and is_due:
                shown, shown_at = text, now
                self.note(f"{what}: {text}")

        return advance

    def ask(self, question: str) -> bool:
        """Yes or no from a person; without a terminal the answer is no."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        sys.stderr.write(printable(f"{question} [y/N] "))
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def fitting_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The places of the columns that fit into `width` characters: the others are left out by rank.

    Columns without a value in any row are left out before columns of the same or a lower rank.
    """
    widths = [column.width(row[place] for row in rows) for place, column in enumerate(columns)]
    empty = [not any(row[place] for row in rows) for place in range(len(columns))]
    shown = list(range(len(columns)))
    while sum(widths[place] + COLUMN_GAP for place in shown) > width:
        optional = [place for place in shown if columns[place].rank]
        if not optional:
            break
        shown.remove(max(optional, key=lambda place: (empty[place], columns[place].rank, place)))
    return shown


def format_counts(counts: Counts) -> str:
    """Such as "12 Done, 3 Running", in the order of a job's life."""
    from pilotage.core.jobs.states import JobState

    order = [str(state) for state in JobState]
    known = sorted(
        counts.states.items(), key=lambda count: order.index(count[0]) if count[0] in order else 99
    )
    return ", ".join(f"{number:,} {state}" for state, number in known if number) or "no jobs"
