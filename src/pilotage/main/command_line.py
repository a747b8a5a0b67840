"""The root of the command line, with the commands that need a server's code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from pilotage.cli.commands import LazyCommand
from pilotage.cli.root import Root, build, names_command, run
from pilotage.cli.stdio import describe_system_error
from pilotage.core.errors import PilotageError

SERVER_COMMANDS = {
    "up": LazyCommand("pilotage.main.up", "up", "Start the server, with pilots on this machine"),
    "agent": LazyCommand(
        "pilotage.main.agent", "agent", "Run an agent, which splits requests of a team into jobs"
    ),
    "db backup": LazyCommand(
        "pilotage.main.db", "backup", "Back up the database, also while the server runs"
    ),
    "db check": LazyCommand("pilotage.main.db", "check", "Check the integrity of the database"),
    "db upgrade": LazyCommand(
        "pilotage.main.db", "upgrade", "Upgrade the database to the schema of this version"
    ),
    "db restore": LazyCommand("pilotage.main.db", "restore", "Replace the database with a backup"),
    "home adopt": LazyCommand("pilotage.main.home", "adopt", "Make a copied home a home of its own"),
    "ce login": LazyCommand(
        "pilotage.main.ce_login", "login", "Open the ssh connections to the hosts of CEs (administrators)"
    ),
    "policy apply": LazyCommand(
        "pilotage.main.policy_apply", "apply", "Put a policy file into force; first try it on recorded work"
    ),
    "completion": LazyCommand(
        "pilotage.main.completion", "completion", "Print a script that completes words in bash, zsh or fish"
    ),
    "plugins": LazyCommand(
        "pilotage.main.plug_ins", "plugins", "List the plug-ins that other distributions have added"
    ),
    "twin run": LazyCommand(
        "pilotage.main.twin",
        "run",
        "Try policies on the jobs of a trace or of the server's history, and write a report",
    ),
    "twin record": LazyCommand(
        "pilotage.main.twin_record", "record", "Record a server's own jobs for `twin run` (administrators)"
    ),
    "twin replay": LazyCommand(
        "pilotage.main.twin_replay",
        "replay",
        "Make the decisions of a recorded server once more, and compare",
    ),
    "twin policy": LazyCommand("pilotage.main.twin", "policy", "Print the default policy of a trace"),
    "server certificate show": LazyCommand(
        "pilotage.main.certificates", "show", "Show the server's certificates and the address for `login`"
    ),
    "server certificate rotate": LazyCommand(
        "pilotage.main.certificates", "rotate", "Replace the server's own certificate, in two steps"
    ),
    "server certificate use": LazyCommand(
        "pilotage.main.certificates", "use", "Put a certificate of your own into use"
    ),
}


def run_command_line() -> int:
    """Run one command line and return its exit code."""
    return run_words(sys.argv[1:])


def run_words(words: Sequence[str]) -> int:
    """Run a command line of these words and return its exit code."""
    return run(commands_for(words), words, explain)


def commands_for(words: Sequence[str]) -> Root:
    """All commands. If the words name a command of Pilotage, nobody looks for commands of other distributions."""
    root = build(SERVER_COMMANDS)
    return root if names_command(root, words) or not _others_add_commands() else all_commands()


def _others_add_commands() -> bool:
    """Whether a distribution in `sys.path` adds commands. `importlib.metadata` takes longer than an overview."""
    for folder in sys.path:
        with suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                if not entry.name.endswith((".dist-info", ".egg-info")):
                    continue
                declared = os.path.join(entry.path, "entry_points.txt")
                with suppress(OSError), open(declared, encoding="utf-8", errors="replace") as file:
                    if "[pilotage.commands]" in file.read():
                        return True
    return False


def all_commands() -> Root:
    """The commands of Pilotage and of other distributions."""
    from pilotage.main.plug_ins import others_commands

    return build(SERVER_COMMANDS | others_commands())


def explain(error: Exception) -> PilotageError | None:
    """The error for a person in place of one of the system or of a damaged database; None: it is another."""
    if (known := describe_system_error(error)) is not None or "sqlite3" not in sys.modules:
        return known
    from pilotage.store.engine.damage import damage_of

    return damage_of(error)
