"""Lists of hosts: `n[1-3,07],other` and the hosts that it means."""

from __future__ import annotations

import itertools
import re
from typing import Final

from pilotage.core.errors import InvalidInput

_PART: Final = re.compile(r"([^\[\],\s]*)(?:\[([0-9,-]+)\]([^\[\],\s]*))?(?:,|\Z)")
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)
_NUMBERED: Final = re.compile(r"(.*?)(\d+)\Z", re.ASCII)
MOST: Final = 65_536
"""Hosts of one list."""


def host_names(text: str) -> list[str]:
    """The hosts of a list. Raises InvalidInput.

    >>> host_names("n[1-2,08],gpu1")
    ['n1', 'n2', 'n08', 'gpu1']
    """
    hosts: list[str] = []
    place = 0
    while place < len(text):
        match = _PART.match(text, place)
        if match is None:
            raise InvalidInput(f"{text} is no list of hosts", hint="n1,n2 or n[1-3,7]")
        place = match.end()
        if match[2] is None:
            hosts += [match[1]] if match[1] else []
            continue
        for part in match[2].split(","):
            hosts += [f"{match[1]}{number}{match[3]}" for number in _numbers(part, text)]
        if len(hosts) > MOST:
            raise InvalidInput(f"{text} has more than {MOST:,} hosts")
    return hosts


def _numbers(part: str, text: str) -> list[str]:
    match = _RANGE.match(part)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if match is None or last < first or last - first > MOST:
        raise InvalidInput(f"{text}: {part or 'nothing'} is no range", hint="n1,n2 or n[1-3,7]")
    return [str(number).zfill(len(match[1])) for number in range(first, last + 1)]


def format_hosts(hosts: list[str]) -> str:
    """Hosts in short.

    >>> format_hosts(["n1", "n2", "n3", "n7", "gpu"])
    'n[1-3,7],gpu'
    """
    parts: list[str] = []
    for name, group in itertools.groupby(hosts, key=_stem):
        numbers = [host[len(name[0]) :] for host in group]
        if not name[1] or len(numbers) == 1:
            parts += [name[0] + number for number in numbers]
            continue
        parts.append(f"{name[0]}[{','.join(_ranges(numbers))}]")
    return ",".join(parts)


def _stem(host: str) -> tuple[str, int]:
    """The name without its number, and the width of the number; 0: it has none."""
    match = _NUMBERED.match(host)
    if match is None:
        return host, 0
    return match[1], len(match[2]) if match[2].startswith("0") else 1


def _ranges(numbers: list[str]) -> list[str]:
    runs: list[list[str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
