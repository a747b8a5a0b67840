"""One payload from its folder to its Finish. The crew says when; here is how."""

from __future__ import annotations

import base64
import contextlib
import math
import os
import resource
import signal
from typing import IO, Dict, FrozenSet, Iterator, List, Optional, Tuple

from pilotage.wire.pilot import INLINE_OUTPUT_BYTES, Finish, Offer

from .errands import persist
from .events import Key
from .folders import remove_tree, within
from .inputs import InputCache, link_shared, needs_fetching, place_inputs
from .launch import CannotRun, compose, spawn
from .outputs import find_outputs, open_output, upload
from .transport import Away, Line, Refused
from .workplaces import Workplace, Workplaces

_OWN_PEAK = resource.RUSAGE_SELF
_ROOM = 256_000_000
"""Bytes that a process may ask for beyond twice the memory limit: thread stacks and the like are seldom used up."""


class RunningPayload:
    """The files, the process and the account of one try. All methods but the `..._away` ones are for the loop."""

    def __init__(self, offer: Offer, now: float) -> None:
        self.offer = offer
        self.payload = offer.payload
        self.key: Key = (offer.job, offer.epoch)
        self.place: Optional[Workplace] = None
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
    def _streams(self) -> FrozenSet[str]:
        return frozenset((self.payload.std_output or "stdout", self.payload.std_error or "stderr"))

    def make_folder(self, places: Workplaces) -> None:
        """Raises CannotRun."""
        try:
            self.place = places.take((self.payload.owner, self.payload.group), self._streams)
        except OSError as error:
            raise CannotRun(f"cannot make a folder: {error}", failure="node") from None

    def needs_fetching(self) -> bool:
        return needs_fetching(self.payload.inputs)

    def place_inputs_away(self, line: Line, cache: InputCache) -> None:
        """Raises CannotRun; Away only when killed meanwhile."""
        persist(
            lambda: place_inputs(line, cache, self.key[0], self.payload.inputs, self.folder),
            lambda: self.killed,
        )

    def link_inputs(self) -> None:
        for item in self.payload.inputs:
            if not within(item.name):
                raise CannotRun(f"input {item.name!r}: its name leads out of the folder", failure="input")
            place = os.path.join(self.folder, item.name)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            link_shared(item, place)

    def launch(
        self, base: Dict[str, str], null: int, cores: Tuple[int, ...], power: float, now: float
    ) -> None:
        """Start the process. Raises CannotRun."""
        assert self.place is not None
        command = compose(self.payload, self.key, self.folder, self.place.tmp, base)
        try:
            self._open_files()
        except OSError as error:
            raise CannotRun(f"cannot open standard output: {error}", failure="node") from None
        self.started = now
        self.cores = cores
        self.pid = spawn(command, self.folder, (null, self._files[0], self._files[-1]), cores)
        self._limit(power)

    def _open_files(self) -> None:
        names = [self.payload.std_output or "stdout", self.payload.std_error or "stderr"]
        for name in names if names[0] != names[1] else names[:1]:
            if not within(name):
                raise OSError(f"{name!r} leads out of the folder")
            place = os.path.join(self.folder, name)
            if "/" in name:
                os.makedirs(os.path.dirname(place), exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            number = os.open(place, flags, 0o600)
            self._files.append(number)
            if os.fstat(number).st_size:  # an input of this name
                os.ftruncate(number, 0)

    def _limit(self, power: float) -> None:
        """Stops for runaways that the sampling would see too late; the sampling is the rule."""
        with contextlib.suppress(OSError, ValueError):
            if self.payload.memory:
                most = 2 * self.payload.memory * 1_000_000 + _ROOM
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
        finish.max_rss = max(peak, self.rss) // 1_000_000
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

    def store_away(self, line: Line) -> None:
        """Upload what has to be, and say so in the Finish."""
        try:
            for name, file in self._to_store():
                with file:
                    self._upload(line, name, file)
                self.finish.outputs.append(name)
        except (Away, Refused, OSError) as error:
            self.finish.message = f"output: {error}"
            self.finish.failure = self.finish.failure or "output"

    def _upload(self, line: Line, name: str, file: IO[bytes]) -> None:
        persist(lambda: upload(line, self.key, name, file), lambda: self.given_up)

    def _to_store(self) -> Iterator[Tuple[str, IO[bytes]]]:
        names = (self.payload.std_output or "stdout", self.payload.std_error or "stderr")
        inlined = (self.finish.stdout, self.finish.stderr)
        for name, number, inline in zip(names, self._files, inlined):  # noqa: B905 (Python 3.9)
            if inline is None:
                yield name, os.fdopen(os.dup(number), "rb")
        found, self.finish.missing = find_outputs(self.folder, self.payload.outputs)
        for name in found:
            if name not in self.finish.outputs:
                yield name, open_output(self.folder, name)

    def stream(self, name: str) -> Optional[int]:
        """The open file of standard output or error, while there is one."""
        if not self._files:
            return None
        return self._files[0] if name == "stdout" else self._files[1] if len(self._files) > 1 else None

    def close(self) -> None:
        for number in self._files:
            os.close(number)
        self._files.clear()

    def tidy_quickly(self, places: Workplaces, *, alone: bool) -> bool:
        """Remove the folders if there is nothing in them but what we put there; False if more is to be done.

        `alone`: no process lives below the pilot. Then they are kept for another payload, if they are clean.
        """
        if self.place is None or (alone and places.give_back(self.place, self._streams)):
            return True
        return self.place.remove(self._streams)

    def remove_away(self, line: Line) -> None:
        assert self.place is not None
        remove_tree(self.place.tmp)
        remove_tree(self.place.folder)
