"""Adapters of batch systems that the server's machine can reach."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path

from pilotage.core.policy import Ce
from pilotage.outside.batch.adapter import BatchAdapter
from pilotage.outside.batch.registry import ServerMachine, make_adapter_of
from pilotage.server.context import Context

SERVER_PREFIXES = ("PILOTAGE_", "PG")
"""Prefixes of environment variables for the server and its database. Pilots do not get these variables."""

COMMAND_TIMEOUT = 15.0
"""Seconds for a command of a batch system while a person waits for its answer."""


def server_machine(logs: Path, *, shared: bool, open_files: int | None = None) -> ServerMachine:
    """The machine of this server. `shared`: servers of other machines may use its database."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SERVER_PREFIXES)}
    return ServerMachine(
        environment, getpass.getuser(), logs, socket.gethostname() if shared else "", open_files
    )


def waiting_adapter(context: Context, ce: Ce) -> BatchAdapter:
    """An adapter for one request of a person, beside the one of the CE's director."""
    machine = server_machine(context.pilots.logs, shared=context.pool.peers.shared)
    return make_adapter_of(ce, machine, COMMAND_TIMEOUT)
