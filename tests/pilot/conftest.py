from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pilot.pilot_server import PilotProcess, PilotServer


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def server() -> Iterator[PilotServer]:
    server = PilotServer()
    yield server
    server.away()


@pytest.fixture
def pilot(server: PilotServer, workdir: Path) -> Iterator[Callable[..., PilotProcess]]:
    """Start a pilot; it is ended after the test, and must have left nothing behind."""
    started = []

    def start(*options: str, **more: Any) -> PilotProcess:
        started.append(PilotProcess(server, workdir, *options, **more))
        return started[-1]

    yield start
    for process in started:
        process.stop()
    assert list(workdir.iterdir()) == []
