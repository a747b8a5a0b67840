"""A line in the terminal: how many calls have ended."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class CallProgress:
    """Counts the ends of futures; draws only on a terminal."""

    def __init__(self, title: str) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task(title, total=0)
        self._total = 0
        self._bar.start()

    def add(self, futures: Iterable[Future[Any]]) -> None:
        new = list(futures)
        self._total += len(new)
        self._bar.update(self._task, total=self._total)
        for future in new:
            future.add_done_callback(lambda _: self._bar.advance(self._task))

    def close(self) -> None:
        self._bar.stop()
