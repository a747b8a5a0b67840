"""One payload, from its working directory to its Finish. `payload_runner` decides when each step happens."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import urllib.parse
from functools import partial
from typing import IO, Callable, Dict, Optional, Set, Tuple

from pilotage.wire.pilot import MB, Finish, OfferedJob, RefusedOutput
from pilotage.wire.pilot_calls import STORE_STREAM

from .cannot_run import CannotRun
from .events import Key
from .in_place import check_folder, umask_of
from .inputs import InputCache, has_remote_inputs, link_shared, place_inputs, placement_error, prepare_path
from .isolation.client import InPlace, Isolation
from .job_data import JobData
from .launch import build_command, spawn
from .limits import process_cpu_limit, resource_limits
from .log import log
from .output_search import MAX_REFUSED, MAX_SHOWN, SearchCancelled, find_outputs
from .outputs import Unreadable, open_output, upload
from .place import DataAttempt, DataCancelled
from .removal import remove_tree
from .safe_open import NotAFile, escape_name
from .sandbox_outputs import SandboxOutputs
from .standard_streams import STREAMS, StandardStreams
from .thread_pool import retry_until_available
from .transport import FORBIDDEN, RequestRefused, ServerConnection, ServerUnavailable
from .work_dirs import WorkDir, WorkDirs

_OWN_PEAK = resource.RUSAGE_SELF
FIRST_WARNING = 2.0
"""Seconds from the start of a payload to its warning at the earliest."""


class RunningPayload:
    """The files, the process and the resource use of one assignment.

    `fetch_inputs`, `upload_outputs`, `upload_streams` and `remove_folders` run in background threads; all other
    methods are for the loop's thread.
    """

    def __init__(self, offer: OfferedJob, now: float, max_output: int = 0) -> None:
        """`max_output`: maximum bytes of one output file; 0: not known."""
        self.offer = offer
        self.payload = offer.payload
        self.key: Key = (offer.job, offer.epoch)
        self.work_dir: Optional[WorkDir] = None
        self.pid = 0
        self.cores: Tuple[int, ...] = ()
        self.begun = now
        self.started = now
        self.has_ended = False
        """Its processes have ended, or were never started."""
        self.warned = False
        """The signal before its end was sent."""
        self.warning: Tuple[int, bool] = (signal.SIGUSR1, False)
        """This signal, and whether its first process alone gets it."""
        self.killed = False
        """The payload is being killed; `finish.failure` is the reason."""
        self.kill_at = math.inf
        """When SIGKILL follows the SIGTERM that was sent."""
        self.abandon_at = math.inf
        """When uploads are cancelled."""
        self.is_cancelled = False
        self.keep_streams = False
        """The job was killed, so its standard output and error will be uploaded."""
        self.delivers_tail = False
        """The pilot stops it, so the end of its standard output and error is sent before it is given back."""
        self.max_output = max_output
        self.cpu = 0.0
        self.rss = self.memory = 0
        """Bytes of memory at most, and now; as of `sampled_at`, like `cpu`."""
        self.sampled_at: Optional[float] = None
        self.tail_offsets: Dict[str, int] = {"stdout": 0, "stderr": 0}
        self.finish = Finish(offer.job, offer.epoch)
        order = offer.payload.data
        self.data = None if order is None else JobData(order, self.key)
        """The data order of a job of a request."""
        self.streams = StandardStreams(offer.payload)
        self._outputs = SandboxOutputs(offer.sandbox, self.key, max_output)

    # Before the process starts

    @property
    def folder(self) -> str:
        """The folder in which it runs."""
        assert self.work_dir is not None
        return self.payload.folder or self.work_dir.folder

    def make_folder(self, work_dirs: WorkDirs, now: float) -> None:
        """Take a working directory. Raises CannotRun."""
        try:
            self.work_dir = work_dirs.take(
                (self.payload.owner, self.payload.group), self.streams.removable, now
            )
        except OSError as error:
            raise CannotRun(f"cannot make a folder: {error}", failure="node") from None

    @property
    def is_in_place(self) -> bool:
        """Whether it runs in a folder that is not its own."""
        return bool(self.payload.folder)

    def enter_folder(self, connection: ServerConnection) -> None:
        """Check the folder of a job in place and open its files there. Raises CannotRun and OtherFolder.

        For a background thread: a file system that does not answer must not stop the loop.
        """
        assert self.work_dir is not None
        check_folder(self.payload.folder, self.payload.folder_mark)
        self.streams.open(self.work_dir.folder)

    def has_remote_inputs(self) -> bool:
        """Whether its inputs are prepared in the background."""
        return self.data is not None or has_remote_inputs(self.payload.inputs)

    def fetch_inputs(
        self, connection: ServerConnection, cache: InputCache, isolation: Optional[Isolation] = None
    ) -> None:
        """Put all inputs into the folder. Raises CannotRun; ServerUnavailable and DataCancelled if killed meanwhile."""
        attempt = self._attempt(connection, lambda: self.killed)
        retry_until_available(
            lambda: place_inputs(attempt, cache, self.payload.inputs, self.folder), attempt.is_cancelled
        )
        if self.data is not None:
            self.data.prepare(isolation, attempt)

    def _attempt(self, connection: ServerConnection, is_cancelled: Callable[[], bool]) -> DataAttempt:
        """The attempt, for the places of its data."""
        assert self.work_dir is not None
        return DataAttempt(self.key, connection, self.work_dir.tmp, is_cancelled)

    def carry_out_action(self, connection: ServerConnection) -> None:
        """Run the pilot's own program for this job. For a background thread."""
        assert self.data is not None
        self.data.carry_out(self.finish, self._attempt(connection, lambda: self.killed or self.is_cancelled))
        self.store_logs(connection)

    def store_logs(self, connection: ServerConnection) -> None:
        """Store the logs at a storage place, if the request of this job wants it. For a background thread."""
        if self.data is not None:
            streams = list(zip(STREAMS, self.streams.files))  # noqa: B905 (Python 3.9)
            attempt = self._attempt(connection, lambda: self.is_cancelled)
            self.data.store_logs(self.finish, self.payload, streams, attempt)

    def check_inputs(self, isolation: Isolation) -> None:
        """Refuse inputs by which an isolated payload would see more of the node. Raises CannotRun."""
        for item in self.payload.inputs:
            if item.mode == "url" and urllib.parse.urlsplit(item.source).scheme == "file":
                raise CannotRun(
                    f"input {item.name}: an isolated pilot fetches no file addresses", failure="input"
                )
            if item.mode == "shared" and not isolation.shows(item.source):
                raise CannotRun(
                    f"input {item.name}: isolated payloads do not see {item.source};"
                    " `visible` of the CE in the policy can show it",
                    failure="node",
                )

    def link_inputs(self) -> None:
        """Link shared inputs into the folder. Raises CannotRun."""
        try:
            for item in self.payload.inputs:
                link_shared(item, prepare_path(self.folder, item.name))
        except OSError as error:
            raise placement_error(error) from None

    def launch(
        self,
        base: Dict[str, str],
        null: int,
        cores: Tuple[int, ...],
        power: float,
        now: float,
        isolation: Optional[Isolation] = None,
    ) -> None:
        """Start the process. Raises CannotRun, and CannotIsolate if this node can isolate no more."""
        assert self.work_dir is not None
        place, tmp = self.work_dir.folder, self.work_dir.tmp
        try:
            command = build_command(
                self.payload, self.key, self.folder, tmp, base, isolated=isolation is not None, data=self.data
            )
        except (OSError, ValueError) as error:
            raise CannotRun(f"cannot prepare the command: {error}", failure="node") from None
        if not self.is_in_place:
            self.streams.open(self.folder)
        self.warning = command.warning
        self.started = now
        self.finish.download = round(now - self.begun, 6)
        self.cores = cores
        files = (null, self.streams.files[0], self.streams.files[-1])
        umask = umask_of(self.payload)
        if isolation is None:
            self.pid = spawn(command, self.folder, files, cores, umask)
            self._set_resource_limits(power)
            return
        in_place = InPlace(self.payload.folder, umask) if self.is_in_place else None
        limits = resource_limits(self.payload, power)
        self.pid = isolation.start(command, place, tmp, files, cores, limits, in_place)

    def _set_resource_limits(self, power: float) -> None:
        """Set hard limits of the kernel, for processes that grow faster than sampling can notice."""
        limits = resource_limits(self.payload, power)
        if not limits:
            return
        with contextlib.suppress(OSError, ValueError):
            for name, limit in limits.items():
                resource.prlimit(self.pid, getattr(resource, name), limit)

    # Its time

    def wall_end(self) -> float:
        """When it is stopped for its wall time."""
        if not self.payload.wall_time or not self.pid or self.killed or self.has_ended:
            return math.inf
        return self.started + self.payload.wall_time

    def warn_at(self, stops_at: float) -> float:
        """When its signal is due: not before a program has had time to install its handler."""
        is_over = not self.pid or self.killed or self.has_ended
        if not self.payload.warn or self.warned or is_over:
            return math.inf
        end = min(self.wall_end(), stops_at)
        return max(end - self.payload.warn, self.started + FIRST_WARNING)

    def note_memory(self, memory: int, now: float) -> None:
        """Record a sample of its processes."""
        self.memory, self.sampled_at = memory, now
        self.rss = max(self.rss, memory)

    # After the process has ended

    def on_leader_reaped(
        self, status: int, usage: "resource.struct_rusage", now: float, power: float
    ) -> None:
        """Record the exit status and resource use of the payload's first process."""
        finish = self.finish
        if os.WIFSIGNALED(status):
            finish.signal = os.WTERMSIG(status)
        else:
            finish.exit_code = os.WEXITSTATUS(status)
        finish.wall = round(now - self.started, 6)
        finish.cpu = round(max(usage.ru_utime + usage.ru_stime, self.cpu), 6)
        limit = process_cpu_limit(self.payload, power)
        # Beyond this limit the kernel may have ended a process whose parent then succeeded.
        if (
            limit is not None
            and not finish.failure
            and (finish.signal == signal.SIGXCPU or finish.cpu > limit)
        ):
            finish.failure, finish.message = "limit-cpu", "CPU time used up"
        # Between fork and exec the child has the pilot's memory, which the kernel counts as the child's peak.
        peak = usage.ru_maxrss * 1024
        if peak <= resource.getrusage(_OWN_PEAK).ru_maxrss * 1024:
            peak = 0
        finish.max_rss = max(peak, self.rss) // MB
        self.has_ended = True

    def has_uploads(self) -> bool:
        """Whether there is anything to upload. Call it after `inline_streams`."""
        return bool(self.payload.outputs or self.data) or None in (self.finish.stdout, self.finish.stderr)

    def has_logs_to_store(self) -> bool:
        """Whether the logs of this attempt go to a storage place."""
        return self.data is not None and self.data.stores_logs and self.finish.failure != "killed"

    def inline_streams(self) -> None:
        """Put standard output and error into the Finish if they are small."""
        streams = self.streams
        if streams.files:
            self.finish.stdout = streams.inlined(0)
            self.finish.stderr = streams.inlined(1) if len(streams.files) > 1 else ""

    def upload_outputs(self, connection: ServerConnection) -> None:
        """Upload the outputs, and record them in the Finish.

        A file that cannot be stored is reported as refused, and the upload continues: no file that a payload leaves
        behind may cause the job to run again.
        """
        try:
            self._upload_large_streams(connection)
            result = find_outputs(
                self.folder,
                self.payload.outputs,
                inputs=self._shared_inputs(),
                is_cancelled=lambda: self.is_cancelled,
            )
            self.finish.missing, self.finish.refused = result.missing, result.refused + self.finish.refused
            stored = set(self.finish.outputs)
            for output in result.outputs:
                if output.name not in stored:
                    self._upload_output(
                        connection, output.name, partial(open_output, self.folder, output.source)
                    )
        except DataCancelled:
            self.finish.message, self.finish.failure = "output: cancelled", self.finish.failure or "output"
        except (ServerUnavailable, RequestRefused, SearchCancelled, OSError) as error:
            self.finish.message = f"output: {escape_name(str(error))}"
            self.finish.failure = self.finish.failure or "output"
        if self.data is not None:
            self.data.store(self.finish, self.folder, self._attempt(connection, lambda: self.is_cancelled))
            self.store_logs(connection)
        if self.keep_streams:
            self.upload_streams(connection)

    def upload_streams(self, connection: ServerConnection) -> None:
        """Upload the present standard output and error of a killed job."""
        assert self.work_dir is not None
        for place, name in enumerate(STREAMS[: len(self.streams.files)]):
            if self.streams.size(place):
                try:
                    with self.streams.copy(place, self.work_dir.tmp) as file:
                        retry_until_available(
                            partial(upload, connection, self.key, name, file, self.max_output, STORE_STREAM),
                            lambda: self.is_cancelled,
                        )
                except (ServerUnavailable, RequestRefused, Unreadable, OSError) as error:
                    log(
                        "cannot upload the output of a killed job",
                        job=self.key[0],
                        stream=name,
                        reason=escape_name(str(error)),
                    )

    def _upload_large_streams(self, connection: ServerConnection) -> None:
        """Upload standard output and error if they are too large for the Finish."""
        assert self.work_dir is not None
        inlined = (self.finish.stdout, self.finish.stderr)
        for place, name in enumerate(self.streams.names):
            if inlined[place] is None:
                self._upload_output(connection, name, partial(self.streams.copy, place, self.work_dir.tmp))

    def _upload_output(
        self, connection: ServerConnection, name: str, opened: Callable[[], IO[bytes]]
    ) -> None:
        """Upload one file. Raises ServerUnavailable, and RequestRefused if the server accepts no other file either."""
        try:
            with opened() as file:
                self._outputs.send(self._attempt(connection, lambda: self.is_cancelled), name, file)
        except RequestRefused as error:
            if error.superseded or error.status == FORBIDDEN:
                raise
            self._note_refused(name, error.error.message or f"the server answered {error.status}")
        except (Unreadable, NotAFile) as error:
            self._note_refused(name, str(error))
        except OSError as error:
            self._note_refused(name, f"cannot be read: {error.strerror or error}")
        else:
            self.finish.outputs.append(name)

    def _note_refused(self, name: str, reason: str) -> None:
        if len(self.finish.refused) < 2 * MAX_REFUSED:
            self.finish.refused.append(
                RefusedOutput(escape_name(name)[:MAX_SHOWN], escape_name(reason)[:MAX_SHOWN])
            )

    def _shared_inputs(self) -> Set[str]:
        """The names of inputs that are links."""
        return {os.path.normpath(item.name) for item in self.payload.inputs if item.mode == "shared"}

    def clean_up(self, work_dirs: WorkDirs, *, alone: bool, now: float) -> bool:
        """Remove the folders if they contain only files of the pilot; False if `remove_folders` must do it.

        `alone`: the pilot has no descendant process. Clean folders are then kept for another payload.
        Call it before `close`.
        """
        if self.work_dir is None:
            return True
        streams = self.streams
        if alone and work_dirs.give_back(self.work_dir, streams.removable, streams.own_files, now):
            return True
        return self.work_dir.remove(streams.removable)

    def remove_folders(self, connection: ServerConnection) -> None:
        assert self.work_dir is not None
        remove_tree(self.work_dir.tmp)
        remove_tree(self.work_dir.folder)
