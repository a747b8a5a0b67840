"""The start of the server: what it imports, and what answers before the routes are built."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from alembic.script import ScriptDirectory

from pilotage.server.context import Context
from pilotage.server.http.app import LIVE, Application
from pilotage.server.http.routes.administration import live
from pilotage.store.admin.revisions import head_revision
from pilotage.store.admin.upgrade import _config
from tests.deadlines import PATIENCE


def test_the_start_imports_neither_routes_nor_migrations() -> None:
    """They would take more than half of the start; the routes are built in the background."""
    script = (
        "import sys, pilotage.server.process.run\n"
        "heavy = {'fastapi', 'pydantic', 'alembic', 'yaml', 'httpx'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_live_is_answered_before_the_routes_are_built() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        # No context: an answer of a route would need it.
        application = Application(cast(Context, None))
        await application({"type": "http", "path": "/live", "method": "GET", "headers": []}, receive, send)

    asyncio.run(ask())
    assert sent[0]["status"] == 200
    assert b'"live"' in sent[1]["body"]
    assert live() == LIVE


def test_routes_are_built_once() -> None:
    async def build() -> tuple[Any, Any]:
        application = Application(cast(Context, None))
        first, second = await asyncio.gather(application.routes(), application.routes())
        return first, second

    first, second = asyncio.run(build())
    assert first is second
    assert "/v1/jobs" in first.openapi()["paths"]


def test_the_newest_revision_is_that_of_the_migrations() -> None:
    assert head_revision() == ScriptDirectory.from_config(_config()).get_current_head()


@pytest.mark.parametrize(
    ("limit", "most", "told"),
    [
        ("RLIMIT_NOFILE", 64, "a process may open 64 files here, and the server reserves 320"),
        ("RLIMIT_AS", 2**30, "a process may have 1,048,576 KiB of memory here (`ulimit -v`)"),
    ],
)
def test_a_limit_below_what_is_reserved_refuses_the_start(
    tmp_path: Path, limit: str, most: int, told: str
) -> None:
    script = (
        "import resource, sys\n"
        "from pilotage.main import main\n"
        f"resource.setrlimit(resource.{limit}, ({most}, {most}))\n"
        f"sys.argv = ['pilotage', 'up', '--home', {str(tmp_path)!r}]\n"
        "sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "server.json").exists()
