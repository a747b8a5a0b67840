"""Reads the processes below the pilot from /proc, and kills them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Set

from .system import kill, kill_group

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class TreeProcess:
    pid: int
    parent: int
    session: int
    state: str
    cpu: float
    """Seconds, including reaped children."""
    rss: int
    """Bytes."""
    started: int
    """Clock ticks since boot."""


def parse_stat(text: str) -> TreeProcess:
    """Parse /proc/PID/stat. The program's name in it may contain blanks and brackets."""
    pid, _, rest = text.partition(" (")
    fields = rest.rpartition(") ")[2].split()
    return TreeProcess(
        pid=int(pid),
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        cpu=sum(int(field) for field in fields[11:15]) / _TICK,
        started=int(fields[19]),
        rss=int(fields[21]) * _PAGE,
    )


def read_process(pid: int) -> Optional[TreeProcess]:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return parse_stat(file.read(2048).decode("utf-8", "replace"))
    except (OSError, ValueError, IndexError):
        return None


def read_processes() -> Dict[int, TreeProcess]:
    processes = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process is not None:
                processes[process.pid] = process
    return processes


def descendants(root: int, processes: Dict[int, TreeProcess]) -> List[TreeProcess]:
    """The living descendants of `root`, parents before children, without `root` itself."""
    children: Dict[int, List[TreeProcess]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    result: List[TreeProcess] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(), ()):
            queue.append(child.pid)
            if child.state not in "ZX":
                result.append(child)
    return result


def proportional_memory(pids: Iterable[int]) -> int:
    """Bytes of memory, with shared pages counted once; 0 if the kernel does not report it."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024
                        break
        except (OSError, ValueError, IndexError):
            continue
    return total


def read_variable(pid: int, name: str) -> str:
    """A variable in the environment with which a process was started; "" if it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            for entry in file.read(1 << 20).split(b"\0"):
                if entry.startswith(name.encode() + b"="):
                    return entry.partition(b"=")[2].decode("utf-8", "replace")
    except OSError:
        pass
    return ""


def kill_tree(leader: int) -> None:
    """Kill the leader of a process group, its group, and all its present descendants."""
    for process in descendants(leader, read_processes()):
        kill(process.pid, signal.SIGKILL)
    kill_group(leader, signal.SIGKILL)


def kill_descendants(root: int, spare: Set[int], patience: float) -> bool:
    """Kill all descendants of `root`, including processes that they fork meanwhile; True if none is left.

    `root` must be a subreaper that reaps its orphans: dead processes are skipped, not waited for.
    The processes in `spare` and their descendants are not killed.
    """
    until = time.monotonic() + patience
    while True:
        processes = read_processes()
        spared = set(spare)
        for pid in spare:
            spared.update(process.pid for process in descendants(pid, processes))
        victims = [process.pid for process in descendants(root, processes) if process.pid not in spared]
        if not victims:
            return True
        for pid in victims:
            kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
