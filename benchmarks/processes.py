"""Memory and CPU time of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


def memory(pid: int | str, what: str = "VmRSS") -> int:
    """MB (10^6 bytes); "VmHWM": at most, since the last `forget_most`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(int(next(line.split()[1] for line in lines if line.startswith(what))) * 1024 / 1e6)


def forget_most() -> None:
    """Reset the peak memory of this process, if the system allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def cpu(pid: int) -> float:
    """Seconds of processor time so far; 0 of one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


class Spent(NamedTuple):
    """Seconds of processor time of a process."""

    own: float
    children: float
    """Of its children that have ended."""


def spent_below(pid: int) -> dict[int, Spent]:
    """The processor time of all living descendants of a process, by their ids."""
    parents: dict[int, int] = {}
    spent: dict[int, Spent] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            user, system, of_user, of_system = (int(field) / TICKS for field in fields[11:15])
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = Spent(user + system, of_user + of_system)
    found = {pid}
    while below := {child for child, parent in parents.items() if parent in found} - found:
        found |= below
    return {child: spent[child] for child in found - {pid} if child in spent}


def family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


def cpu_of(pids: Iterable[int]) -> float:
    return sum(cpu(pid) for pid in pids)
