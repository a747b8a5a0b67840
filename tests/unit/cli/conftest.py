from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "client"))
from pilotage.cli.root import build, run
from pilotage.main.command_line import SERVER_COMMANDS
from tests.unit.client.fake_server import State, serving, token

Cli = Callable[..., int]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PILOTAGE_SERVER", "PILOTAGE_TOKEN_FILE", "PILOTAGE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PILOTAGE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[tuple[Path, State]]:
    """A home whose server.json names a fake server."""
    home = tmp_path / "home"
    home.mkdir()
    now = time.time()
    (home / "token").write_text(token(now, now + 3600))
    with serving() as (url, state):
        (home / "server.json").write_text(
            json.dumps({"url": url, "pid": 2**22 + 7, "host": "", "fingerprint": None})
        )
        yield home, state


@pytest.fixture
def state(fake: tuple[Path, State]) -> State:
    return fake[1]


@pytest.fixture
def cli() -> Cli:
    return lambda *words: run(build(SERVER_COMMANDS), [str(word) for word in words])
