"""The duty that runs an agent as a child process, for the team of the policy."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from pathlib import Path

from pilotage.core.requests.states import RequestState
from pilotage.server.context import Context
from pilotage.server.daemon_threads import DaemonThreads
from pilotage.server.duties.batch_clients import outer_environment
from pilotage.server.duties.duty import Duty
from pilotage.server.outside_calls import OutsideCalls
from pilotage.store.tables import requests

IDLE = 300.0
"""Seconds without an unfinished request of its team after which the agent is ended."""
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the agent is started again after it has died; doubled each time."""
STEADY = 60.0
"""An agent that has lived for as long starts again after the shortest pause."""
STOP_WITHIN = 6.0
"""Seconds that the agent has to give its elements back when the server stops."""
MAX_LOG = 10 << 20
"""Bytes. A larger log is renamed before the next start, and replaces the one before."""

log = logging.getLogger(__name__)

UNFINISHED = (
    RequestState.ASSIGNED,
    RequestState.STAGING,
    RequestState.STAGED,
    RequestState.ACQUIRED,
    RequestState.RUNNING_OPEN,
    RequestState.RUNNING_CLOSED,
)
"""States in which elements are there, or may come."""


class EmbeddedAgentDuty(Duty):
    """Starts the agent when a request needs it, and again when it has died. It ends with the server.

    The agent's standard input is a pipe from the server. So the agent ends also when the server is killed.
    """

    name = lease = "embedded agent"
    every = 1.0

    def __init__(self, context: Context, home: Path) -> None:
        super().__init__(context)
        self._agent = _AgentProcess(home, context.pilots.outside)
        self._threads = DaemonThreads("end of the agent")
        self._team = ""
        self._needed_at = 0.0
        self._started_at = 0.0
        self._not_before = 0.0
        self._pause = SHORTEST_PAUSE

    async def work(self) -> None:
        now, team = self._context.monotonic(), self._context.pool.policy.requests.agent_team
        is_needed = bool(team) and await self._context.quick_read(
            lambda connection: requests.has_unfinished(connection, team, UNFINISHED)
        )
        if is_needed:
            self._needed_at = now
        self._look_after(now)
        if self._agent.started:
            if team != self._team or now - self._needed_at > IDLE:
                await self.close()
        elif is_needed and now >= self._not_before and not self._context.stop.is_set():
            await asyncio.to_thread(self._agent.start, team)
            self._team, self._started_at = team, now

    def _look_after(self, now: float) -> None:
        """Note the end of the agent, and when it may start again."""
        if not self._agent.started or (code := self._agent.exit_code()) is None:
            return
        if now - self._started_at > STEADY:
            self._pause = SHORTEST_PAUSE
        self._not_before = now + self._pause
        log.warning(
            "the agent of team %s ended with code %s; it starts again in %.0f s; its log is %s",
            *(self._team, code, self._pause, self._agent.log),
        )
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def close(self) -> None:
        """End the agent: in order if it can, else at once."""
        if self._agent.started:
            # It gives its elements back to this server, which must answer meanwhile.
            await asyncio.get_running_loop().run_in_executor(self._threads, self._agent.end)


class _AgentProcess:
    """The process of the agent. Each call leaves the server."""

    def __init__(self, home: Path, outside: OutsideCalls) -> None:
        self._home = home
        self._outside = outside
        self.log = home / "agent.log"
        self.started = False
        """It was started, and its end was not noted yet."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, team: str) -> None:
        self._outside.ask("agent: start", None, lambda: self._start(team))
        self.started = True

    def exit_code(self) -> int | None:
        """None: it runs."""
        code = self._outside.ask("agent: exit code", int | None, self._exit_code)
        self.started = code is None
        return code

    def end(self) -> None:
        self._outside.ask("agent: end", None, self._end)
        self.started = False

    def _start(self, team: str) -> None:
        """Start the agent with the token of the home. Variables of the server's user do not reach it."""
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > MAX_LOG:
                self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as file:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "pilotage.main",
                    "agent",
                    "--team",
                    team,
                    "--home",
                    str(self._home),
                    "--embedded",
                ],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
                cwd="/",
                env=outer_environment(),
            )

    def _exit_code(self) -> int | None:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            self._forget(self._process)
        return code

    def _end(self) -> None:
        process = self._process
        assert process is not None
        process.terminate()
        _await_end(process)
        self._forget(process)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        self._process = None


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
