"""Runs the payloads of the pilot: starts them, enforces their limits, and ends them with all their descendants.

Used by the loop's thread only. `events` collects the events for the machine.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from pilotage.wire.pilot import MB, OfferedJob

from .batch_script import refused_as_in_slurm
from .cannot_run import CannotRun
from .deadlines import Deadlines
from .events import Event, FolderDiffers, Key, NodeUnfit, PayloadEnded, ProcessesEnded
from .in_place import OtherFolder
from .inputs import InputCache, placement_error
from .isolation.client import CannotIsolate, Isolation
from .launch import base_environment
from .limits import cpu_limit
from .log import log
from .log_streaming import send_tails, unsent_tails
from .node_commands import COMMANDS
from .orphans import Orphans
from .payload import RunningPayload
from .process_tree import descendants, kill_tree, proportional_memory, read_processes
from .sampling import Sampling
from .shared_ends import SHARED_END_GRACE, is_doubtful
from .system import kill, kill_group, peek_dead_child
from .thread_pool import ThreadPool
from .work_dirs import WorkDirs

TERM_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
UPLOAD_GRACE = 10.0
"""Seconds for which a killed payload's uploads may continue."""
TAIL_GRACE = 5.0
"""Seconds for the end of the output of a payload that is stopped because the pilot leaves."""


