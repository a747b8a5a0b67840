"""Pilots as processes of this machine. Keeps no state: everything is read back from the processes themselves.

The identity of a pilot is its stamp: it stands in the arguments of its process, from the shell that starts it on.
So a listing of /proc finds a pilot whose start was never recorded.

The batch id is `pid:start`, the start in clock ticks since boot, since process ids are used again; with `@host` where
servers of several hosts use one database: nothing is known of the processes of another host. A pilot outlives the
server that started it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pilotage.core.pilots.handover import Seen
from pilotage.outside.batch.adapter import BatchJob, Listing, Receipt, Shape, Sighting

_FOREIGN_PREFIXES = (
    *("SLURM", "SBATCH_", "SRUN_", "PBS_", "SGE_", "LSB_", "LSF_"),
    *("_CONDOR_", "GRID_", "OAR_", "COBALT_", "FLUX_"),
)
_FOREIGN = frozenset({"JOB_ID", "JOB_NAME", "NSLOTS", "NHOSTS", "NQUEUES", "NCPUS", "PE", "PE_HOSTFILE"})


_PYTHON = frozenset({"VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "__PYVENV_LAUNCHER__"})


def own_environment(environment: Mapping[str, str], prefix: str | None = None) -> dict[str, str]:
    """`environment` without the variables of batch systems, and without the server's Python.

    A server may be started inside a batch job. Its pilots are batch jobs of the local CE, not of that batch system. The
    programs of the server's virtual environment (`prefix`; by default that of this process, if it has one) and the
    settings of its interpreter are no business of jobs.
    """
    if prefix is None and sys.prefix != sys.base_prefix:
        prefix = sys.prefix
    kept = {
        name: value
        for name, value in environment.items()
        if name not in _FOREIGN | _PYTHON and not name.startswith((*_FOREIGN_PREFIXES, "PYTHON"))
    }
    if prefix and "PATH" in kept:
        own = os.path.realpath(os.path.join(prefix, "bin"))
        # An empty part is the current folder, as in a shell.
        parts = [part for part in kept["PATH"].split(os.pathsep) if os.path.realpath(part or ".") != own]
        kept["PATH"] = os.pathsep.join(parts)
        if not parts:
            del kept["PATH"]
    return kept


_YOUNG = 2.0
"""Seconds. A process without arguments that is older is no pilot."""


class _Process(NamedTuple):
    pid: int
    session: int
    started: int
    """Clock ticks since boot."""


class LocalBatch:
    """The adapter of the local CE: a `BatchAdapter`."""

    holds = False

    def __init__(
        self,
        environment: Mapping[str, str],
        logs: Path,
        cores: Sequence[int] | None = None,
        host: str = "",
        files: int | None = None,
    ) -> None:
        """`logs`: the folder of the pilots' output, made when needed. `host`: the name of this host, where others
        use the same database. `files`: the pilots' soft limit of open files.
        """
        self._environment = own_environment(environment)
        self._logs = logs
        self._host = host
        self._files = files
        self.place = f"@{host}" if host else ""
        self.cores = sorted(cores if cores is not None else os.sched_getaffinity(0))
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def submit(
        self, shape: Shape, batch_jobs: Sequence[BatchJob], beside: Iterable[str] = ()
    ) -> dict[str, Receipt]:
        """Start pilots, each on the cores that other pilots use least: `beside` and just started."""
        neighbours = list(beside)
        receipts = {}
        for batch_job in batch_jobs:
            receipt = self._start(shape, batch_job, neighbours)
            receipts[batch_job.stamp] = receipt
            if receipt.batch_id:
                neighbours.append(receipt.batch_id)
        return receipts

    def _start(self, shape: Shape, batch_job: BatchJob, neighbours: Iterable[str]) -> Receipt:
        """Start one pilot. The script is fed to the shell and not stored: it holds the pilot's secret."""
        chosen = self._least_used(shape.processors, neighbours)
        try:
            process = self._spawn(batch_job.stamp, self._log_of(batch_job.stamp), chosen)
        except OSError as error:
            return Receipt(refused=f"a pilot could not be started here: {error}")
        self._limit_files(process.pid)
        self._feed(process, batch_job.script)
        self._children[process.pid] = process
        running = _process(process.pid)
        return Receipt(f"{process.pid}:{running.started if running else 0}{self.place}")

    def _spawn(self, stamp: str, log: Path, cores: set[int]) -> subprocess.Popen[bytes]:
        allowed = os.sched_getaffinity(0)
        try:
            log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with log.open("ab") as output:
                # The child inherits the affinity of this thread.
                os.sched_setaffinity(0, cores)
                return subprocess.Popen(
                    ["/bin/sh", "-s", stamp],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env=self._environment,
                    start_new_session=True,
                    cwd="/",
                )
        finally:
            os.sched_setaffinity(0, allowed)

    def _feed(self, process: subprocess.Popen[bytes], script: str) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(script.encode())
            process.stdin.close()
        except BrokenPipeError:
            pass  # It has ended already; the next status says so.

    def _limit_files(self, pid: int) -> None:
        """Give a pilot the limit that the server had at its start: the shell waits for its script meanwhile."""
        if self._files is not None:
            with contextlib.suppress(OSError, ValueError):
                hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (self._files, hard))

    def find(self, stamps: Iterable[str], now: float) -> Listing:
        return self.status(dict.fromkeys(stamps, ""), now)

    def status(self, batch_ids: Mapping[str, str], now: float) -> Listing:
        self._reap()
        sightings = {stamp: Sighting(self._seen(batch_id), batch_id) for stamp, batch_id in batch_ids.items()}
        missing = {
            stamp: batch_ids[stamp] for stamp, sighting in sightings.items() if sighting.seen is Seen.ABSENT
        }
        return Listing(now, sightings | self._look_up(missing) if missing else sightings)

    def _reap(self) -> None:
        """Collect the exit codes of children that have ended: a zombie has its process id until then."""
        for pid, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[pid]

    def _look_up(self, missing: Mapping[str, str]) -> dict[str, Sighting]:
        """Look for stamps in a listing of all processes."""
        listed, complete = _listing(missing.keys())
        otherwise = Seen.ABSENT if complete else Seen.UNKNOWN
        found = {}
        for stamp, batch_id in missing.items():
            processes = listed.get(stamp, [])
            # The leader of the session is the process that was started; others are its children.
            leader = min((process for process in processes if process.pid == process.session), default=None)
            if leader is not None:
                batch_id = f"{leader.pid}:{leader.started}{self.place}"
            found[stamp] = Sighting(Seen.SEEN if processes else otherwise, batch_id)
        return found

    def _seen(self, batch_id: str) -> Seen:
        """Of a batch id alone. One that cannot be read is absent: then the stamp decides."""
        numbers, _, host = batch_id.partition("@")
        if host and host != self._host:
            return Seen.UNKNOWN
        pid, _, start = numbers.partition(":")
        if not (pid.isdecimal() and start.isdecimal()):
            return Seen.ABSENT
        try:
            process = _process(int(pid))
        except PermissionError:
            return Seen.UNKNOWN
        if process is not None and process.started == int(start):
            return Seen.SEEN
        return Seen.ABSENT

    def cancel(self, batch_ids: Iterable[str]) -> None:
        for batch_id in batch_ids:
            if self._seen(batch_id) is Seen.SEEN:
                try:
                    os.kill(int(batch_id.partition(":")[0]), signal.SIGTERM)
                except (ProcessLookupError, PermissionError):
                    continue

    def output(self, stamp: str, most: int) -> str:
        try:
            with self._log_of(stamp).open("rb") as log:
                # A character has at most four bytes.
                log.seek(max(0, log.seek(0, os.SEEK_END) - 4 * most))
                return log.read().decode(errors="replace")[-most:]
        except FileNotFoundError:
            return ""

    def _log_of(self, stamp: str) -> Path:
        return self._logs / f"{stamp}.log"

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


def _process(pid: int) -> _Process | None:
    """A living process; None if it is gone or a zombie. `PermissionError`: /proc does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else _Process(pid, int(fields[3]), int(fields[19]))


def _listing(stamps: Iterable[str]) -> tuple[dict[str, list[_Process]], bool]:
    """The living processes that have one of the stamps as an argument, and whether the listing is complete."""
    wanted = {stamp.encode(): stamp for stamp in stamps}
    found: dict[str, list[_Process]] = {}
    # Where /proc hides the processes of others it hides pilots too: they have closed their memory.
    complete = Path("/proc/1").exists()
    young = (time.clock_gettime(time.CLOCK_BOOTTIME) - _YOUNG) * os.sysconf("SC_CLK_TCK")
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        try:
            words = Path(entry.path, "cmdline").read_bytes().split(b"\0")
            there = wanted.keys() & words
            process = _process(int(entry.name)) if there or words == [b""] else None
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError:
            complete = False
            continue
        if process is not None and not there and process.started >= young:
            # It is just being started, and its arguments are not there yet.
            complete = False
        if process is not None:
            for stamp in there:
                found.setdefault(wanted[stamp], []).append(process)
    return found, complete
