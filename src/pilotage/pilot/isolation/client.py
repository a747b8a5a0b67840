"""The pilot's side of isolation: starts the launcher, tries isolation out, and starts payloads."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from pilotage.wire.pilot import EnrolResponse

from ..cannot_run import NOT_EXECUTABLE, CannotRun
from ..launch import Command
from ..log import log
from .root_folder import VisiblePath, can_show, is_below, is_visible, parse_visible

TAG = "isolated"
"""The tag of a pilot that isolates payloads; jobs may require it."""
USERNS = "userns"
"""The kind of isolation that `Node.isolation` names."""


class CannotIsolate(Exception):
    """The node cannot isolate payloads; the message tells why."""


class Launcher:
    """The connection to the launcher process."""

    def __init__(self, *close: int) -> None:
        """Fork the launcher, which closes the descriptors of `close`. Call it before any thread is started."""
        self._connection, other = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                # Imported before the descriptor is closed that the program is read from.
                from .launcher import serve

                self._connection.close()
                for number in close:
                    with contextlib.suppress(OSError):
                        os.close(number)
                serve(other)
            finally:
                os._exit(1)
        other.close()

    def stop(self) -> None:
        """End the launcher; payloads go on."""
        self._connection.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def start(self, request: Dict[str, Any], files: Tuple[int, int, int]) -> int:
        """Start a payload; returns the pid of its outer process. Raises CannotRun and CannotIsolate."""
        from .launcher import send_request

        report, report_end = os.pipe()
        try:
            try:
                send_request(self._connection, request, (*files, report_end))
            finally:
                os.close(report_end)
            with os.fdopen(os.dup(report), "rb") as file:
                lines: List[List[str]] = [json.loads(line) for line in file]
        except (OSError, ValueError) as error:
            raise CannotIsolate(f"the launcher does not answer: {error}") from None
        finally:
            os.close(report)
        return _read_report(lines)


def _read_report(lines: Sequence[List[str]]) -> int:
    """The pid of the outer process. If the payload was not started, that process is reaped first."""
    pid = 0
    failure: Optional[Exception] = None
    for line in lines:
        if line[0] == "pid":
            pid = int(line[1])
        elif line[0] == "cannot run":
            failure = CannotRun(line[1], int(line[2]))
        else:
            failure = failure or CannotIsolate(line[1])
    if failure is None and pid:
        return pid
    if pid:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    raise failure or CannotIsolate("the launcher did not start the payload")


def _homes() -> List[str]:
    """The home folders of this account, without links."""
    homes = {os.environ.get("HOME", "")}
    with contextlib.suppress(KeyError):
        homes.add(pwd.getpwuid(os.getuid()).pw_dir)
    return sorted({os.path.realpath(home) for home in homes if os.path.isabs(home)} - {"/"})


def set_up_isolation(
    launcher: Launcher, settings: EnrolResponse, folder: str
) -> Tuple[Optional[Isolation], str]:
    """The isolation that the CE asks for, tried out; None without. And why no payload may run here, or ""."""
    failure = ""
    if settings.isolation in ("userns", "require"):
        isolation = Isolation(launcher, settings.visible)
        try:
            isolation.try_out(folder)
        except CannotIsolate as error:
            failure = f"cannot isolate payloads: {error}"
            log(failure)
        else:
            return isolation, ""
    launcher.stop()
    return None, failure if settings.isolation == "require" else ""


@dataclass(frozen=True)
class InPlace:
    """A folder of the node in which a payload runs, and which it sees in addition."""

    folder: str
    umask: int
    """Negative: that of the pilot."""


class Isolation:
    """Starts payloads that see only their own folders, the system's, and the visible paths."""

    def __init__(self, launcher: Launcher, visible: Sequence[str]) -> None:
        self._launcher = launcher
        self._texts = list(visible)
        self._visible: List[VisiblePath] = [parse_visible(text) for text in visible]
        self._hidden = _homes()

    def try_out(self, folder: str) -> None:
        """Really start a program in isolation, below the pilot's work folder. Raises CannotIsolate."""
        parent = os.path.realpath(os.path.dirname(folder))
        for entry in self._visible:
            if is_below(parent, os.path.realpath(entry.path)):
                raise CannotIsolate(f"the visible path {entry.path} contains the work folders of pilots")
        place = os.path.join(folder, "isolation-test")
        tmp = place + ".tmp"
        null = os.open(os.devnull, os.O_RDWR)
        try:
            os.mkdir(place, 0o700)
            os.mkdir(tmp, 0o700)
            script = 'test $$ -lt 10 && test ! -e /proc/2000000000 && exec 3<>"$HOME/written"'
            command = Command("/bin/sh", ["/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin", "HOME": tmp})
            pid = self.start(command, place, tmp, (null, null, null), (), {})
            status = os.waitpid(pid, 0)[1]
            if status:
                raise CannotIsolate(f"the test program ended with status {status}")
        except (OSError, CannotRun) as error:
            raise CannotIsolate(str(error)) from None
        finally:
            os.close(null)
            shutil.rmtree(place, ignore_errors=True)
            shutil.rmtree(tmp, ignore_errors=True)

    def shows(self, path: str) -> bool:
        """Whether payloads see this path of the node."""
        return is_visible(path, self._visible)

    def start(
        self,
        command: Command,
        folder: str,
        tmp: str,
        files: Tuple[int, int, int],
        cores: Tuple[int, ...],
        limits: Dict[str, Tuple[int, int]],
        in_place: Optional[InPlace] = None,
    ) -> int:
        """Start a command; the pid of its outer process. Raises CannotRun and CannotIsolate.

        `in_place`: where it runs, if not in `folder`.
        """
        hidden = [*self._hidden, os.path.realpath(os.path.dirname(folder))]
        request = {
            "argv": command.argv,
            "environment": command.environment,
            "own_pid": command.own_pid,
            "standard_input": command.standard_input,
            "warning": command.warning,
            "folder": folder,
            "tmp": tmp,
            "cores": cores,
            "limits": limits,
            "visible": self._texts,
            "hidden": hidden,
            "runs_in": folder,
            "umask": -1,
        }
        if in_place is not None:
            real = os.path.realpath(in_place.folder)
            if not can_show(real):
                raise CannotRun(f"an isolated job cannot run in {in_place.folder}", NOT_EXECUTABLE)
            request["visible"] = [*self._texts, f"{in_place.folder}:rw"]
            request["hidden"] = [path for path in hidden if path != real]
            request["runs_in"], request["umask"] = in_place.folder, in_place.umask
        return self._launcher.start(request, files)
