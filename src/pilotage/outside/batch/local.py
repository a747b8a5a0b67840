"""Pilots as processes of this machine. Keeps no state: everything is read back from the processes themselves.

The batch id is `pid:start`, the start in clock ticks since boot, since process ids are used again; with `@host` where
servers of several hosts use one database: of the processes of another host nothing is known. A pilot
outlives the server that started it; the next server finds it by its batch id.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from pilotage.core.errors import Unreachable


class Seen(StrEnum):
    """What a batch system says of a batch job. `UNKNOWN` (a failed or partial query) moves nothing."""

    SEEN = "seen"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class LocalBatch:
    """The adapter of the local CE."""

    def __init__(
        self,
        environment: Mapping[str, str],
        cores: Sequence[int] | None = None,
        host: str = "",
        files: int | None = None,
    ) -> None:
        """`host`: the name of this one, where there are others. `files`: the pilots' soft limit of open files."""
        self._environment = dict(environment)
        self._host = host
        self._files = files
        self.cores = sorted(cores if cores is not None else os.sched_getaffinity(0))
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def submit(self, script: str, log: Path, processors: int, neighbours: Iterable[str]) -> str:
        """Start one pilot on the cores that its `neighbours` (batch ids) use least; its batch id.

        The script is fed to the shell, not stored: it holds the pilot's secret.
        """
        chosen = self._least_used(processors, neighbours)
        allowed = os.sched_getaffinity(0)
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with log.open("ab") as output:
                # The child inherits the affinity of this thread.
                os.sched_setaffinity(0, chosen)
                process = subprocess.Popen(
                    ["/bin/sh", "-s"],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env=self._environment,
                    start_new_session=True,
                    cwd="/",
                )
        except OSError as error:
            raise Unreachable(f"a pilot could not be started here: {error}") from None
        finally:
            os.sched_setaffinity(0, allowed)
        self._limit_files(process.pid)
        assert process.stdin is not None
        try:
            process.stdin.write(script.encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # It has ended already; the next status says so.
        self._children[process.pid] = process
        return f"{process.pid}:{_started(process.pid) or 0}{f'@{self._host}' if self._host else ''}"

    def _limit_files(self, pid: int) -> None:
        """Give a pilot the limit that the server had at its start: the shell waits for its script meanwhile."""
        if self._files is not None:
            with contextlib.suppress(OSError, ValueError):
                hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (self._files, hard))

    def status(self, batch_ids: Iterable[str]) -> dict[str, Seen]:
        """What has become of each."""
        for pid, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[pid]
        return {batch_id: self._seen(batch_id) for batch_id in batch_ids}

    def _seen(self, batch_id: str) -> Seen:
        host = batch_id.partition("@")[2]
        if host and host != self._host:
            return Seen.UNKNOWN
        return Seen.SEEN if self._alive(batch_id) else Seen.ABSENT

    def cancel(self, batch_ids: Iterable[str]) -> None:
        """Ask each to give its jobs back and leave."""
        for batch_id in batch_ids:
            if self._seen(batch_id) is Seen.SEEN:
                try:
                    os.kill(int(batch_id.partition(":")[0]), signal.SIGTERM)
                except (ProcessLookupError, PermissionError):
                    continue

    @staticmethod
    def _alive(batch_id: str) -> bool:
        pid, _, start = batch_id.partition("@")[0].partition(":")
        found = _started(int(pid)) if pid.isdigit() else None
        return found is not None and str(found) == start

    def _least_used(self, processors: int, neighbours: Iterable[str]) -> set[int]:
        used: Counter[int] = Counter()
        for batch_id in neighbours:
            if self._seen(batch_id) is Seen.SEEN:
                try:
                    affinity = os.sched_getaffinity(int(batch_id.partition(":")[0]))
                except ProcessLookupError:
                    continue
                if len(affinity) < len(self.cores):
                    used.update(affinity)
        return set(sorted(self.cores, key=lambda core: (used[core], core))[: max(1, processors)])


def _started(pid: int) -> int | None:
    """When a living process was started, in clock ticks since boot; None if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