class PayloadRunner:
    """All payloads that are being prepared, running, or uploading their outputs."""

    def __init__(
        self,
        folder: str,
        cores: Tuple[int, ...],
        power: float,
        environment: Mapping[str, str],
        background: ThreadPool,
        clock: Callable[[], float],
        max_output: int = 0,
        isolation: Optional[Isolation] = None,
        stops_at: float = math.inf,
    ) -> None:
        """`max_output`: maximum bytes of one output file; 0: not known. `stops_at`: when the pilot stops payloads."""
        self._stops_at = stops_at
        self._isolation = isolation
        self.events: List[Event] = []
        self.running: Dict[Key, RunningPayload] = {}
        self._work_dirs = WorkDirs(folder)
        self._all_cores = len(cores)
        self._free_cores = set(cores)
        self._power = power
        self._base = base_environment(environment)
        self._background = background
        self._clock = clock
        self._max_output = max_output
        self._cache = InputCache(os.path.join(folder, "inputs"))
        self._by_pid: Dict[int, RunningPayload] = {}
        self._orphans = Orphans()
        self._sampling = Sampling()
        self._deadlines: Deadlines[Key] = Deadlines()
        self._doubtful: Deadlines[Key] = Deadlines()
        """Ended payloads that may have been killed together with the pilot."""
        self._has_children: Optional[bool] = None
        """Whether this process has children; None: not known."""
        self._null = os.open(os.devnull, os.O_RDONLY)
        # No core dumps; payloads inherit the limit.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    # Starting

    def start(self, offer: OfferedJob) -> None:
        payload = RunningPayload(offer, self._clock(), self._max_output)
        self.running[payload.key] = payload
        try:
            payload.make_folder(self._work_dirs, payload.begun)
            if self._isolation is not None:
                payload.check_inputs(self._isolation)
            if payload.is_in_place:
                self._background.submit(
                    payload.enter_folder, lambda result, error: self._on_inputs_fetched(payload, error)
                )
                return
            if payload.has_remote_inputs():
                self._background.submit(
                    lambda connection: payload.fetch_inputs(connection, self._cache, self._isolation),
                    lambda result, error: self._on_inputs_fetched(payload, error),
                )
                return
            payload.link_inputs()
            self._launch(payload)
        except CannotRun as error:
            self._fail_to_start(payload, error)

    def _on_inputs_fetched(self, payload: RunningPayload, error: Optional[BaseException]) -> None:
        try:
            if payload.killed:
                self._finish(payload)
            elif isinstance(error, OtherFolder):
                self._remove(payload)
                log(str(error), job=payload.key[0], epoch=payload.key[1])
                self.events.append(FolderDiffers(payload.key, payload.payload.folder, str(error)))
            elif isinstance(error, CannotRun):
                raise error
            elif isinstance(error, OSError):
                raise placement_error(error)
            elif error is not None:
                raise CannotRun(f"inputs: {error}", failure="input")
            elif payload.data is not None and payload.data.runs_in_pilot:
                self._background.submit(
                    payload.carry_out_action, lambda result, error: self._finish_action(payload, error)
                )
            else:
                self._launch(payload)
        except CannotRun as failed:
            self._fail_to_start(payload, failed)

    def _launch(self, payload: RunningPayload) -> None:
        cores = self._take_cores(payload.payload.processors)
        now = self._clock()
        try:
            with refused_as_in_slurm(payload.payload, payload.streams.files):
                payload.launch(self._base, self._null, cores, self._power, now, self._isolation)
        except CannotIsolate as error:
            self._free_cores.update(cores)
            # Further jobs would fail here too.
            self.events.append(NodeUnfit(f"cannot isolate payloads: {error}"))
            raise CannotRun(f"isolation: {error}", failure="node") from None
        except CannotRun:
            self._free_cores.update(cores)
            raise
        self._by_pid[payload.pid] = payload
        self._schedule(payload)
        self._sampling.on_payload_started(now)

    def _finish_action(self, payload: RunningPayload, error: Optional[BaseException]) -> None:
        """End a job that the pilot itself carried out. No process of it was started."""
        payload.finish.wall = round(self._clock() - payload.started, 6)
        payload.has_ended = True
        if error is not None:
            payload.finish.failure, payload.finish.message = "node", repr(error)
        self._finish(payload)

    def _take_cores(self, count: int) -> Tuple[int, ...]:
        if len(self._free_cores) < count or count == self._all_cores:
            return ()
        cores = tuple(sorted(self._free_cores)[:count])
        self._free_cores.difference_update(cores)
        return cores

    def _fail_to_start(self, payload: RunningPayload, error: CannotRun) -> None:
        payload.finish.failure = error.failure
        payload.finish.exit_code = error.exit_code
        payload.finish.message = str(error)
        payload.has_ended = True
        self._collect(payload)

    # Ending

    def kill(self, key: Key, reason: str, *, keep_streams: bool = False, deliver_tail: bool = False) -> None:
        """Kill a payload for the machine; the failure in its Finish is "killed"."""
        payload = self.running.get(key)
        if payload is None:
            return
        payload.keep_streams = keep_streams
        if key in self._doubtful:
            self._doubtful.set(key, math.inf)
            payload.finish.failure, payload.finish.message = "killed", reason
            self._collect(payload)
        elif payload.has_ended:
            payload.abandon_at = min(payload.abandon_at, self._clock() + UPLOAD_GRACE)
            self._schedule(payload)
        else:
            payload.delivers_tail = deliver_tail
            self._terminate(payload, "killed", reason)

    def _terminate(self, payload: RunningPayload, failure: str, message: str) -> None:
        if payload.killed:
            return
        payload.killed = True
        payload.finish.failure, payload.finish.message = failure, message
        if payload.pid:
            payload.kill_at = self._clock() + TERM_GRACE
            kill_group(payload.pid, signal.SIGTERM)
            self._schedule(payload)

    def reap(self) -> None:
        """Reap all children that have ended."""
        ended: List[RunningPayload] = []
        while True:
            pid = peek_dead_child()
            if not pid:
                break
            payload = self._by_pid.pop(pid, None)
            if payload is None:
                if COMMANDS.reap(pid):
                    continue
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
                continue
            kill_group(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            payload.on_leader_reaped(status, usage, self._clock(), self._power)
            self._free_cores.update(payload.cores)
            ended.append(payload)
        if pid == 0 and self._isolation is None:  # isolated payloads leave no process behind
            self._sweep(ended)
        # No payload is started before all ended ones are collected.
        self._has_children = None if pid == 0 else False
        for payload in ended:
            if is_doubtful(payload.finish):
                self._doubtful.set(payload.key, self._clock() + SHARED_END_GRACE)
            else:
                self._collect(payload)
        self._has_children = None

    def _sweep(self, ended: List[RunningPayload]) -> None:
        """Kill the processes that ended payloads left behind, if it is time to look for them."""
        now = self._clock()
        self._orphans.mark_ended(payload.key for payload in ended)
        longest = max((payload.finish.wall for payload in ended), default=0.0)
        if self._orphans.should_sweep(now, longest, bool(self._by_pid)):
            self._orphans.sweep(now, self._leaders())

    def _leaders(self) -> Dict[int, Key]:
        return {**COMMANDS.leaders(), **{pid: payload.key for pid, payload in self._by_pid.items()}}

    def _collect(self, payload: RunningPayload) -> None:
        payload.inline_streams()
        self._schedule(payload)
        if payload.pid and payload.has_uploads() and payload.finish.failure != "killed":
            self.events.append(ProcessesEnded(payload.key))
            self._background.submit(
                payload.upload_outputs, lambda result, error: self._finish(payload, error)
            )
        elif payload.pid and payload.keep_streams:
            payload.abandon_at = self._clock() + UPLOAD_GRACE
            self._schedule(payload)
            self._background.submit(
                payload.upload_streams, lambda result, error: self._finish(payload, error)
            )
        elif payload.pid and payload.delivers_tail:
            self._deliver_tail(payload)
        elif not payload.pid and payload.has_logs_to_store():
            self._background.submit(payload.store_logs, lambda result, error: self._finish(payload, error))
        else:
            self._finish(payload)

    def _deliver_tail(self, payload: RunningPayload) -> None:
        """Send the end of its output, and go on in any case when `TAIL_GRACE` is over: the pilot has to leave."""
        pieces = unsent_tails(payload)
        if not pieces:
            self._finish(payload)
            return
        payload.abandon_at = self._clock() + TAIL_GRACE
        self._schedule(payload)

        def finish(result: object, error: Optional[BaseException]) -> None:
            if self.running.get(payload.key) is payload:
                self._finish(payload)

        self._background.submit(
            lambda connection: send_tails(connection, payload.key, pieces, lambda: payload.is_cancelled),
            finish,
        )

    def _finish(self, payload: RunningPayload, error: Optional[BaseException] = None) -> None:
        if error is not None:
            payload.finish.failure, payload.finish.message = "output", repr(error)
        if payload.killed and not payload.finish.failure:
            payload.finish.failure = "killed"
        if payload.pid:
            seconds = self._clock() - payload.started - payload.finish.wall
            payload.finish.upload = round(max(0.0, seconds), 6)
        self._remove(payload)
        self.events.append(PayloadEnded(payload.finish))

    def _remove(self, payload: RunningPayload) -> None:
        del self.running[payload.key]
        self._deadlines.set(payload.key, math.inf)
        is_clean = payload.clean_up(self._work_dirs, alone=self._is_alone(), now=self._clock())
        payload.streams.close()
        if not is_clean:
            self._background.submit(payload.remove_folders, _log_cleanup_error)

    def _is_alone(self) -> bool:
        """Whether no process of a payload is left. Isolated payloads leave none behind."""
        if self._isolation is not None or self._has_children is False:
            return True
        return peek_dead_child() is None

    # Watching

    def next_at(self) -> float:
        sample_at = self._sampling.next_at if self._by_pid else math.inf
        ends = min(self._deadlines.next_at(), self._doubtful.next_at())
        return min(sample_at, self._orphans.next_sweep_at, ends)

    def _schedule(self, payload: RunningPayload) -> None:
        """Note when the next limit of a payload is due. Call it after each change of them."""
        kill_at = math.inf if payload.has_ended else payload.kill_at
        abandon_at = math.inf if payload.is_cancelled else payload.abandon_at
        self._deadlines.set(
            payload.key, min(kill_at, abandon_at, payload.wall_end(), payload.warn_at(self._stops_at))
        )

    def enforce_limits(self) -> None:
        """Enforce the limits that are due for a check now."""
        now = self._clock()
        for key in self._deadlines.pop_due(now):
            self._enforce(self.running[key], now)
        for key in self._doubtful.pop_due(now):
            self._collect(self.running[key])
        if self._by_pid and now >= self._sampling.next_at:
            oldest = min(payload.started for payload in self._by_pid.values())
            if self._sampling.is_due(now, oldest):
                self._sample(now, oldest)
        if now >= self._orphans.next_sweep_at:
            self._orphans.sweep(now, self._leaders())

    def _enforce(self, payload: RunningPayload, now: float) -> None:
        if now >= payload.warn_at(self._stops_at):
            self._warn(payload, now)
        if now >= payload.wall_end():
            self._terminate(payload, "limit-wall", f"ran longer than {payload.payload.wall_time:g} s")
        if now >= payload.abandon_at:
            payload.is_cancelled = True
            if payload.delivers_tail:
                self._finish(payload)
                return
        if now >= payload.kill_at and not payload.has_ended:
            payload.kill_at = now + TERM_GRACE
            kill_tree(payload.pid)
        self._schedule(payload)

    def _warn(self, payload: RunningPayload, now: float) -> None:
        """Tell the payload that its time is nearly over."""
        payload.warned = True
        left = min(payload.wall_end(), self._stops_at) - now
        log("warning payload", job=payload.key[0], epoch=payload.key[1], seconds_left=f"{left:.0f}")
        number, is_for_first = payload.warning
        if self._isolation is not None:
            kill_group(payload.pid, signal.SIGUSR1)  # its init knows the signal
        else:
            (kill if is_for_first else kill_group)(payload.pid, number)

    def _sample(self, now: float, oldest: float) -> None:
        processes = read_processes()
        for pid, payload in list(self._by_pid.items()):
            own_processes = descendants(pid, processes)
            if pid in processes:
                own_processes.append(processes[pid])
            if self._isolation is None:
                own_processes += self._orphans.of_payload(payload.key, processes)
            payload.cpu = max(payload.cpu, sum(process.cpu for process in own_processes))
            if self._isolation is not None:
                # The memory of the outer process and of init is the pilot's.
                own_processes = [entry for entry in own_processes if pid not in (entry.pid, entry.parent)]
            rss = sum(process.rss for process in own_processes)
            limit = payload.payload.memory * MB
            if limit and rss > limit and len(own_processes) > 1:
                # The sum counts shared pages once per process: measure again without.
                rss = proportional_memory(process.pid for process in own_processes) or rss
            payload.note_memory(rss, now)
            if limit and rss > limit:
                self._terminate(payload, "limit-memory", f"{rss // MB} MB of {payload.payload.memory} MB")
            if payload.cpu > cpu_limit(payload.payload, self._power):
                self._terminate(payload, "limit-cpu", f"{payload.cpu:.1f} s CPU")
        if self._isolation is None:
            self._orphans.update(processes, self._leaders())
        self._sampling.record_sample(now, self._clock(), oldest)

    def kill_all(self) -> None:
        """Kill all payloads because the pilot leaves. The guardian kills any process that survives."""
        for pid in list(self._by_pid):
            kill_group(pid, signal.SIGKILL)
        self._orphans.kill_all()
        log("killed remaining payloads", count=len(self._by_pid))


def _log_cleanup_error(result: Any, error: Optional[BaseException]) -> None:
    if error is not None:
        log("cannot remove the folders of a payload", error=repr(error))
