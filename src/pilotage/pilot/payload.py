"""One payload from its folder to its Finish. The crew says when; here is how."""

from __future__ import annotations

import base64
import contextlib
import math
import os
import resource
import signal
from functools import partial
from typing import IO, Callable, Dict, FrozenSet, List, Optional, Set, Tuple

from pilotage.wire.pilot import INLINE_OUTPUT_BYTES, MB, Finish, OfferedJob, RefusedOutput

from .beneath import OF_THE_NAME, NotAFile, make_folders, open_root, printable, split
from .events import Key
from .folders import within
from .inputs import InputCache, link_shared, needs_fetching, not_placed, place_for, place_inputs
from .launch import NOT_EXECUTABLE, CannotRun, compose, spawn
from .log import log
from .outputs import Unreadable, open_output, upload
from .removal import remove_tree
from .search import MOST_REFUSED, SHOWN, GivenUp, find_outputs
from .thread_pool import persist
from .transport import FORBIDDEN, Connection, RequestRefused, ServerAway
from .work_dirs import WorkDir, WorkDirs

_OWN_PEAK = resource.RUSAGE_SELF
_ROOM = 256_000_000
"""Bytes that a process may ask for beyond twice the memory limit: thread stacks and the like are seldom used up."""


class RunningPayload:
    """The files, the process and the account of one try. All methods but the `..._away` ones are for the loop."""

    def __init__(self, offer: OfferedJob, now: float, most_output: int = 0) -> None:
        """`most_output`: bytes of one output file that the server takes; 0: not known."""
        self.offer = offer
        self.payload = offer.payload
        self.key: Key = (offer.job, offer.epoch)
        self.place: Optional[WorkDir] = None
        self.pid = 0
        self.cores: Tuple[int, ...] = ()
        self.begun = now
        self.started = now
        self.gone = False
        """Its processes have ended, or never were."""
        self.killed = False
        """Somebody but the payload itself wants it ended; `finish.failure` then says why."""
        self.kill_at = math.inf
        """SIGTERM was sent; SIGKILL follows at this instant."""
        self.abandon_at = math.inf
        """Uploads are given up at this instant."""
        self.given_up = False
        self.keep_streams = False
        """The job was killed: what it wrote so far is sent to the server."""
        self.most_output = most_output
        self.cpu = 0.0
        self.rss = 0
        self.tail_offsets: Dict[str, int] = {"stdout": 0, "stderr": 0}
        self.finish = Finish(offer.job, offer.epoch)
        self._files: List[int] = []

    # Before

    @property
    def folder(self) -> str:
        assert self.place is not None
        return self.place.folder

    @property
    def _names(self) -> Tuple[str, ...]:
        """Of the files of standard output and error; one, if both go to the same file."""
        output = os.path.normpath(self.payload.std_output or "stdout")
        error = os.path.normpath(self.payload.std_error or "stderr")
        return (output, error) if output != error else (output,)

    @property
    def _streams(self) -> FrozenSet[str]:
        """Those of the names that lie in the folder itself: nothing else is emptied or removed by name."""
        return frozenset(name for name in self._names if within(name) and "/" not in name)

    def make_folder(self, places: WorkDirs) -> None:
        """Raises CannotRun."""
        try:
            self.place = places.take((self.payload.owner, self.payload.group), self._streams)
        except OSError as error:
            raise CannotRun(f"cannot make a folder: {error}", failure="node") from None

    def needs_fetching(self) -> bool:
        return needs_fetching(self.payload.inputs)

    def place_inputs_away(self, line: Connection, cache: InputCache) -> None:
        """Raises CannotRun; Away only when killed meanwhile."""
        persist(
            lambda: place_inputs(line, cache, self.key[0], self.payload.inputs, self.folder),
            lambda: self.killed,
        )

    def link_inputs(self) -> None:
        """Raises CannotRun."""
        try:
            for item in self.payload.inputs:
                link_shared(item, place_for(self.folder, item.name))
        except OSError as error:
            raise not_placed(error) from None

    def launch(
        self, base: Dict[str, str], null: int, cores: Tuple[int, ...], power: float, now: float
    ) -> None:
        """Start the process. Raises CannotRun."""
        assert self.place is not None
        try:
            command = compose(self.payload, self.key, self.folder, self.place.tmp, base)
        except (OSError, ValueError) as error:
            raise CannotRun(f"cannot prepare the command: {error}", failure="node") from None
        self._open_files()
        self.started = now
        self.cores = cores
        self.pid = spawn(command, self.folder, (null, self._files[0], self._files[-1]), cores)
        self._limit(power)

    def _open_files(self) -> None:
        """Make the files of standard output and error. Raises CannotRun."""
        inputs = {os.path.normpath(item.name) for item in self.payload.inputs}
        try:
            root = open_root(self.folder)
            try:
                for name in self._names:
                    if not within(name) or name in inputs:
                        why = "is an input" if name in inputs else "leads out of the folder"
                        raise CannotRun(f"standard output or error: {name!r} {why}", NOT_EXECUTABLE)
                    self._open_file(root, name)
            finally:
                os.close(root)
        except (OSError, ValueError) as error:
            message = f"standard output or error: {error}"
            if isinstance(error, OSError) and error.errno not in OF_THE_NAME:
                raise CannotRun(message, failure="node") from None
            # The name is to blame, on every node: the payload's own fault, as a shell would tell it.
            raise CannotRun(message, NOT_EXECUTABLE) from None

    def _open_file(self, root: int, name: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        parent, last = split(name)
        folder = make_folders(root, parent) if parent else root
        try:
            number = os.open(last, flags, 0o600, dir_fd=folder)
        finally:
            if parent:
                os.close(folder)
        self._files.append(number)
        if os.fstat(number).st_size:
            os.ftruncate(number, 0)

    def _limit(self, power: float) -> None:
        """Stops for runaways that the sampling would see too late; the sampling is the rule."""
        with contextlib.suppress(OSError, ValueError):
            if self.payload.memory:
                most = 2 * self.payload.memory * MB + _ROOM
                resource.prlimit(self.pid, resource.RLIMIT_DATA, (most, most))
            limit = self.cpu_limit(power)
            if limit < math.inf:
                most = math.ceil(limit) + 1
                resource.prlimit(self.pid, resource.RLIMIT_CPU, (most, most + 5))

    def cpu_limit(self, power: float) -> float:
        """CPU seconds of this node's cores, of the whole process tree."""
        if not self.payload.cpu_time:
            return math.inf
        return self.payload.cpu_time * max(1, self.payload.processors) / (power or 1.0)

    # After

    def reaped(self, status: int, usage: "resource.struct_rusage", now: float) -> None:
        """The leader has ended."""
        finish = self.finish
        if os.WIFSIGNALED(status):
            finish.signal = os.WTERMSIG(status)
            if finish.signal == signal.SIGXCPU and self.payload.cpu_time and not finish.failure:
                finish.failure, finish.message = "limit-cpu", "CPU time used up"
        else:
            finish.exit_code = os.WEXITSTATUS(status)
        finish.wall = round(now - self.started, 6)
        finish.cpu = round(max(usage.ru_utime + usage.ru_stime, self.cpu), 6)
        # The kernel counts the memory of the pilot itself, from between fork and exec, as the child's.
        peak = usage.ru_maxrss * 1024
        if peak <= resource.getrusage(_OWN_PEAK).ru_maxrss * 1024:
            peak = 0
        finish.max_rss = max(peak, self.rss) // MB
        self.gone = True

    def needs_storing(self) -> bool:
        return bool(self.payload.outputs) or any(
            os.fstat(number).st_size > INLINE_OUTPUT_BYTES for number in self._files
        )

    def take_in_streams(self) -> None:
        """Standard output and error into the Finish, where they are small."""
        if self._files:
            self.finish.stdout = self._inline(self._files[0])
            self.finish.stderr = self._inline(self._files[1]) if len(self._files) > 1 else ""

    def _inline(self, number: int) -> Optional[str]:
        size = os.fstat(number).st_size
        if size > INLINE_OUTPUT_BYTES:
            return None
        return base64.b64encode(os.pread(number, size, 0)).decode() if size else ""

    def store_away(self, line: Connection) -> None:
        """Upload what has to be, and say so in the Finish.

        A file that can't be stored is told of and the others go on: nothing that a payload leaves behind makes it
        run again.
        """
        try:
            self._store_streams(line)
            found = find_outputs(
                self.folder, self.payload.outputs, inputs=self._links(), given_up=lambda: self.given_up
            )
            self.finish.missing, self.finish.refused = found.missing, found.refused + self.finish.refused
            stored = set(self.finish.outputs)
            for output in found.outputs:
                if output.name not in stored:
                    self._store(line, output.name, partial(open_output, self.folder, output.source))
        except (ServerAway, RequestRefused, GivenUp, OSError) as error:
            self.finish.message = f"output: {printable(str(error))}"
            self.finish.failure = self.finish.failure or "output"
        if self.keep_streams:
            self.keep_streams_away(line)

    def keep_streams_away(self, line: Connection) -> None:
        """Upload standard output and error of a job that was killed, as they are now."""
        for name, number in zip(("stdout", "stderr"), self._files):  # noqa: B905 (Python 3.9)
            if os.fstat(number).st_size:
                try:
                    with _copy_of(number) as file:
                        persist(
                            partial(upload, line, self.key, name, file, self.most_output, "streams"),
                            lambda: self.given_up,
                        )
                except (ServerAway, RequestRefused, Unreadable, OSError) as error:
                    log(
                        "output of a killed job is lost",
                        job=self.key[0],
                        stream=name,
                        why=printable(str(error)),
                    )

    def _store_streams(self, line: Connection) -> None:
        """Standard output and error, as far as they are not in the Finish."""
        inlined = (self.finish.stdout, self.finish.stderr)
        for name, number, inline in zip(self._names, self._files, inlined):  # noqa: B905 (Python 3.9)
            if inline is None:
                self._store(line, name, partial(_copy_of, number))

    def _store(self, line: Connection, name: str, opened: Callable[[], IO[bytes]]) -> None:
        """Upload one file. Raises Away, and Refused if the server wants no other file either."""
        try:
            with opened() as file:
                persist(lambda: upload(line, self.key, name, file, self.most_output), lambda: self.given_up)
        except RequestRefused as error:
            if error.superseded or error.status == FORBIDDEN:
                raise
            self._refuse(name, error.error.message or f"the server answered {error.status}")
        except (Unreadable, NotAFile) as error:
            self._refuse(name, str(error))
        except OSError as error:
            self._refuse(name, f"cannot be read: {error.strerror or error}")
        else:
            self.finish.outputs.append(name)

    def _refuse(self, name: str, reason: str) -> None:
        if len(self.finish.refused) < 2 * MOST_REFUSED:
            self.finish.refused.append(RefusedOutput(printable(name)[:SHOWN], printable(reason)[:SHOWN]))

    def _links(self) -> Set[str]:
        """The names of links that are inputs."""
        return {os.path.normpath(item.name) for item in self.payload.inputs if item.mode == "shared"}

    def stream(self, name: str) -> Optional[int]:
        """The open file of standard output or error, while there is one."""
        if not self._files:
            return None
        return self._files[0] if name == "stdout" else self._files[1] if len(self._files) > 1 else None

    def close(self) -> None:
        for number in self._files:
            os.close(number)
        self._files.clear()

    def tidy_quickly(self, places: WorkDirs, *, alone: bool) -> bool:
        """Remove the folders if there is nothing in them but what we put there; False if more is to be done.

        `alone`: no process lives below the pilot. Then they are kept for another payload, if they are clean.
        """
        if self.place is None or (alone and places.give_back(self.place, self._streams)):
            return True
        return self.place.remove(self._streams)

    def remove_away(self, line: Connection) -> None:
        assert self.place is not None
        remove_tree(self.place.tmp)
        remove_tree(self.place.folder)


def _copy_of(number: int) -> IO[bytes]:
    return os.fdopen(os.dup(number), "rb")
