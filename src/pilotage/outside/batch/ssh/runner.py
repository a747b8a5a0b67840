"""Runs the commands of a batch system on a login node: a `Runner` over an open ssh connection."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Mapping, Sequence

from pilotage.outside.batch.process_group import OutputTooLong, ProcessGroup
from pilotage.outside.batch.runner import MISSING, TIMEOUT, CommandResult
from pilotage.outside.batch.ssh.connection import READY, SshConnection
from pilotage.outside.batch.submission import in_short

MOST_OUTPUT = 128 * 1024 * 1024
"""Bytes of a command's output: more than a listing of 100,000 batch jobs has."""

_END = b"\npilotage-end "
_NOT_EXECUTABLE = 126


def far_line(command: Sequence[str], variables: Mapping[str, str], timeout: float) -> bytes:
    """The one line that the shell of a session evaluates: `command` with exactly these arguments.

    The far side kills the command by itself after `timeout`, where it has the program `timeout`: a session that ends
    here leaves its command running there. The command's status is the last line of its errors.
    """
    limit = f"timeout -s KILL {max(1, round(timeout))}"
    parts = [quote(*command, *variables.values())[0]]
    parts += [f"export {name}={quote(value)[1]};" for name, value in variables.items()]
    parts.append(f"pilotage_limit='{limit}'; command -v timeout >/dev/null 2>&1 || pilotage_limit=;")
    parts.append(f"$pilotage_limit {quote(*command)[1]};")
    parts.append("printf '\\npilotage-end %s\\n' \"$?\" >&2\n")
    return " ".join(parts).encode("utf-8", "surrogateescape")


def quote(*words: str) -> tuple[str, str]:
    """Words of one line for a POSIX shell, after the commands that they need.

    A new line in a word would end the line: a variable stands for it.
    """
    quoted = " ".join(
        '"$pilotage_newline"'.join(shlex.quote(part) for part in word.split("\n")) for word in words
    )
    needed = "pilotage_newline=$(printf '\\n.'); pilotage_newline=${pilotage_newline%.}; "
    return needed if "\n" in "".join(words) else "", quoted


class SshRunner:
    """Runs commands over one connection. `variables` are set for each command beside the account's own."""

    is_remote = True

    def __init__(self, connection: SshConnection, variables: Mapping[str, str]) -> None:
        self._connection = connection
        self._variables = dict(variables)
        self._lock = threading.Lock()
        self._running: set[ProcessGroup] = set()
        self._closed = False

    def close(self) -> None:
        """End the sessions that run, and refuse further ones."""
        with self._lock:
            self._closed = True
            for session in self._running:
                session.kill()

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = TIMEOUT) -> CommandResult:
        end = time.monotonic() + timeout
        if not self._connection.is_open:
            return _not_begun(self._connection.closed_text)
        if any("\0" in word for word in command):
            return CommandResult(MISSING, errors=f"{command[0]}: an argument has a null character")
        if not self._connection.sessions.acquire(timeout=timeout):
            where = self._connection.reach.machine
            return _not_begun(f"all sessions of the connection to {where} are in use")
        try:
            session = self._start()
            if isinstance(session, str):
                return _not_begun(session)
            request = far_line(command, self._variables, timeout) + text.encode()
            return self._converse(session, command, request, end, is_patient=bool(text))
        finally:
            self._connection.sessions.release()

    def _start(self) -> ProcessGroup | str:
        """A session, or why there is none."""
        with self._lock:
            if self._closed:
                return "the server stops"
            try:
                session = self._connection.take_session()
            except OSError as error:
                return f"ssh cannot be run: {error.strerror}"
            self._running.add(session)
            return session

    def _converse(
        self, session: ProcessGroup, command: Sequence[str], request: bytes, end: float, *, is_patient: bool
    ) -> CommandResult:
        """Give a session its command, and read the answer.

        `is_patient`: the command is sent after the sign that the far side reads it. So a session that ended before
        has certainly not begun it. Commands with input submit something, and are worth that wait.
        """
        in_time, fault, is_sent = False, "", not is_patient
        try:
            if is_patient:
                session.read(end, MOST_OUTPUT, None, lambda: READY in session.output)
                is_sent = READY in session.output
            if is_sent:
                session.feed(request)
                session.read(end, MOST_OUTPUT, None)
            session.await_end(end)
            in_time = True
        except TimeoutError:
            pass
        except OutputTooLong:
            fault = f"{command[0]} printed more than {MOST_OUTPUT >> 20} MB"
        finally:
            if not in_time:
                session.kill()
            session.reap()
            with self._lock:
                self._running.discard(session)
        if not is_sent:
            said = session.errors.decode(errors="replace")
            return _not_begun(fault or (self._broken(said) if in_time else self._silent))
        if fault:
            return _unreached(fault)
        if not in_time:
            return CommandResult(None, _after_ready(session.output), _after_ready(session.errors))
        self._connection.keep_spare()
        return self._read(session, command)

    @property
    def _silent(self) -> str:
        return f"{self._connection.reach.machine} did not begin a session in time"

    def _read(self, session: ProcessGroup, command: Sequence[str]) -> CommandResult:
        errors, end, status = bytes(session.errors).rpartition(_END)
        if not end or READY not in session.output or not status.strip().isdigit():
            return _unreached(self._broken(session.errors.decode(errors="replace")))
        result = CommandResult(_status(int(status)), _after_ready(session.output), _after_ready(errors))
        if result.status != MISSING:
            return result
        where = self._connection.reach.machine
        text = f"{command[0]} is not installed on {where}, or not on the PATH of a login shell there"
        return CommandResult(MISSING, errors=text, unreached=text)

    def _broken(self, errors: str) -> str:
        """Why a session ended without the status of its command."""
        if not self._connection.is_open:
            return self._connection.closed_text
        where = self._connection.reach.machine
        if "refused by peer" in errors:
            return f"{where} allows no further session of this connection (MaxSessions of its sshd)"
        if "Connection closed by UNKNOWN" in errors or "kex_exchange" in errors:
            return self._connection.closed_text
        words = in_short(errors)
        return f"the connection to {where} broke" + (f": {words}" if words else "")


def _status(status: int) -> int:
    """The exit code as a `CommandResult` has it. A shell tells a signal by a code above 128."""
    if status == _NOT_EXECUTABLE:
        return MISSING
    return 128 - status if 128 < status < 128 + 65 else status


def _unreached(reason: str) -> CommandResult:
    return CommandResult(None, errors=reason, unreached=reason)


def _not_begun(reason: str) -> CommandResult:
    return CommandResult(None, errors=reason, unreached=reason, never_began=True)


def _after_ready(output: bytes | bytearray) -> str:
    """The output of the command: that of the account's profiles stands before it."""
    before, ready, own = bytes(output).partition(READY)
    return (own if ready else before).decode(errors="replace")
