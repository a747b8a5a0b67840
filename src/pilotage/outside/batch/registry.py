"""The adapters of all batch systems. A module or folder beside this file is found by itself.

It is the adapter of the `ces.*.type` of its name if it has a function `make_adapter(ce, machine, timeout)`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from pilotage.core.errors import NotFound, Unreachable
from pilotage.core.plug_ins import functions_at, unusable_in
from pilotage.core.policy import Ce
from pilotage.core.policy.reach import SshReach, parse_reach
from pilotage.outside import batch
from pilotage.outside.batch.adapter import BatchAdapter
from pilotage.outside.batch.https_connection import BatchConnection, HttpsConnection
from pilotage.outside.batch.runner import TIMEOUT, LocalRunner, Runner
from pilotage.outside.batch.ssh.connection import SshConnection
from pilotage.outside.batch.ssh.runner import SshRunner


@dataclass(frozen=True, slots=True)
class ServerMachine:
    """The machine of the server, from which adapters are used."""

    environment: Mapping[str, str]
    """The environment of the server, without its own variables."""
    user: str
    """The account that batch jobs are submitted under."""
    logs: Path
    """Folder for the output of this machine's pilots."""
    host: str = ""
    """The name of this machine where servers of several machines share a database."""
    open_files: int | None = None
    """The limit of open files for this machine's pilots; None: the server's."""
    runner: Callable[[Mapping[str, str]], Runner] = LocalRunner
    """Makes the runner of the commands of a batch system, from their environment. Tests answer from a transcript."""
    connect: Callable[[str, int, ssl.SSLContext, float], BatchConnection] = HttpsConnection
    """Makes the connection to a batch system that is reached by HTTPS, from host, port, TLS and seconds for a call."""

    ssh: Callable[[SshReach], SshConnection] | None = None
    """The connection to a host; None: there are none."""

    def over_ssh(self, reach: SshReach) -> ServerMachine:
        """The same machine for a batch system on another host, whose commands get the environment of that host."""
        assert self.ssh is not None, "this machine has no connections"
        connection = self.ssh(reach)
        try:
            user = connection.user
        except Unreachable:
            # Then no session starts either, and the first listing says why.
            user = self.user
        return replace(self, environment={}, user=user, runner=partial(SshRunner, connection))

    def variables(self, names: tuple[str, ...]) -> dict[str, str]:
        """These variables of the environment, as far as they are set."""
        return {name: self.environment[name] for name in names if name in self.environment}


AdapterMaker = Callable[[Ce, ServerMachine, float], BatchAdapter]


@cache
def adapter_makers() -> Mapping[str, AdapterMaker]:
    """The function that makes an adapter, by type of CE."""
    return functions_at("batch_adapters", batch.__name__, batch.__path__, "make_adapter")


def make_adapter_of(ce: Ce, machine: ServerMachine, timeout: float = TIMEOUT) -> BatchAdapter:
    """The adapter of a CE. `timeout`: seconds for one command."""
    makers = adapter_makers()
    if ce.type not in makers:
        hint = unusable_in(ce.type) or f"known: {', '.join(sorted(makers))}"
        raise NotFound(f"there is no adapter of the batch system {ce.type!r}", hint=hint)
    if ce.reach:
        machine = machine.over_ssh(parse_reach(ce.reach))
    return makers[ce.type](ce, machine, timeout)
