"""The composition root, and the root of the command line. Environment, clock and chance come in here."""

from __future__ import annotations

import sys

from pilotage.cli.commands import LazyCommand
from pilotage.cli.root import build, run

SERVER_COMMANDS = {
    "up": LazyCommand("pilotage.main.up", "up", "Start the server with a CE on this machine"),
    "db backup": LazyCommand("pilotage.main.db", "backup", "Copy the database, also while the server runs"),
    "db check": LazyCommand("pilotage.main.db", "check", "Look for damage in the database"),
    "db upgrade": LazyCommand("pilotage.main.db", "upgrade", "Bring the database to this version's schema"),
    "db restore": LazyCommand("pilotage.main.db", "restore", "Put a backup in the place of the database"),
}


def main() -> int:
    """Run one command line; its exit code."""
    return run(build(SERVER_COMMANDS), sys.argv[1:])
