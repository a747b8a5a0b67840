"""Tells how long a server's event loop was held: processor time of its thread between two of its turns.

`Beats` lets the loop call back every few milliseconds, and compares the processor time of its thread. So neither a
loaded machine nor a wait counts. A second thread looks at the stack meanwhile, so that the report names the code.

This file, run as a program, is `pilotage` with the guard. Each hold is a line of JSON in $PILOTAGE_LOOP_HOLDS.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import uvloop

from pilotage.server.duties.duty import Duty

TOLD = 0.015
"""Seconds: shorter holds are not written."""
BEAT = 0.002
SAMPLE = 0.005
FRAMES = 12
PAUSE = 3.0
"""Seconds between two cycles of a duty, at most."""


class Hold(NamedTuple):
    """A time in which the loop served nobody."""

    seconds: float
    stack: str
    """The most frequent stack of its samples."""


class Beats:
    """Measures one loop and writes its holds to a file."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: Path) -> None:
        self._loop = loop
        self._file = file
        self._thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread)
        self._last = time.clock_gettime(self._clock)
        self._samples: deque[str] = deque()
        threading.Thread(target=self._sample, daemon=True).start()
        self._beat()

    def _beat(self) -> None:
        held = time.clock_gettime(self._clock) - self._last
        if held > TOLD:
            [(stack, _)] = Counter(self._taken()).most_common(1) or [("", 0)]
            with self._file.open("a") as file:
                file.write(json.dumps([held, stack]) + "\n")
        self._samples.clear()
        self._last = time.clock_gettime(self._clock)
        self._loop.call_later(BEAT, self._beat)

    def _taken(self) -> Iterator[str]:
        """The samples, each once. The other thread appends meanwhile, so nothing iterates over them."""
        with contextlib.suppress(IndexError):
            while True:
                yield self._samples.popleft()

    def _sample(self) -> None:
        while True:
            time.sleep(SAMPLE)
            if time.clock_gettime(self._clock) - self._last > SAMPLE:
                frame = sys._current_frames().get(self._thread)
                self._samples.append(_text(frame))


def _text(frame: FrameType | None) -> str:
    frames = traceback.extract_stack(frame, FRAMES) if frame is not None else []
    return "\n".join(f"{Path(entry.filename).name}:{entry.lineno} {entry.name}" for entry in frames)


def install(file: Path) -> None:
    """Measure every loop that this process makes from now on."""
    make = uvloop.new_event_loop

    def measured() -> uvloop.Loop:
        loop = make()
        loop.call_soon(lambda: Beats(loop, file))
        return loop

    uvloop.new_event_loop = measured


def record_cycles(file: Path) -> None:
    """Write the name of each duty after each of its cycles, a line each; and let none wait longer than `PAUSE`."""
    cycle = Duty.cycle

    async def recorded(self: Duty) -> None:
        period = type(self).period
        self.period = lambda: min(PAUSE, period(self))  # type: ignore[method-assign]
        await cycle(self)
        with file.open("a") as lines:
            lines.write(f"{type(self).__name__}\n")

    Duty.cycle = recorded  # type: ignore[method-assign]


def holds(file: Path, after: int = 0) -> list[Hold]:
    """The holds in a file, from line `after` on."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [Hold(*json.loads(line)) for line in lines[after:]]


if __name__ == "__main__":
    holds_file = Path(os.environ["PILOTAGE_LOOP_HOLDS"])
    install(holds_file)
    record_cycles(holds_file.with_suffix(".duties"))
    from pilotage.main import main

    sys.exit(main())
