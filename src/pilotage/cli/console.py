"""Where output goes: JSON for programs, plain lines for pipes, tables and colours for people."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from pilotage.wire.jobs import Counts

STATE_COLOURS = {
    "Done": "green",
    "Failed": "bold red",
    "Killed": "red",
    "Superseded": "bright_black",
    "Stalled": "yellow",
    "Rescheduled": "yellow",
    "Unknown": "yellow",
    "Aborted": "red",
    "Running": "bright_blue",
    "Completing": "bright_blue",
    "Completed": "bright_blue",
    "Matched": "cyan",
    "Deleted": "bright_black",
}

Advance = Callable[[int, int, str], None]
"""Called with (done, total, text)."""

PLAIN_PERIOD = 2.0
"""Seconds between two plain lines of one progress. The last line is always printed."""


@dataclass(frozen=True)
class Column:
    name: str
    right: bool = False
    state: bool = False
    """Its words are states, coloured so."""


class CommandOutput:
    """One command's output. With `as_json` only `json` writes to standard output, notes go to standard error."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.terminal = sys.stdout.isatty() and not as_json
        self.moving = sys.stderr.isatty() and not as_json and os.environ.get("TERM") != "dumb"
        """Whether progress bars may be drawn (on standard error)."""

    def json(self, value: object) -> None:
        """The one document of --json: wire dataclasses, dictionaries, lists."""
        import msgspec

        sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")

    def line(self, text: str = "") -> None:
        """A line of the result: standard output, unless that is for JSON."""
        if not self.as_json:
            print(printable(text))

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

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(column.name, justify="right" if column.right else "left", overflow="fold")
        for row in rows:
            cells = [printable(cell) for cell in row]
            table.add_row(
                *(
                    Text(cell, style=STATE_COLOURS.get(cell, "") if column.state else "")
                    for column, cell in zip(columns, cells, strict=True)
                )
            )
        self.console().print(table)

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
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def printable(value: Any) -> str:
    """One line without control characters: names and messages come from other people's jobs."""
    if value is None:
        return ""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


def format_counts(counts: Counts) -> str:
    """Such as "12 Done, 3 Running", in the order of a job's life."""
    from pilotage.core.jobs.states import JobState

    order = [str(state) for state in JobState]
    known = sorted(
        counts.states.items(), key=lambda count: order.index(count[0]) if count[0] in order else 99
    )
    return ", ".join(f"{number:,} {state}" for state, number in known if number) or "no jobs"
