"""Lets a child read texts, watches its time, and starts another where one died or hangs."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

CASE_SECONDS = 30.0
"""A case takes milliseconds. This is what a machine that does much else besides may need."""
START_SECONDS = 120.0
ENDLESS = 2**62
PROGRAM: tuple[str, ...] = ("-m", "tests.fuzz.child")


@dataclass
class Outcome:
    cases: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, int, str]] = field(default_factory=list)
    """(target, number, what was wrong)."""


def run(
    targets: Sequence[str], seed: int, *, cases: int | None = None, seconds: float | None = None
) -> Outcome:
    """Try so many cases of each target, or for so many seconds."""
    outcome = Outcome()
    last = ENDLESS if cases is None else cases * len(targets)
    until = None if seconds is None else time.monotonic() + seconds
    place = 0
    while place < last and not (until is not None and time.monotonic() > until):
        place = _one_child(targets, seed, place, last, until, outcome)
    return outcome


def _one_child(
    targets: Sequence[str], seed: int, first: int, last: int, until: float | None, outcome: Outcome
) -> int:
    """Cases from `first` on, as long as one child lives; the place to go on from."""
    command = [sys.executable, *PROGRAM, str(seed), str(first), str(last), ",".join(targets)]
    place = first - 1
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            for line in _lines(child):
                if line.startswith("["):
                    outcome.failures.append(tuple(json.loads(line)))
                    continue
                place = int(line)
                outcome.cases[targets[place % len(targets)]] += 1
                if until is not None and time.monotonic() > until:
                    return last
            status = child.wait()
            if status == 0:
                return last
            why = f"the process ended with status {status}"
        except TimeoutError:
            why = f"it took more than {CASE_SECONDS:g} s"
        finally:
            child.kill()
    if place < first:
        raise RuntimeError("the child did not start")
    number, turn = divmod(place, len(targets))
    outcome.failures.append((targets[turn], number, why))
    return place + 1


def _lines(child: subprocess.Popen[bytes]) -> Iterator[str]:
    """Lines of its output; TimeoutError if none comes for too long."""
    assert child.stdout is not None
    rest = b""
    allowed = START_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(allowed):
                raise TimeoutError
            allowed = CASE_SECONDS
            chunk = child.stdout.read1(65536)  # type: ignore[attr-defined]
            if not chunk:
                return
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line.decode() for line in whole)
