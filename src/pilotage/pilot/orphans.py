"""Finds processes that outlived their parents, attributes them to payloads, and kills them when their payload ends.

The pilot is a child subreaper: a process becomes the pilot's own child when all its ancestors have ended. Variables
in its environment name its payload. If a process hides them, every payload that ran when the process was first seen
is a suspect. Such a process is killed when the last suspect has ended.
"""

from __future__ import annotations

import math
import os
import signal
import time
from typing import Dict, Iterable, List, Set, Tuple

from .events import Key
from .log import log
from .process_tree import TreeProcess, descendants, kill_descendants, read_processes, read_variable
from .system import kill

_DELAY = 0.25
"""Minimum seconds between sweeps after short payloads while others run, as a sweep reads all of /proc."""
_PATIENCE = 2.0
_Identity = Tuple[int, int]


class Orphans:
    """The known orphans, each with the payloads that may have started it."""

    def __init__(self) -> None:
        self.next_sweep_at = math.inf
        self._suspects: Dict[_Identity, Set[Key]] = {}
        self._ended: Set[Key] = set()

    def mark_ended(self, keys: Iterable[Key]) -> None:
        """Record that payloads are over; the next sweep kills their orphans."""
        self._ended.update(keys)

    def should_sweep(self, now: float, longest: float, others_run: bool) -> bool:
        """Whether to sweep now. While other payloads run, short ones only schedule a later sweep."""
        if not self._ended and others_run:
            return False
        if not others_run or longest >= _DELAY:
            return True
        self.next_sweep_at = min(self.next_sweep_at, now + _DELAY)
        return False

    def update(self, processes: Dict[int, TreeProcess], leaders: Dict[int, Key]) -> List[TreeProcess]:
        """Record all orphans among `processes` and return them."""
        me = os.getpid()
        orphans = [
            process
            for process in processes.values()
            if process.parent == me and process.pid not in leaders and process.state not in "ZX"
        ]
        known = self._suspects
        self._suspects = {}
        for process in orphans:
            identity = (process.pid, process.started)
            self._suspects[identity] = known.get(identity) or self._suspects_of(process, leaders)
        return orphans

    def _suspects_of(self, process: TreeProcess, leaders: Dict[int, Key]) -> Set[Key]:
        job, epoch = read_variable(process.pid, "PILOTAGE_JOB"), read_variable(process.pid, "PILOTAGE_EPOCH")
        candidates = {*leaders.values(), *self._ended}
        if job.isdigit() and epoch.isdigit() and (int(job), int(epoch)) in candidates:
            return {(int(job), int(epoch))}
        if process.session in leaders:
            return {leaders[process.session]}
        return candidates

    def of_payload(self, key: Key, processes: Dict[int, TreeProcess]) -> List[TreeProcess]:
        """The orphans that certainly belong to this payload, with their descendants."""
        orphans = []
        for (pid, started), suspects in self._suspects.items():
            process = processes.get(pid)
            if suspects == {key} and process is not None and process.started == started:
                orphans += [process, *descendants(pid, processes)]
        return orphans

    def sweep(self, now: float, leaders: Dict[int, Key]) -> None:
        """Kill every orphan without a running suspect, and wait for their end for at most `_PATIENCE` seconds."""
        self.next_sweep_at = math.inf
        alive = set(leaders.values())
        until = time.monotonic() + _PATIENCE
        logged = False
        while True:
            processes = read_processes()
            victims = []
            for process in self.update(processes, leaders):
                if not self._suspects[(process.pid, process.started)] & alive:
                    victims += [process, *descendants(process.pid, processes)]
            if not victims:
                break
            if not logged and any(process.session == process.pid for process in victims):
                log("killing processes that outlived their payload", count=len(victims))
                logged = True
            for process in victims:
                kill(process.pid, signal.SIGKILL)
            if time.monotonic() > until:
                self.next_sweep_at = now + _DELAY
                break
            time.sleep(0.002)
        self._ended.clear()

    def kill_all(self) -> None:
        kill_descendants(os.getpid(), set(), _PATIENCE)
