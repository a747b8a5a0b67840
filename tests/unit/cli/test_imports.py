"""What cheap commands import: all of it is paid at every start, so libraries and modules come by need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.client.fake_server import State, job

PROGRAM = """
import os, sys
from pilotage.main import main
sys.argv = ["pilotage", *sys.argv[1:]]
code = main()
os.write(int(os.environ["REPORT"]), " ".join([str(code), *sys.modules]).encode())
"""

LIBRARIES = {
    "alembic", "cryptography", "fastapi", "httpx", "jwt", "numpy", "pydantic", "psycopg", "re2", "rich", "sqlalchemy",
    "starlette", "typer", "uvicorn", "yaml",
}  # fmt: skip
"""Libraries that no cheap command needs."""
STANDARD = {
    "asyncio",
    "concurrent.futures",
    "difflib",
    "importlib.metadata",
    "logging",
    "socketserver",
    "tarfile",
    "urllib.request",
}
"""Modules of Python that take as long as libraries."""
CALL = {"hashlib", "http.client", "msgspec", "pilotage.client.api", "ssl"}
"""Modules for a call to a server."""
PARSING = {"click", "dataclasses", "inspect", "json", "pathlib"}
"""Modules of commands that have options."""
ROOMS = {
    "pilotage.agent", "pilotage.core.brokering", "pilotage.core.classads", "pilotage.core.policy",
    "pilotage.core.splitting", "pilotage.outside", "pilotage.pilot", "pilotage.server", "pilotage.services",
    "pilotage.store",
}  # fmt: skip
"""Parts of Pilotage that no cheap command needs."""
WIRE = {
    "call", "duties", "jobs", "limits", "payload_use", "pilot", "pilots", "proxy", "queries", "server_address",
    "server_trust", "submissions",
}  # fmt: skip
"""Modules of `wire` that `status` may import. Each dataclass costs processor time in every command."""


def imported(*words: str, **settings: str) -> tuple[int, set[str]]:
    """The exit code of a command in a new interpreter, and the modules that it has imported."""
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as report:
        environment = {"PATH": os.environ["PATH"], "REPORT": str(writing), **settings}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            capture_output=True,
            text=True,
            check=False,
            pass_fds=[writing],
            env=environment,
        )
        os.close(writing)
        code, *modules = report.read().split() or ["none"]
    assert modules, done.stderr
    return int(code), set(modules)


def heavy(modules: set[str], *unwanted: set[str]) -> set[str]:
    return modules & set().union(LIBRARIES, STANDARD, ROOMS, *unwanted)


@pytest.mark.parametrize("words", [("--help",), ("token", "--help"), ("--version",)])
def test_an_overview_imports_no_command(words: tuple[str, ...], tmp_path: Path) -> None:
    code, modules = imported(*words, HOME=str(tmp_path))
    assert code == 0
    assert not heavy(modules, CALL, PARSING)


@pytest.mark.parametrize(
    "words", [("status",), ("status", "--help"), ("queue", "list"), ("why", "1"), ("kill", "x-")]
)
def test_a_command_without_a_server_imports_nothing_for_calls(words: tuple[str, ...], tmp_path: Path) -> None:
    _, modules = imported(*words, HOME=str(tmp_path))
    assert not heavy(modules, CALL)


@pytest.mark.parametrize(
    "words", [("status",), ("queue", "list"), ("pilot", "list"), ("why", "1"), ("whoami",)]
)
def test_a_call_imports_what_it_needs(words: tuple[str, ...], fake: tuple[Path, State]) -> None:
    home, state = fake
    state.jobs = {1: job(1, "Waiting")}
    for given in (words, (*words, "--json")):
        code, modules = imported(*given, HOME=str(home), PILOTAGE_HOME=str(home))
        assert state.requests, "it has asked the server"
        assert code in (0, 4)  # the server of the tests does not answer all
        assert not heavy(modules)


@pytest.mark.parametrize("place", ["PILOTAGE_SERVER", "PILOTAGE_HOME"])
def test_status_imports_the_messages_of_jobs_alone(place: str, tmp_path: Path) -> None:
    setting = "http://127.0.0.1:1" if place == "PILOTAGE_SERVER" else str(tmp_path)
    settings = {"HOME": str(tmp_path), "PILOTAGE_TOKEN_FILE": str(tmp_path / "token"), place: setting}
    _, modules = imported("status", **settings)
    assert {name.split(".")[2] for name in modules if name.startswith("pilotage.wire.")} <= WIRE
    assert not heavy(modules)


def test_a_program_that_imports_the_client_pays_for_what_it_uses() -> None:
    code = "import sys, pilotage.client; print([name for name in sys.modules if 'pilotage.' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['pilotage.client']\n"
