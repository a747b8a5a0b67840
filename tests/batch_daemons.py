"""The daemons of a batch system that a test starts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deadlines import PATIENCE

"""Seconds."""


def skip_or_fail(reason: str, system: str) -> None:
    """Skip the test for this reason, or fail it if `PILOTAGE_TEST_REQUIRE` names the batch system."""
    if system in os.environ.get("PILOTAGE_TEST_REQUIRE", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)


class BatchDaemons:
    """The daemons of one batch system, by name."""

    system: str
    """The name of the batch system, for complaints."""
    controller: str
    """The daemon that answers the commands of clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def pid(self) -> int:
        """The process of the controller."""
        return self._daemons[self.controller].pid

    def is_alive(self) -> bool:
        """Whether the controller runs."""
        process = self._daemons.get(self.controller)
        return process is not None and process.poll() is None

    def kill(self, daemon: str = "") -> None:
        """End a daemon, by default the controller, with SIGKILL, unless it has ended so already."""
        process = self._daemons.pop(daemon or self.controller)
        process.kill()
        process.wait()

    def _terminate_controller(self) -> None:
        """Stop the controller, which saves its state then."""
        process = self._daemons.pop(self.controller)
        process.terminate()
        process.wait(PATIENCE)

    @contextmanager
    def stopped(self, daemon: str = "") -> Iterator[None]:
        """A daemon, by default the controller, that is alive and does not answer."""
        process = self._daemons[daemon or self.controller]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def wait_until(self, reached: Callable[[], bool], complaint: str) -> None:
        """Wait for an event; fails if a daemon ends meanwhile."""
        begun = time.monotonic()
        while not reached():
            ended = [name for name, process in self._daemons.items() if process.poll() is not None]
            waited = time.monotonic() - begun
            if ended or waited > PATIENCE:
                logs = {str(path): path.read_text()[-2000:] for path in self._logs(ended)}
                raise AssertionError(f"{self.system}: {complaint}; ended: {ended}; {logs}")
            time.sleep(min(0.25, 0.02 + waited / 10))  # most looks start a command of the batch system

    def _logs(self, ended: Collection[str]) -> Sequence[Path]:
        """The logs to show when daemons have ended."""
        return [self.folder / "log" / f"{name}.out" for name in ended]

    def _spawn(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], *, new_session: bool = False
    ) -> None:
        """Start a daemon. Its output goes to the folder `log`."""
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=new_session,
            )
