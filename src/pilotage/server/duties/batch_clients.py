"""Adapters of batch systems that the server's machine can reach."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from typing import Protocol

from pilotage.core.policy import Ce
from pilotage.outside.batch.adapter import BatchAdapter, BatchSubmission
from pilotage.outside.batch.properties import all_properties, write_properties
from pilotage.outside.batch.registry import ServerMachine, make_adapter_of
from pilotage.outside.batch.script import PilotSettings, pilot_program, render, render_fetching
from pilotage.outside.service_keys import taken_keys
from pilotage.server.context import Context, proxy_of
from pilotage.server.duties.relays import relay_of

SERVER_PREFIXES = ("PILOTAGE_", "PG")
"""Prefixes of environment variables for the server and its database. Pilots do not get these variables."""

COMMAND_TIMEOUT = 15.0
"""Seconds for a command of a batch system while a person waits for its answer."""


def outer_environment() -> dict[str, str]:
    """The environment of programs that the server starts: without its own variables and its keys for services."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SERVER_PREFIXES)}


def server_machine(context: Context, open_files: int | None = None) -> ServerMachine:
    """The machine of this server."""
    host = socket.gethostname() if context.pool.peers.shared else ""
    pilots = context.pilots
    environment = {**outer_environment(), **taken_keys()}
    return ServerMachine(environment, getpass.getuser(), pilots.logs, host, open_files, ssh=pilots.ssh.of)


class BatchClients(Protocol):
    """The way of the directors to their batch systems."""

    def adapter(self, name: str, ce: Ce) -> BatchAdapter:
        """The adapter of the CE `name`."""

    def script(
        self, ce: str, secret: str, submission: BatchSubmission, batch: BatchAdapter, *, local: bool
    ) -> str:
        """The script of equal pilots. `submission`: theirs, without the script. `local`: they run on this machine."""

    def obstacle(self, ce: Ce) -> str:
        """Why the pilots of a CE cannot reach the server; empty: nothing is known against it."""


class OwnBatchClients:
    """The batch systems that this machine reaches, and the pilot program of this version."""

    def __init__(self, context: Context, open_files: int) -> None:
        """`open_files`: the limit of open files for local pilots."""
        self._context = context
        self._open_files = open_files

    def adapter(self, name: str, ce: Ce) -> BatchAdapter:
        def make() -> BatchAdapter:
            return make_adapter_of(ce, server_machine(self._context, self._open_files))

        return self._context.pilots.outside.adapter(name, make)

    def script(
        self, ce: str, secret: str, submission: BatchSubmission, batch: BatchAdapter, *, local: bool
    ) -> str:
        shape, address = submission.shape, self._context.address
        section = self._context.pool.policy.ces.get(ce)
        relay = relay_of(self._context, section).url if section is not None and section.relay else ""
        settings = PilotSettings(
            servers=(relay,) if relay else address.pilot_urls,
            fingerprints=address.pool_fingerprints,
            ca_file=address.ca_file,
            proxy=proxy_of(self._context, ce),
            secret=secret,
            index=0,
            processors=shape.processors,
            memory=shape.memory,
            stamp=submission.stamp,
            # This machine's pilots run by the server's own Python.
            python=sys.executable if local else "",
            index_variable=batch.index_variable,
            # Batch systems show them by themselves; of a process only its arguments are seen.
            properties=write_properties(all_properties(submission)) if local else "",
            node_options=batch.pilot_options,
        )
        if not local and section is not None and section.batch_options().fetches_program:
            return render_fetching(pilot_program(), settings)
        return render(pilot_program(compiled=local), settings)

    def obstacle(self, ce: Ce) -> str:
        return relay_of(self._context, ce).failure if ce.relay else ""


def waiting_adapter(context: Context, ce: Ce) -> BatchAdapter:
    """An adapter for one request of a person, beside the one of the CE's director."""

    def make() -> BatchAdapter:
        return make_adapter_of(ce, server_machine(context), COMMAND_TIMEOUT)

    return context.pilots.outside.adapter("a person's request", make)
