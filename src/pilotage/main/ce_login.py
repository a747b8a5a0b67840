"""`pilotage ce login`: a person opens the connections that the server uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pilotage.cli.parser import CommandArgument, CommandOption
from pilotage.cli.session import Session, connected
from pilotage.core.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from pilotage.core.policy.reach import SshReach
    from pilotage.outside.batch.ssh.connection import SshConnection


@connected
def login(
    session: Session,
    names: Annotated[
        list[str] | None,
        CommandArgument("CEs of the policy; default: all that are reached over ssh", "NAMES"),
    ] = None,
    reach: Annotated[str, CommandOption("A host that the policy does not name yet", '"ssh HOST"')] = "",
    close: Annotated[bool, CommandOption("Close the connections instead")] = False,
) -> int:
    """Open the ssh connections to the hosts of CEs, on the server's machine and under its account.

    ssh itself asks the questions of the host: for a password, a code, the passphrase of a key. The connection stays
    until the host or the network ends it, also without a server. The exit code is 1 if one cannot be opened.
    """
    from pilotage.outside.batch.ssh.connections import CONNECTIONS, SshConnections

    _require_home(session.folder)
    reaches = _reaches(session, names or [], reach)
    connections = SshConnections(session.folder / CONNECTIONS, os.environ)
    opened = []
    for each, ces in reaches.items():
        connection = connections.of(each)
        reason = _close(session, connection) if close else _open(session, connection, ces)
        opened.append({"host": each.machine, "ces": ces, "open": not (close or reason), "reason": reason})
    if session.as_json:
        session.screen.json(opened)
    return int(any(row["reason"] for row in opened))


def _require_home(folder: Path) -> None:
    if not (folder / "instance.json").exists() and not (folder / "pilotage.db").exists():
        raise NotFound(
            f"{folder} is not the home of a server",
            hint="type it on the server's machine, under the server's account, with its --home",
        )


def _reaches(session: Session, names: list[str], reach: str) -> dict[SshReach, list[str]]:
    """The hosts to log in to, each with the CEs that are reached by it."""
    from pilotage.core.policy import parse
    from pilotage.core.policy.reach import parse_reach

    if reach:
        if names:
            raise InvalidInput("--reach stands without the name of a CE")
        return {parse_reach(reach): []}
    with session.client() as client:
        policy = parse(client.policy().text)
    for name in names:
        if name not in policy.ces:
            raise NotFound(f"the policy has no CE {name}", hint=f"CEs: {', '.join(policy.ces) or 'none'}")
        if not policy.ces[name].reaches:
            hint = 'it needs no login, unless its section gets reach = "ssh HOST"'
            raise InvalidInput(f"CE {name} is not reached over ssh", hint=hint)
    reaches: dict[SshReach, list[str]] = {}
    for name, ce in policy.ces.items():
        for each in ce.reaches if not names or name in names else ():
            reaches.setdefault(each, []).append(name)
    if not reaches:
        session.screen.line("no CE of the policy is reached over ssh")
    return reaches


def _open(session: Session, connection: SshConnection, ces: list[str]) -> str:
    """Open one connection; why it is not open, or an empty text. Without a terminal ssh asks nothing."""
    where = connection.reach.machine
    served = f", for {', '.join(ces)}" if ces else ""
    reason = "" if connection.answers() else connection.log_in()
    if reason and _may_ask(reason):
        nothing = subprocess.DEVNULL
        command = connection.login_command(batch=False)
        done = subprocess.run(command, cwd=connection.folder, stdin=nothing, stdout=nothing, check=False)
        reason = "" if done.returncode == 0 and connection.answers() else "ssh has opened no connection"
    if reason:
        session.screen.note(f"{where}: {reason}")
    else:
        session.screen.line(f"{where}: the connection is open{served}")
    return reason


def _may_ask(reason: str) -> bool:
    """Whether a person at the terminal can help: with a password or a code, or by a look at a new host's key."""
    from pilotage.outside.batch.ssh.connection import REFUSED, UNKNOWN_KEY

    return sys.stdin.isatty() and reason.startswith((REFUSED, UNKNOWN_KEY))


def _close(session: Session, connection: SshConnection) -> str:
    if connection.answers():
        connection.control("exit")
    connection.forget_socket()
    session.screen.line(f"{connection.reach.machine}: the connection is closed")
    return ""
