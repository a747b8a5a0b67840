"""Counts the steps of SQLite's machine that each request of a server takes.

This file, run as a program, is `pilotage` with the guard. Each request is a line of JSON in $PILOTAGE_STEPS. Steps of
duties count for the request that is answered meanwhile, so the least of several requests tells.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from pilotage.server.http.app import Application

UNIT = 50
"""Steps between two calls of the counter."""
_units = 0


def _count() -> int:
    global _units
    _units += 1
    return 0


def install(file: Path) -> None:
    """Count the steps of all connections that this process opens from now on."""
    connect, answer = sqlite3.connect, Application._answer

    def counted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_progress_handler(_count, UNIT)
        return connection

    async def measured(self: Application, scope: Any, receive: Any, send: Any) -> None:
        before = _units
        try:
            await answer(self, scope, receive, send)
        finally:
            with file.open("a") as lines:
                lines.write(json.dumps([scope.get("path", ""), (_units - before) * UNIT]) + "\n")

    sqlite3.connect = counted  # type: ignore[assignment]
    Application._answer = measured  # type: ignore[method-assign]


def lines_of(file: Path) -> list[tuple[str, int]]:
    """The path and the steps of each request that was answered."""
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


if __name__ == "__main__":
    install(Path(os.environ["PILOTAGE_STEPS"]))
    from pilotage.main import main

    sys.exit(main())
