"""The order in which tests run: modules that take long come first, dealt over the workers.

A long test that starts last keeps one worker busy while the others have nothing to do. `durations.txt` has the seconds
of the modules that take long; `PILOTAGE_TEST_DURATIONS=FILE ./test` writes such a file after a run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

RECORD = Path(__file__).with_name("durations.txt")
LONG = 5.0
"""Seconds. A shorter module may run at any time."""

Test = TypeVar("Test")


def read_durations(path: Path = RECORD) -> dict[str, float]:
    """The recorded seconds of modules, by their path."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return {module: float(seconds) for seconds, module in pairs}


def write_durations(path: Path, durations: Mapping[str, float]) -> None:
    """Write the modules that take long, the longest first."""
    longest_first = sorted(durations.items(), key=lambda pair: (-pair[1], pair[0]))
    path.write_text(
        "".join(f"{seconds:.0f} {module}\n" for module, seconds in longest_first if seconds >= LONG)
    )


def order_tests(
    modules: Sequence[tuple[str, Test]], durations: Mapping[str, float], workers: int
) -> list[Test]:
    """All tests, given with their modules in the order of collection.

    pytest-xdist gives each worker an equal number of consecutive tests; a worker without tests takes the last ones of
    another. So the share of each worker begins with long modules, whose tests stay together, and ends with the others.
    """
    tests: dict[str, list[Test]] = defaultdict(list)
    for module, test in modules:
        tests[module].append(test)
    shares: list[list[Test]] = [[] for _ in range(workers)]
    seconds = [0.0] * workers
    long = [module for module in tests if durations.get(module, 0.0) >= LONG]
    for module in sorted(long, key=lambda module: -durations[module]):
        place = seconds.index(min(seconds))
        shares[place] += tests.pop(module)
        seconds[place] += durations[module]
    short = [test for rest in tests.values() for test in rest]
    return _fill(shares, short, len(modules))


def _fill(shares: Iterable[list[Test]], short: list[Test], total: int) -> list[Test]:
    """Fill each share with short tests up to the number that its worker is given."""
    ordered: list[Test] = []
    remaining = sorted(shares, key=len)
    for place, share in enumerate(remaining):
        size = (total - len(ordered)) // (len(remaining) - place)
        lack = max(0, size - len(share))
        ordered += share + short[:lack]
        del short[:lack]
    return ordered + short
