"""A server with pilots on this machine, for the tests of the plug-in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.client import Client


def pilotage(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "pilotage.main", *words], check=True)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("pilotage") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOTAGE_HOME", str(folder))
        # Programs of the rules are those of this environment.
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        pilotage("up", "--detach")
        try:
            yield folder
        finally:
            pilotage("down", "--cancel-pilots")


@pytest.fixture
def client(home: Path) -> Iterator[Client]:
    with Client.connect(home=home) as connected:
        yield connected
