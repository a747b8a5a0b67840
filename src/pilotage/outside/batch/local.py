"""Pilots as processes of this machine. Keeps no state: everything is read back from the processes themselves.

The identity of a pilot is its stamp with its index: they stand in the arguments of its process, from the shell that
starts it on. So a listing of /proc finds a pilot whose start was never recorded.

The batch id is `pid:start`, the start in clock ticks since boot, since process ids are used again; with `@host` where
servers of several hosts use one database: nothing is known of the processes of another host. A pilot outlives the
server that started it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pilotage.core.errors import Unreachable
from pilotage.core.forwarding.rules import Rule
from pilotage.core.glue.information import CeInformation, HostClass, Value
from pilotage.core.pilots.handover import Seen
from pilotage.core.policy import Ce
from pilotage.core.policy.new_ce import NodeSize
from pilotage.outside.batch.adapter import (
    BatchAccount,
    BatchPartition,
    BatchSubmission,
    Receipt,
    Shape,
    split_stamp,
    submissions_of,
)
from pilotage.outside.batch.ce_facts import job_counts
from pilotage.outside.batch.pilot_logs import log_name
from pilotage.outside.batch.processes import PROPERTIES, Process, Processes
from pilotage.outside.batch.properties import all_properties, read_properties, write_properties
from pilotage.outside.batch.registry import ServerMachine
from pilotage.outside.batch.submission import (
    BatchListing,
    ListedTask,
    NativeState,
    SubmissionFailed,
    SubmissionRefusal,
)
from pilotage.outside.batch.this_machine import host_attributes
from pilotage.outside.service_keys import is_key

_FOREIGN_PREFIXES = (
    *("SLURM", "SBATCH_", "SRUN_", "PBS_", "SGE_", "LSB_", "LSF_"),
    *("_CONDOR_", "GRID_", "OAR_", "COBALT_", "FLUX_"),
)
_FOREIGN = frozenset({"JOB_ID", "JOB_NAME", "NSLOTS", "NHOSTS", "NQUEUES", "NCPUS", "PE", "PE_HOSTFILE"})


_STATES = {
    Seen.SEEN: NativeState.RUNNING,
    Seen.ABSENT: NativeState.ENDED,
    Seen.UNKNOWN: NativeState.UNKNOWN,
}

MAX_LAST_OUTPUT = 500
"""Characters of the output of a pilot that has ended, as the reason of its end."""

_KEY_FILES = frozenset({"BEARER_TOKEN_FILE"})
"""They name files with keys of the server."""
_PYTHON = frozenset({"VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "__PYVENV_LAUNCHER__"})


def own_environment(environment: Mapping[str, str], prefix: str | None = None) -> dict[str, str]:
    """`environment` without the variables of batch systems, the server's keys for services, and its Python.

    A server may be started inside a batch job. Its pilots are batch jobs of the local CE, not of that batch system. The
    programs of the server's virtual environment (`prefix`; by default that of this process, if it has one) and the
    settings of its interpreter are no business of jobs.
    """
    if prefix is None and sys.prefix != sys.base_prefix:
        prefix = sys.prefix
    kept = {
        name: value
        for name, value in environment.items()
        if name not in _FOREIGN | _PYTHON | _KEY_FILES
        and not (is_key(name) or name.startswith((*_FOREIGN_PREFIXES, "PYTHON")))
    }
    if prefix and "PATH" in kept:
        own = os.path.realpath(os.path.join(prefix, "bin"))
        # An empty part is the current folder, as in a shell.
        parts = [part for part in kept["PATH"].split(os.pathsep) if os.path.realpath(part or ".") != own]
        kept["PATH"] = os.pathsep.join(parts)
        if not parts:
            del kept["PATH"]
    return kept


class LocalBatch:
    """The adapter of local CEs: a `BatchAdapter`."""

    holds = False
    keeps_ended = False
    index_variable = "PILOTAGE_INDEX"
    pilot_options: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        environment: Mapping[str, str],
        logs: Path,
        cores: Sequence[int] | None = None,
        host: str = "",
        files: int | None = None,
        processes: Processes | None = None,
    ) -> None:
        """`logs`: the folder of the pilots' output, made when needed. `host`: the name of this host, where others
        use the same database. `files`: the pilots' soft limit of open files. `processes`: by default /proc.
        """
        self._environment = own_environment(environment)
        self._logs = logs
        self._host = host
        self._files = files
        self._processes = processes or Processes()
        self.place = f"@{host}" if host else ""
        self.cores = sorted(cores if cores is not None else os.sched_getaffinity(0))
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._signalled: set[str] = set()
        """Batch ids of pilots that were told to leave: a second signal would give them more time."""

    def submit(self, submission: BatchSubmission) -> Receipt:
        """Start pilots, each on the cores that other pilots use least: `beside` and just started."""
        started: list[str] = []
        for index in range(submission.count):
            try:
                started.append(self._start(submission, index, [*submission.neighbours, *started]))
            except OSError as error:
                refusal = SubmissionRefusal.IN_DOUBT if started else SubmissionRefusal.REFUSED
                raise SubmissionFailed(refusal, f"a pilot could not be started here: {error}") from None
        return Receipt(started[0] if started else "", tuple(started))

    def _start(self, submission: BatchSubmission, index: int, neighbours: Iterable[str]) -> str:
        """Start one pilot; its batch id. The script is fed to the shell and not stored: it holds a secret."""
        cores = self._least_used(submission.shape.processors, neighbours)
        properties = f"{PROPERTIES}{write_properties(all_properties(submission))}"
        words = [f"{submission.stamp}/{index}", properties]
        process = self._spawn(words, index, self._log_of(submission.stamp, index), cores)
        self._limit_files(process.pid)
        self._feed(process, submission.script)
        self._children[process.pid] = process
        running = self._processes.find(process.pid)
        return f"{process.pid}:{running.started if running else 0}{self.place}"

    def _spawn(self, words: Sequence[str], index: int, log: Path, cores: set[int]) -> subprocess.Popen[bytes]:
        allowed = os.sched_getaffinity(0)
        try:
            log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with log.open("ab") as output:
                # The child inherits the affinity of this thread.
                os.sched_setaffinity(0, cores)
                return subprocess.Popen(
                    ["/bin/sh", "-s", *words],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env={**self._environment, self.index_variable: str(index)},
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

    def release(self, stamps: Sequence[str]) -> None:
        """Their submission has released them."""

    def cancel(self, stamps: Sequence[str], *, waiting_only: bool = False) -> None:
        """Ask each pilot to give its jobs back and leave. None waits: each runs from its submission on."""
        if stamps and not waiting_only:
            listing = self.list_pilots(stamps)
            self._terminate(task.batch_id for task in listing.tasks)
            if not listing.complete:
                raise Unreachable(listing.failure)

    def cancel_tasks(self, batch_ids: Sequence[str], epoch: str) -> None:
        if batch_ids and epoch != _boot():
            raise Unreachable(
                "this machine was started again: its process ids may belong to other programs now"
            )
        self._terminate(batch_id for batch_id in batch_ids if batch_id not in self._signalled)
        self._signalled = set(batch_ids)

    def _terminate(self, batch_ids: Iterable[str]) -> None:
        for batch_id in batch_ids:
            if self._seen(batch_id) is Seen.SEEN:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(int(batch_id.partition(":")[0]), signal.SIGTERM)

    def list_pilots(self, stamps: Collection[str] | None = None) -> BatchListing:
        self._reap()
        if stamps is not None and not stamps:
            return BatchListing(_boot())
        listed, complete = self._processes.with_stamps(stamps)
        tasks = tuple(
            ListedTask(*pilot, self._leader_id(processes), NativeState.RUNNING, "running", "", self._host)
            for pilot, processes in listed.items()
        )
        return BatchListing(_boot(), tasks, "" if complete else "some processes could not be read")

    def status(self, batch_ids: Mapping[str, str]) -> BatchListing:
        """A batch job for each of these pilots. It has ended if its process is gone and no other has its stamp."""
        self._reap()
        seen = {stamp: self._seen(batch_id) for stamp, batch_id in batch_ids.items()}
        missing = [stamp for stamp, sight in seen.items() if sight is Seen.ABSENT]
        listing = self.list_pilots(submissions_of(missing))
        tasks = []
        for stamp, batch_id in batch_ids.items():
            sight, listed_id = seen[stamp], ""
            if sight is Seen.ABSENT:
                sight, listed_id = listing.find(*split_stamp(stamp))
            tasks.append(self._task(stamp, listed_id or batch_id, sight))
        return BatchListing(listing.epoch, tuple(tasks))

    def _task(self, stamp: str, batch_id: str, seen: Seen) -> ListedTask:
        submission, index = split_stamp(stamp)
        state, words = _STATES[seen], ""
        if state is NativeState.ENDED:
            words = self.output(submission, index or 0, MAX_LAST_OUTPUT).strip().replace("\n", " | ")
        return ListedTask(submission, index, batch_id, state, "", words, self._host)

    def _leader_id(self, processes: Sequence[Process]) -> str:
        """The id of the process that was started: it leads the session. "" if only children of it are left."""
        leader = min((process for process in processes if process.pid == process.session), default=None)
        return "" if leader is None else f"{leader.pid}:{leader.started}{self.place}"

    def properties(
        self, stamps: Collection[str] | None = None
    ) -> dict[tuple[str, int | None], dict[str, str]]:
        listed, _ = self._processes.with_stamps(stamps)
        return {
            pilot: next(
                (read_properties(process.properties) for process in processes if process.properties), {}
            )
            for pilot, processes in listed.items()
        }

    def list_accounted(self, stamps: Collection[str], since: float) -> list[ListedTask]:
        """Processes have no accounting."""
        return []

    def describe(self) -> list[BatchPartition]:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
        return [BatchPartition("local", True, None, (NodeSize(1, len(self.cores), memory),), default=True)]

    def information(self) -> CeInformation:
        """One host: this machine. Cores on which no pilot is pinned are free."""
        hosts = (HostClass(1, host_attributes(), (socket.gethostname(),)),)
        listed, complete = self._processes.with_stamps(None)
        attributes: dict[str, Value] = {
            **hosts[0].attributes,
            "GlueCEName": "local",
            "GlueCEInfoLRMSType": "local",
            "GlueCEInfoHostName": socket.gethostname(),
            "GlueCEInfoTotalCPUs": len(self.cores),
            "GlueCEStateStatus": "Production",
        }
        if complete:
            attributes |= {"GlueCEStateFreeCPUs": self._free_cores(listed), **job_counts(len(listed), 0)}
        return CeInformation(attributes, hosts, homogeneous=True)

    def _free_cores(self, pilots: Mapping[tuple[str, int | None], Sequence[Process]]) -> int:
        taken: set[int] = set()
        for processes in pilots.values():
            with contextlib.suppress(ProcessLookupError):
                taken |= os.sched_getaffinity(min(processes).pid)
        return len(set(self.cores) - taken)

    def accounts(self) -> list[BatchAccount]:
        return []

    def check(self, shape: Shape) -> str:
        cores = len(self.cores)
        return "" if shape.processors <= cores else f"this machine has {cores} cores, not {shape.processors}"

    def check_terms(self, rules: Mapping[str, Rule], hosts: Collection[str]) -> list[str]:
        """A local CE has no forward table."""
        return []

    def close(self) -> None:
        """No call takes long."""

    def _reap(self) -> None:
        """Collect the exit codes of children that have ended: a zombie has its process id until then."""
        for pid, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[pid]

    def _seen(self, batch_id: str) -> Seen:
        """The sight of a batch id alone. One that cannot be read is absent: then the stamp decides."""
        numbers, _, host = batch_id.partition("@")
        if host and host != self._host:
            return Seen.UNKNOWN
        pid, _, start = numbers.partition(":")
        if not (pid.isdecimal() and start.isdecimal()):
            return Seen.ABSENT
        try:
            process = self._processes.find(int(pid))
        except PermissionError:
            return Seen.UNKNOWN
        if process is not None and process.started == int(start):
            return Seen.SEEN
        return Seen.ABSENT

    def output(self, stamp: str, index: int, most: int) -> str:
        try:
            with self._log_of(stamp, index).open("rb") as log:
                # A character has at most four bytes.
                log.seek(max(0, log.seek(0, os.SEEK_END) - 4 * most))
                return log.read().decode(errors="replace")[-most:]
        except FileNotFoundError:
            return ""

    def _log_of(self, stamp: str, index: int) -> Path:
        return self._logs / log_name(stamp, str(index))

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


def _boot() -> str:
    """Identifies the start of this machine; "" if it does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def make_adapter(ce: Ce, machine: ServerMachine, timeout: float) -> LocalBatch:
    """The adapter of this machine."""
    return LocalBatch(machine.environment, machine.logs, host=machine.host, files=machine.open_files)
