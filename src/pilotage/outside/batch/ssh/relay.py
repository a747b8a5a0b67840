"""The way back from nodes that reach only their login node: a relay there, and a forwarding of the connection."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from pilotage.outside.batch.process_group import ProcessGroup
from pilotage.outside.batch.script import PYTHONS
from pilotage.outside.batch.ssh.connection import READY, SshConnection
from pilotage.outside.batch.ssh.runner import quote
from pilotage.outside.batch.submission import in_short

START_TIMEOUT = 30.0
"""Seconds for the relay's start."""

SIGN_TIMEOUT = 0.2
"""Seconds for a sign of life to leave, which nothing waits for."""

RETRY = 10.0
"""Seconds between two tries to start it."""

PATIENCE_FOR_PORT = 150.0
"""Seconds for the port of the last relay to become free: pilots that run look for the server there."""

_TOLD = b"relay "


class RelayAddress(NamedTuple):
    """`ces.NAME.relay`: the address of a relay as the nodes know it."""

    host: str
    """Empty: the name that its machine gives itself."""
    port: int
    """0: any."""

    @staticmethod
    def of(text: str) -> RelayAddress:
        parts = urlsplit(f"//{text}")
        host = parts.hostname or ""
        return RelayAddress("" if host == "auto" else host, parts.port or 0)


class RelayState(NamedTuple):
    """Whether a relay runs."""

    url: str
    """The address for pilots; empty: it does not run."""
    failure: str
    """Why it does not run; empty: it runs."""


class _RelayFacts(msgspec.Struct, frozen=True):
    """The facts that the program tells of itself."""

    socket: str = ""
    host: str = ""
    port: int = 0
    failure: str = ""


class SshRelay:
    """One relay, started again when it has ended. Only one thread at a time calls `ensure`."""

    def __init__(self, connection: SshConnection, wanted: RelayAddress, state: Path) -> None:
        """`state`: the file that keeps the port of the relay for the next one."""
        self._connection = connection
        self._wanted = wanted
        self._state = state
        self._lock = threading.Lock()
        self._session: ProcessGroup | None = None
        self._forward = ""
        self._next_try = 0.0
        self._missed_port_since: float | None = None
        self._url = ""
        self._failure = ""

    def ensure(self, target: str, now: float) -> RelayState:
        """Give the relay a sign of life, or start it. `target`: HOST:PORT of the server as this machine reaches it.

        `now`: seconds of a clock that never goes back.
        """
        session = self._session
        if session is not None and not session.has_ended:
            session.feed(b"\n", keep_open=True)
            with suppress(TimeoutError):
                session.read(time.monotonic() + SIGN_TIMEOUT, is_enough=lambda: True)
            return RelayState(self._url, "")
        self.close()
        if not self._connection.is_open:
            self._next_try, self._failure = now, self._connection.closed_text
        elif now >= self._next_try:
            self._next_try = now + RETRY
            self._url, self._failure = "", ""
            self._failure = self._start(target, now)
        return RelayState(self._url, self._failure)

    def _start(self, target: str, now: float) -> str:
        """Start it; why it does not run, or an empty text."""
        host, port = self._wanted.host, self._wanted.port or self._last_port()
        if self._missed_port_since is not None and now - self._missed_port_since > PATIENCE_FOR_PORT:
            port = self._wanted.port
        where = self._connection.reach.machine
        try:
            facts = self._told(host, port)
        except (OSError, TimeoutError) as error:
            return f"the relay on {where} does not start: {error or 'no answer in time'}"
        if facts.failure:
            self.close()
            if self._missed_port_since is None:
                self._missed_port_since = now
            return f"the relay on {where}: {facts.failure}"
        self._forward = f"{facts.socket}:{target}"
        forwarded = self._connection.control("forward", "-R", self._forward)
        if forwarded.returncode:
            self.close()
            return f"{where} does not forward to this server: {in_short(forwarded.stderr)}"
        self._missed_port_since = None
        self._state.write_text(str(facts.port))
        named = host or facts.host
        self._url = f"https://{f'[{named}]' if ':' in named else named}:{facts.port}"
        return ""

    def _last_port(self) -> int:
        try:
            return int(self._state.read_text())
        except (OSError, ValueError):
            return 0

    def _told(self, host: str, port: int) -> _RelayFacts:
        """Start the program, and read its facts. `OSError`: it told nothing, with its errors."""
        session = self._connection.start_session()
        self._session = session
        session.feed(_line(host, port), keep_open=True)
        try:
            session.read(
                time.monotonic() + START_TIMEOUT, is_enough=lambda: _facts_in(session.output) is not None
            )
        except TimeoutError:
            self.close()
            raise
        facts = _facts_in(session.output)
        if facts is None:
            errors = bytes(session.errors).rpartition(READY)[2].decode(errors="replace")
            self.close()
            raise OSError(in_short(errors) or "it said nothing")
        return facts

    def close(self) -> None:
        """End the relay."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.kill()
            session.reap()
        if self._forward and self._connection.is_open:
            self._connection.control("cancel", "-R", self._forward)
        self._forward = ""


def _line(host: str, port: int) -> bytes:
    """The line that starts the program under the first Python that can run it."""
    source = (files(__package__) / "relay_program.py").read_text()
    newline, program = quote(source)
    words = f"-c {program} {quote(host)[1]} {port}"
    check = "-c 'import sys; sys.exit(sys.version_info < (3, 9))'"
    tries = (
        f'for python in {" ".join(PYTHONS)}; do "$python" {check} 2>/dev/null && exec "$python" {words}; done'
    )
    return f"{newline}{tries}; echo 'no Python 3.9 or newer there' >&2\n".encode()


def _facts_in(output: bytearray) -> _RelayFacts | None:
    """The facts that the program has told so far; None: nothing yet."""
    for line in bytes(output).partition(READY)[2].splitlines(keepends=True):
        if line.startswith(_TOLD) and line.endswith(b"\n"):
            with suppress(msgspec.MsgspecError):
                return msgspec.json.decode(line.removeprefix(_TOLD), type=_RelayFacts)
    return None
