"""One connection to a login node: opened by a person, used by the server through its control socket.

The server never authenticates. A session that finds no open connection ends at once, without a question and without
a try of its own: some sites lock an account after a few failed tries.
"""

from __future__ import annotations

import hashlib
import re
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pilotage.core.errors import Unreachable
from pilotage.core.policy.reach import SshReach
from pilotage.outside.batch.process_group import ProcessGroup
from pilotage.outside.batch.submission import in_short

READY = b"pilotage-ready\n"
"""Begins the output of a session itself: the profiles of the account may print before."""

SHELL = (
    "exec /bin/sh -l -c 'echo pilotage-ready; echo pilotage-ready >&2;"
    ' IFS= read -r line || exit 0; eval "$line"\''
)
"""The far side of a session. The command follows as the first line of the input, so no limit of an argument's length
counts. The login shell of the account parses this text alone."""

MOST_SESSIONS = 6
"""Sessions of one connection at a time. sshd allows ten as shipped (`MaxSessions`), and a person may want some."""

RETRY = 30.0
"""Seconds between two tries to open a connection without a person."""

DENIED_RETRY = 900.0
"""Seconds until the next try after a host refused the account: some lock it after a few."""

_ALIVE = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3")
_CONTROL_TIMEOUT = 10.0
_OPEN_TIMEOUT = 40.0


REFUSED = "it refuses the account"
UNKNOWN_KEY = "its host key is not known"


def plain_reason(errors: str) -> str:
    """Why ssh opened no connection, in plain words, from its errors."""
    if "IDENTIFICATION HAS CHANGED" in errors:
        return (
            "its host key is another one than before: the host was installed again, or another host answers for it;"
            " ask its administrators before you remove the known key with `ssh-keygen -R`"
        )
    if "Host key verification failed" in errors:
        return f"{UNKNOWN_KEY}: log in once by `ssh`, and compare the fingerprint with that of its administrators"
    denied = next((line for line in errors.splitlines() if "Permission denied" in line), "")
    if denied:
        return f"{REFUSED}: {in_short(denied)}"
    return in_short(errors) or "ssh opened no connection and gave no reason"


class SshConnection:
    """The way to one host. Several CEs and threads may share it."""

    def __init__(self, reach: SshReach, folder: Path, environment: Mapping[str, str]) -> None:
        """`folder`: that of the control sockets. `environment`: that of the command ssh."""
        self.reach = reach
        self.folder = folder
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._spare: ProcessGroup | None = None
        self._user = ""
        self._opening = threading.Lock()
        self._next_try = 0.0
        self._away = ""
        self.sessions = threading.BoundedSemaphore(MOST_SESSIONS)

    @property
    def socket(self) -> str:
        """The control socket's name. ssh runs in its folder: the path of a socket may have 107 bytes only."""
        name = re.sub(r"[^A-Za-z0-9.-]", "_", self.reach.machine)[:32]
        return f"{name}-{hashlib.sha256(str(self.reach).encode()).hexdigest()[:12]}"

    @property
    def is_open(self) -> bool:
        """Whether there is a control socket. Its connection may have broken without a word."""
        try:
            return stat.S_ISSOCK((self.folder / self.socket).stat().st_mode)
        except OSError:
            return False

    def answers(self) -> bool:
        """Whether the connection's own process answers, and thinks that the connection lives."""
        return self.is_open and self.control("check").returncode == 0

    def control(self, request: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Ask the open connection for something, such as `check`, `forward` or `exit`."""
        options = ("-o", "BatchMode=yes", *self.reach.options)
        command = ["ssh", "-S", f"./{self.socket}", "-O", request, *words, *options, "--", self.reach.host]
        return self._run(command)

    def log_in(self) -> str:
        """Try to open the connection without a question to a person; why it is not open, or an empty text."""
        self.forget_socket()
        done = self._run(self.login_command(batch=True), _OPEN_TIMEOUT)
        return "" if done.returncode == 0 and self.answers() else plain_reason(done.stderr)

    def open_without_questions(self) -> str:
        """Open the connection if it is closed and the host asks nobody anything; why it is not open, or "".

        After a failure the next try is later, and much later if the host refused the account.
        """
        with self._opening:
            if self.is_open:
                self._away = ""
            elif (now := time.monotonic()) >= self._next_try:
                self._away = self.log_in()
                pause = DENIED_RETRY if REFUSED in self._away else RETRY
                self._next_try = now + pause if self._away else 0.0
            return self._away

    def forget_socket(self) -> None:
        """Remove a control socket that nothing answers."""
        (self.folder / self.socket).unlink(missing_ok=True)

    def _run(
        self, command: Sequence[str], timeout: float = _CONTROL_TIMEOUT
    ) -> subprocess.CompletedProcess[str]:
        """Run ssh without a session, which takes a moment. It has failed where it cannot be run."""
        # A connection in the background may keep the errors open: a pipe would not end.
        with (
            tempfile.TemporaryFile("w+", errors="replace") as output,
            tempfile.TemporaryFile("w+", errors="replace") as errors,
        ):
            try:
                status = subprocess.run(
                    command,
                    env=self._environment,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    timeout=timeout,
                    check=False,
                ).returncode
            except (OSError, subprocess.TimeoutExpired) as error:
                return subprocess.CompletedProcess(command, 255, "", f"ssh cannot be run: {error}")
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(command, status, output.read(), errors.read())

    @property
    def closed_text(self) -> str:
        return f"no connection to {self.reach.machine}: type `pilotage ce login` on the server's machine"

    @property
    def user(self) -> str:
        """The account there, by ssh's own configuration. `Unreachable`: ssh refuses the configuration."""
        if not self._user:
            done = self._run(["ssh", "-G", *self.reach.options, "--", self.reach.host])
            user = re.search(r"^user (.+)$", done.stdout, re.MULTILINE)
            if done.returncode or user is None:
                raise Unreachable(f"ssh refuses its configuration: {done.stderr.strip()}")
            self._user = user[1]
        return self._user

    def login_command(self, *, batch: bool) -> list[str]:
        """The command that opens the connection, to be run in `folder`. `batch`: without a question to a person."""
        return [
            *("ssh", "-M", "-S", f"./{self.socket}", "-N", "-f"),
            *("-o", f"BatchMode={'yes' if batch else 'no'}", "-o", "ConnectTimeout=30", *_ALIVE),
            *(*self.reach.options, "--", self.reach.host),
        ]

    def start_session(self, shell: str = SHELL) -> ProcessGroup:
        """Start a session over the open connection. Without one it ends: it never opens a connection of its own."""
        command = [
            *("ssh", "-S", f"./{self.socket}", "-T", "-o", "ControlMaster=no", "-o", "BatchMode=yes"),
            *("-o", "ProxyCommand=/bin/false", "-o", "LogLevel=ERROR"),
            *(*self.reach.options, "--", self.reach.host, shell),
        ]
        return ProcessGroup(command, self._environment, None, self.folder)

    def take_session(self) -> ProcessGroup:
        """A session that waits for its command, from a moment before if there is one: that saves its start."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and not spare.has_ended:
            return spare
        if spare is not None:
            spare.reap()
        return self.start_session()

    def keep_spare(self) -> None:
        """Start the session of the next command."""
        with self._lock:
            if self._spare is None and self.is_open:
                with suppress(OSError):
                    self._spare = self.start_session()

    def close(self) -> None:
        """End the spare session. The connection stays open for the next server."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.kill()
            spare.reap()
