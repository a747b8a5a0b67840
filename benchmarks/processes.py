"""Memory and CPU time of processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

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
